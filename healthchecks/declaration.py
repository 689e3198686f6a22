"""What a check declares about itself: its limits, what it needs, and whether a node must pass it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from healthchecks.check import Judge, NodeFacts, Verdict

CHOSEN = "chosen, not measured"
DEFINED = "by definition"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A limit: value, unit, and the source of the number. `rule` says on which side of it a healthy value lies.

    A limit that every value holds, or none, is a dead rule: overrides must lie between `least` and `most`.
    """

    rule: Literal["at least", "at most"]
    value: float
    unit: str
    source: str
    least: float
    most: float


def at_least(value: float, unit: str, source: str, *, most: float, least: float = 1) -> Limit:
    """Return the limit that healthy values reach."""
    return Limit(rule="at least", value=value, unit=unit, source=source, least=least, most=most)


def at_most(value: float, unit: str, source: str, *, most: float, least: float = 0) -> Limit:
    """Return the limit that healthy values do not exceed."""
    return Limit(rule="at most", value=value, unit=unit, source=source, least=least, most=most)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """One check. `name` is its module's name, and the first part of the names of its limits.

    `position`: checks run in the order of these numbers, cheap ones first. `needs`: the fields of NodeFacts that it reads; it
    gets no others. `is_required`: a node that has not passed it is not healthy; a FAIL of any check counts.
    """

    name: str
    position: int
    run: Callable[[NodeFacts, Judge], Verdict]
    limits: Mapping[str, Limit]
    needs: tuple[str, ...] = ()
    is_required: bool = True
