"""What the check that runs tools knows of each."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from healthchecks.check import Evidence, Judge, NodeFacts
from healthchecks.levels import Level


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of a tool: what of the node it tests, and what its judge needs to know of that."""

    subject: str
    command: tuple[str, ...]
    # Of a link: what it can carry, in Gbit/s.
    rate: float | None = None


class HalfAnswer(ValueError):
    """The output lacks what it must have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool. `program`: its name on PATH; `level`: the lowest at which it runs; `limit`: the name of the limit it is judged by.

    `calls` gets the seconds that each call may work. `judge` reads an output and raises HalfAnswer.
    """

    program: str
    level: Level
    limit: str
    calls: Callable[[NodeFacts, float], list[Call]]
    judge: Callable[[str, Call, Judge], Iterator[Evidence]]
