"""Which checks a node must pass, and the overall outcome of all verdicts."""

from collections.abc import Iterable, Sequence
from typing import Any

from healthchecks.check import Outcome, Verdict
from healthchecks.limits import nearest
from healthchecks.registry import all_checks
from runner.errors import UserError

# What ranks depend on and no check looks at; a check that does removes its words here.
NOT_COVERED = ("GPUs and other accelerators", "the network between nodes")


def required_checks() -> tuple[str, ...]:
    """Return the names of those that a node must pass before it is called healthy."""
    return tuple(name for name, check in all_checks().items() if check.is_required)


def pick(names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return which checks to run and which of these are required; named ones are. Raises UserError for an unknown name."""
    checks = all_checks()
    for name in names:
        if name not in checks:
            raise UserError(f"no check {name!r}; {nearest(name, checks)}")
    if not names:
        return tuple(checks), required_checks()
    picked = tuple(name for name in checks if name in names)
    return picked, picked


def overall(verdicts: Iterable[Verdict], *, required: Sequence[str]) -> dict[str, Any]:
    """Return the overall result as plain values: FAIL if a check failed, PASS if every required one passed, else UNKNOWN.

    A PASS proves nothing about required checks that were not requested (`left_out`), nor about what no check looks at
    (`not_covered`).
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
        "left_out": [name for name in required_checks() if name not in required],
        "not_covered": list(NOT_COVERED),
    }
