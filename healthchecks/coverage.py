"""Which checks there are, which of them a node must pass, and what all verdicts together say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Any

from healthchecks.check import Check, Outcome, Verdict
from healthchecks.thresholds import nearest
from runner.errors import UserError

# Name of each check -> its module, in the order in which they run. A check is the function `check` of its module; only the
# child that runs it imports it, so that one that cannot be imported is UNKNOWN by itself.
CHECKS: Mapping[str, str] = {
    "clock": "healthchecks.clock",
    "processes": "healthchecks.processes",
    "disk_space": "healthchecks.disk_space",
    "shared_memory": "healthchecks.shared_memory",
    "memory": "healthchecks.memory",
    "loopback": "healthchecks.loopback",
    "kernel_log": "healthchecks.kernel_log",
}

# The least that has to pass before a node is called healthy. The kernel log is not among them, since most users may not
# read it: unknown, it is told and costs nothing; what it does say counts.
REQUIRED = ("clock", "processes", "disk_space", "shared_memory", "memory", "loopback")


def load(name: str) -> Check:
    """Import the check called `name`."""
    check: Check = import_module(CHECKS[name]).check
    return check


def pick(names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return which checks to run and which of these are required; named ones are. Raises UserError for an unknown name."""
    for name in names:
        if name not in CHECKS:
            raise UserError(f"no check {name!r}; {nearest(name, CHECKS)}")
    if not names:
        return tuple(CHECKS), REQUIRED
    picked = tuple(name for name in CHECKS if name in names)
    return picked, picked


def overall(verdicts: Iterable[Verdict], *, required: Sequence[str]) -> dict[str, Any]:
    """Sum up: FAIL if any check failed, PASS if every required one ran and passed, else UNKNOWN. As what json prints.

    `left_out` names checks of the usual minimum that were not asked for: a PASS says nothing about them.
    """
    outcomes = {verdict.check: verdict.outcome for verdict in verdicts}
    missing = [name for name in required if outcomes.get(name) is not Outcome.PASS]
    if Outcome.FAIL in outcomes.values():
        outcome = Outcome.FAIL
    else:
        outcome = Outcome.UNKNOWN if missing or not required else Outcome.PASS
    return {
        "kind": "overall",
        "outcome": str(outcome),
        "required": list(required),
        "passed": [name for name, each in outcomes.items() if each is Outcome.PASS],
        "failed": [name for name, each in outcomes.items() if each is Outcome.FAIL],
        "unknown": [name for name, each in outcomes.items() if each is Outcome.UNKNOWN],
        "not_run": [name for name in required if name not in outcomes],
        "left_out": [name for name in REQUIRED if name not in required],
    }
