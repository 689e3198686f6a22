"""pair_copies: copies from each GPU to each other one arrive whole, and as fast as between others that are linked alike.

Pair by pair and in both directions, so that a slow link has a name, which collectives hide. Pairs are compared with the others of
the node whose link is of the same type (by nvidia-smi or rocm-smi; without a tool, by whether torch reaches the peer's memory); the
median and the slowest of each type are there to be compared with peers. With less than two GPUs the memory of the cores is copied,
by the same code. While other programs keep the processors busy, rates are unknown. The probe has the same name.
"""

import os
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from healthchecks.check import Evidence, Judge, NodeFacts, Outcome, Verdict
from healthchecks.declaration import CHOSEN, DEFINED, HealthCheck, at_least, at_most
from healthchecks.devices.topology import Topology, read_topology
from healthchecks.probe import CPU, judge_answers, run_probes
from healthchecks.rates.busyness import BUSY, percent_between, read_busyness

NAME = "pair_copies"
# Of a copy. Chosen: 56 pairs of eight GPUs take seconds (DCGM copies 256 MiB); on a CPU more than a core's caches.
GPU_BYTES, CPU_BYTES = 128 << 20, 32 << 20
# Cores of a CPU whose memory is copied, at most: chosen, twelve pairs.
MOST_CORES = 4
LEAST_GPUS = 2
# In the names of packages of which each die is a device for programs.
TWIN_DIES = "MI250"
Ends = tuple[int, int]
NODES = Path("/sys/devices/system/node")


def check(node: NodeFacts, judge: Judge) -> Verdict:
    """Copy between all GPUs, or between the memory of some cores."""
    has_gpus = node.num_gpus >= LEAST_GPUS
    asked = ask_gpus(node.num_gpus) if has_gpus else ask_cores()
    topology = read_topology(node) if has_gpus else links_of_cores(asked["cores"])
    before = read_busyness()
    answers = run_probes(NAME, node, [asked])
    percent, measure = percent_between(before, read_busyness())
    busy = judge_busyness(percent, measure, judge)
    evidence = judge_answers(
        zip(["all pairs"], answers, strict=True),
        lambda numbers: judge_numbers(numbers, asked, topology, busy=busy, judge=judge),
        lambda subject, why: judge("pair_copies.wrong_words", None, subject=subject, note=why),
    )
    return Verdict(check=NAME, evidence=(busy, *evidence))


def judge_busyness(percent: float, measure: str, judge: Judge) -> Evidence:
    """Judge how much of the processors others took: beyond the limit it is unknown, and so are rates."""
    busy = judge("pair_copies.foreign_cpu", percent, note=measure)
    if busy.limit is not None and percent > busy.limit:
        note = f"{BUSY}: {measure}, {percent:.3g} percent"
        return judge("pair_copies.foreign_cpu", None, note=note)
    return busy


def ask_gpus(num_gpus: int) -> dict[str, Any]:
    """Ask for all GPUs, by torch's names."""
    return {"devices": [f"cuda:{i}" for i in range(num_gpus)], "cores": [], "bytes": GPU_BYTES}


