"""Names of things. Ids made by the core are counters (`i17`, `a203`), so that a replay makes the same ones."""

from __future__ import annotations

from operator import itemgetter
from typing import Self, cast


def is_same_agent(life: str, other: str) -> bool:
    """Whether two instances of agents may be the same; an empty one is unknown and contradicts none."""
    return not life or not other or life == other


class AttemptId(tuple[int, int, int]):
    """One launch of a run: `12.45.2` is run 12, 45th configuration, 2nd restart of it. Compared as numbers.

    A tuple, because ids are compared and looked up for every heartbeat, and every node of a gang at once. Not a NamedTuple:
    messages hold it as text (`wire`).
    """

    __slots__ = ()

    def __new__(cls, run: int, configuration: int, restart: int) -> Self:
        """Make the id of one launch."""
        return tuple.__new__(cls, (run, configuration, restart))

    run = cast(int, property(itemgetter(0)))
    configuration = cast(int, property(itemgetter(1)))
    restart = cast(int, property(itemgetter(2)))

    def __getnewargs__(self) -> tuple[int, int, int]:
        """Say what a copy is made of."""
        return self.run, self.configuration, self.restart

    def __repr__(self) -> str:
        return f"AttemptId({self.run}, {self.configuration}, {self.restart})"

    def __str__(self) -> str:
        return f"{self.run}.{self.configuration}.{self.restart}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `12.45.2`; raises ValueError that quotes the text."""
        parts = text.split(".")
        if len(parts) != 3 or not all(part.isdecimal() for part in parts):
            raise ValueError(
                f"{text!r} is no attempt id; one looks like 12.45.2 (run.configuration.restart)"
            )
        return cls(*(int(part) for part in parts))

    def restarted(self) -> AttemptId:
        """Name the next launch with the same settings and layout."""
        return AttemptId(self.run, self.configuration, self.restart + 1)

    def reconfigured(self) -> AttemptId:
        """Name the next launch after settings in effect or the layout changed."""
        return AttemptId(self.run, self.configuration + 1, 0)
