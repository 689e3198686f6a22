"""Ways to run probes: in this process, which has torch, or as a check does, in a child with an interpreter of its own."""

import json
import runpy
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

from healthchecks.check import Evidence, Judge, Verdict
from healthchecks.limits import judge_of
from healthchecks.probe import START
from healthchecks.registry import load
from tests.healthchecks.check_harness import seen, verdict_of

FAULTS_VARIABLE = "STOKER_PROBE_FAULTS"

Fault = dict[str, Any]


def numbers_of(
    name: str, asked: dict[str, Any], *, seconds: float, faults: Sequence[Fault] = ()
) -> dict[str, Any]:
    """Run a probe in this process; return its answer as it arrives after JSON."""
    import torch

    threads, mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    probe = runpy.run_path(str(START.with_name(f"{name}.py")))["probe"]
    asked = {"level": "quick", **asked, "until": time.monotonic() + seconds}
    try:
        answer = probe(asked, [dict(each) for each in faults])
    finally:
        torch.set_num_threads(threads)
        torch.set_deterministic_debug_mode(mode)
    arrived: dict[str, Any] = json.loads(json.dumps(answer))
    return arrived


def judged(name: str, rules: Callable[[Judge], Iterable[Evidence]]) -> Verdict:
    """Return what the rules of a check make of numbers."""
    evidence = tuple(rules(judge_of(load(name).limits, {})))
    return seen(Verdict(check=name, evidence=evidence))


def plant(monkeypatch: pytest.MonkeyPatch, *faults: Fault) -> None:
    """Have probes that start from now on plant these faults."""
    monkeypatch.setenv(FAULTS_VARIABLE, json.dumps(faults))


def real_verdict(name: str, *, seconds: float = 3.0, **facts: Any) -> Verdict:
    """Run a check whose probe runs in this interpreter, which has torch."""
    limits = facts.pop("limits", {})
    facts = {"python": sys.executable, "level": "quick", "seconds": seconds, **facts}
    return verdict_of(name, limits, **facts)
