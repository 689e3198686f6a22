"""The last outcome of each check of a node, kept in groups: few nodes have more than three, however many checks there are."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

from runner.facts.messages.records_checks import OutcomeGroup

Outcome = Literal["PASS", "FAIL", "UNKNOWN"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
# Of one node, and of a name; chosen: an answer has at most 32 checks.
MAX_CHECKS_KEPT = 64
MAX_NAME = 60


def merged(
    groups: list[OutcomeGroup], detail: Mapping[str, Any], *, at: float, level: str
) -> list[OutcomeGroup]:
    """Return the groups after an answer with this detail: what it names leaves the older groups. Malformed parts are left out."""
    found = _outcomes(detail.get("checks"))
    kept = [_without(group, found) for group in groups]
    for outcome in OUTCOMES:
        names = tuple(name for name, each in found.items() if each == outcome)
        kept.append(OutcomeGroup(outcome=outcome, at=at, level=level, checks=names))
    return _newest([group for group in kept if group.checks])


def _outcomes(verdicts: object) -> dict[str, Outcome]:
    """Return check -> its outcome, of what an agent sent."""
    found: dict[str, Outcome] = {}
    for verdict in verdicts if isinstance(verdicts, list | tuple) else ():
        name = verdict.get("check") if isinstance(verdict, Mapping) else None
        if isinstance(name, str) and verdict.get("outcome") in OUTCOMES:
            found[name[:MAX_NAME]] = verdict["outcome"]
    return dict(list(found.items())[:MAX_CHECKS_KEPT])


def _without(group: OutcomeGroup, names: Mapping[str, Outcome]) -> OutcomeGroup:
    if not any(name in names for name in group.checks):
        return group
    left = tuple(name for name in group.checks if name not in names)
    return OutcomeGroup(outcome=group.outcome, at=group.at, level=group.level, checks=left)


def _newest(groups: list[OutcomeGroup]) -> list[OutcomeGroup]:
    """Return the newest groups that have `MAX_CHECKS_KEPT` checks in all."""
    kept: list[OutcomeGroup] = []
    num_checks = 0
    for group in reversed(groups):
        num_checks += len(group.checks)
        if num_checks > MAX_CHECKS_KEPT:
            break
        kept.append(group)
    return kept[::-1]