def ask_cores() -> dict[str, Any]:
    """Ask for cores that lie as far apart as may be; with one core alone, for two buffers of it."""
    allowed = sorted(os.sched_getaffinity(0))
    count = max(LEAST_GPUS, min(MOST_CORES, len(allowed)))
    cores = [allowed[number * len(allowed) // count] for number in range(count)]
    return {"devices": [CPU] * count, "cores": cores, "bytes": CPU_BYTES}


def links_of_cores(cores: Sequence[int], nodes: Path = NODES) -> Topology:
    """Return whether two cores have the same memory next to them; all have where the kernel shows no nodes."""
    own: dict[int, str] = {}
    for folder in nodes.glob("node[0-9]*"):
        for core in cores:
            if (folder / f"cpu{core}").exists():
                own[core] = folder.name
    links = {
        (i, j): "same memory" if own.get(one) == own.get(other) else "other memory"
        for i, one in enumerate(cores)
        for j, other in enumerate(cores)
        if i != j
    }
    return Topology(links=links)


def judge_numbers(
    numbers: Mapping[str, Any],
    asked: Mapping[str, Any],
    topology: Topology,
    *,
    busy: Evidence,
    judge: Judge,
) -> Iterator[Evidence]:
    """Judge all pairs, each beside those that are linked alike."""
    devices = _names(asked)
    groups: dict[str, dict[Ends, float]] = defaultdict(dict)
    wrong: dict[Ends, float] = {}
    for pair in numbers["pairs"]:
        ends = (int(pair["source"]), int(pair["target"]))
        wrong[ends] = float(pair["wrong_words"])
        by_torch = "peer" if pair["peer"] else "through the host"
        kind = topology.links.get(ends, by_torch)
        groups[kind][ends] = statistics.median(float(rate) for rate in pair["rates"])
    yield from _wrong_words(wrong, devices, judge)
    if topology.trouble:
        note = f"{topology.trouble}; pairs are grouped by what torch reports"
        yield Evidence(name="pair_copies.link_types", value=None, note=note)
    why = BUSY if busy.value is None else ""
    # Dies of such packages have one, two or four links to each other: only the way back has as many for certain.
    is_uneven = TWIN_DIES in str(numbers["model"])
    for kind, rates in sorted(groups.items()):
        yield from _for_peers(kind, rates, devices, why=why)
        alike = {
            ends: [rate, rates.get(ends[::-1], rate)] if is_uneven else [*rates.values()]
            for ends, rate in rates.items()
        }
        if len(rates) > 1:
            yield from _ratios(kind, rates, alike, devices, why=why, judge=judge)


def _wrong_words(
    wrong: Mapping[Ends, float], devices: Sequence[str], judge: Judge
) -> Iterator[Evidence]:
    """Name pairs with wrong words, and those that are missing; of the others the number: eight GPUs have 56."""
    name = "pair_copies.wrong_words"
    num_sound = sum(count == 0 for count in wrong.values())
    if num_sound:
        yield judge(name, 0, subject=f"{num_sound} pairs")
    for i, one in enumerate(devices):
        for j, other in enumerate(devices):
            count = wrong.get((i, j))
            if i != j and count is None:
                yield judge(name, None, subject=f"{one} to {other}", note="not copied")
            elif i != j and count:
                yield judge(name, count, subject=f"{one} to {other}")


def _for_peers(
    kind: str, rates: Mapping[Ends, float], devices: Sequence[str], *, why: str
) -> Iterator[Evidence]:
    """Yield the median and the slowest pair of one type of link."""
    middle = statistics.median_high(rates.values())
    slowest = min(rates, key=lambda ends: rates[ends])
    named = f"{devices[slowest[0]]} to {devices[slowest[1]]}"
    for name, per_second, note in (
        ("median", middle, f"{len(rates)} pairs"),
        ("slowest", rates[slowest], named),
    ):
        yield Evidence(
            name="pair_copies.gb_per_second",
            value=None if why else per_second / 1e9,
            unit="GB/s",
            subject=f"{kind}, {name}",
            note=why or note,
            better="higher",
        )


def _ratios(
    kind: str,
    rates: Mapping[Ends, float],
    alike: Mapping[Ends, Sequence[float]],
    devices: Sequence[str],
    *,
    why: str,
    judge: Judge,
) -> Iterator[Evidence]:
    """Judge the pairs of one type of link, each beside those that are alike; the lowest and those that fail are named."""
    # Of two, the faster one is what the other should be.
    references = {ends: statistics.median_high(others) for ends, others in alike.items()}
    lowest = min(rates, key=lambda ends: rates[ends] / references[ends])
    for ends, rate in rates.items():
        note = why or f"{rate / 1e9:,.4g} of {references[ends] / 1e9:,.4g} GB/s, {kind}"
        subject = f"{devices[ends[0]]} to {devices[ends[1]]}"
        ratio = None if why else rate / references[ends]
        evidence = judge("pair_copies.rate_ratio", ratio, subject=subject, note=note)
        if ends == lowest or evidence.outcome is Outcome.FAIL:
            yield evidence


def _names(asked: Mapping[str, Any]) -> list[str]:
    if not asked["cores"]:
        return list(asked["devices"])
    return [f"core {core} ({number})" for number, core in enumerate(asked["cores"])]


def least_ratio(node: NodeFacts) -> tuple[float, str]:
    """Return what a pair must reach of the others: cores of one machine differ more than links of one type."""
    return (0.8 if node.num_gpus >= LEAST_GPUS else 0.5), CHOSEN


CHECK = HealthCheck(
    name=NAME,
    position=205,
    run=check,
    needs=("num_gpus", "gpu_vendor", "python"),
    seconds={"quick": 4.0, "standard": 5.0, "deep": 60.0},
    limits={
        "pair_copies.foreign_cpu": at_most(20, "percent", CHOSEN, most=100),
        "pair_copies.wrong_words": at_most(0, "words", DEFINED, most=0),
        "pair_copies.rate_ratio": replace(
            at_least(0.5, "ratio", CHOSEN, least=0.001, most=1), sizing=least_ratio
        ),
    },
)
