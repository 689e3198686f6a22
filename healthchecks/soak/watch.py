"""Watches the GPUs while a probe loads them: counters before and after, and samples meanwhile, each in a child with a deadline.

Growth of a counter shows an event however short it was. NVIDIA's GPUs are asked by NVML, AMD's by sysfs.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from healthchecks.check import NodeFacts
from healthchecks.devices import amd, nvidia
from healthchecks.devices.readings import Survey
from healthchecks.probe import WORK_SHARE, Answer, run_beside, run_probes

# Of the check's deadline: for the counters, once before and once after, by library or by tool; and for the load between.
COUNTERS_SHARE, LOAD_SHARE = 0.08, 0.6
# Samples, at most, and the seconds between two, at least. Chosen: eight GPUs print 400 KB.
MOST_SAMPLES, LEAST_SECONDS = 60, 0.5
SAMPLER = "sampler"


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What all GPUs reported before, during and after a load of so many seconds."""

    before: Survey
    during: Survey
    after: Survey
    seconds: float


def run_watched(
    name: str, node: NodeFacts, asked: Sequence[Mapping[str, Any]]
) -> tuple[list[Answer], Watched | None]:
    """Run a probe as `run_probes` does, and watch the GPUs meanwhile; None where the node has none."""
    if not node.num_gpus:
        return run_probes(name, node, asked), None
    is_amd = node.gpu_vendor == "amd"
    before = _counters(node, is_amd=is_amd)
    began, limit = time.monotonic(), LOAD_SHARE * node.deadline_seconds
    command = _sampler(node, is_amd=is_amd)
    answers, endings = run_beside(name, node, asked, {SAMPLER: command}, deadline_seconds=limit)
    seconds = time.monotonic() - began
    during = Survey(source="samples", trouble="nothing loaded the GPUs")
    if SAMPLER in endings:
        parse = amd.parse_samples if is_amd else nvidia.parse
        during = parse(endings[SAMPLER], limit)
    # A driver that did not answer is not asked again: it would take the time that the verdict needs.
    after = before.trouble and Survey(source=before.source, trouble=before.trouble)
    after = after or _counters(node, is_amd=is_amd)
    return answers, Watched(before=before, during=during, after=after, seconds=seconds)


def _counters(node: NodeFacts, *, is_amd: bool) -> Survey:
    if is_amd:
        return amd.counters(node, share=COUNTERS_SHARE)
    return nvidia.survey(node, "counters", share=COUNTERS_SHARE)


def _sampler(node: NodeFacts, *, is_amd: bool) -> tuple[str, ...]:
    """Return the command that samples as long as the probe works."""
    seconds = WORK_SHARE * node.seconds
    window = max(LEAST_SECONDS, seconds / MOST_SAMPLES)
    num_samples = max(2, int(seconds / window))
    if is_amd:
        return amd.sampler(node, num_samples, window)
    return nvidia.sampler(num_samples, window)
