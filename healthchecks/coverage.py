"""Which checks a node must pass, and the overall outcome of all verdicts."""

from collections.abc import Sequence
from typing import Any

from healthchecks.check import NodeFacts, Outcome, Verdict
from healthchecks.declaration import GPUS, NETWORK, HealthCheck
from healthchecks.hardware_class import hardware_class
from healthchecks.levels import seconds_at
from healthchecks.limits import nearest
from healthchecks.registry import all_checks
from runner.errors import UserError

# What ranks depend on and no check has looked at until one that covers it has a verdict.
AREAS = (GPUS, NETWORK)


def checks_of(node: NodeFacts) -> tuple[str, ...]:
    """Return the names of the checks that run on a node at its level."""
    return tuple(
        name
        for name, check in all_checks().items()
        if seconds_at(check.seconds, node.level) is not None and suits(check, node)
    )


def suits(check: HealthCheck, node: NodeFacts) -> bool:
    """Whether a check is about what a node has."""
    has_gpus = bool(node.num_gpus) or not check.needs_gpu
    # Where nothing says whose the GPUs are, the check of the usual vendor reports why it cannot see them.
    return has_gpus and check.gpu_vendor in ("", node.gpu_vendor or "nvidia")


def required_checks(node: NodeFacts) -> tuple[str, ...]:
    """Return the names of those that a node must pass at its level before it is called healthy."""
    checks = all_checks()
    return tuple(name for name in checks_of(node) if checks[name].is_required)


def pick(
    names: Sequence[str], node: NodeFacts, *, also: Sequence[str] = ()
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return which checks to run and which of these are required: those that are named, or else those of the level and `also`.

    Raises UserError for an unknown name.
    """
    checks = all_checks()
    for name in (*names, *also):
        if name not in checks:
            raise UserError(f"no check {name!r}; {nearest(name, checks)}")
    run = (*(names or checks_of(node)), *also)
    required = (*(names or required_checks(node)), *also)
    return tuple(name for name in checks if name in run), tuple(
        name for name in checks if name in required
    )


def overall(
    verdicts: Sequence[Verdict], *, required: Sequence[str], node: NodeFacts
) -> dict[str, Any]:
    """Return the overall result as plain values: FAIL if a check failed, PASS if every required one passed, else UNKNOWN.

    A PASS proves nothing about required checks that were not requested (`left_out`), nor about what no check has looked at
    (`not_covered`).
    """
    checks = all_checks()
    covered = {
        area
        for verdict in verdicts
        if verdict.outcome is not Outcome.UNKNOWN
        for area in checks[verdict.check].covers
    }
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
        "left_out": [name for name in required_checks(node) if name not in required],
        "not_covered": [area for area in AREAS if area not in covered],
        "level": node.level,
        "hardware_class": hardware_class(),
    }
