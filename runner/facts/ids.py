"""Names of things. Ids made by the core are counters (`i17`, `a203`), so that a replay makes the same ones."""

from typing import Self


def is_same_agent(instance_id: str, other: str) -> bool:
    """Whether two instances of agents may be the same; an empty one is unknown and contradicts none."""
    return not instance_id or not other or instance_id == other


class AttemptId(str):
    """One launch of a run: `12.45.2` is run 12, 45th configuration, 2nd restart of it. Ordered as numbers.

    It is the text that messages and manifests hold, so that codecs need not know it, and is hashed and compared as fast.
    """

    __slots__ = ("configuration", "restart", "run")

    run: int
    configuration: int
    restart: int

    def __new__(cls, run: int, configuration: int, restart: int) -> Self:
        """Make the id of one launch."""
        made = super().__new__(cls, f"{run}.{configuration}.{restart}")
        made.run, made.configuration, made.restart = run, configuration, restart
        return made

    @property
    def numbers(self) -> tuple[int, int, int]:
        """Run, configuration and restart: what ids are ordered by."""
        return self.run, self.configuration, self.restart

    def __getnewargs__(self) -> tuple[int, int, int]:  # type: ignore[override]
        """Describe what a copy is made of."""
        return self.numbers

    def __repr__(self) -> str:
        return f"AttemptId({self.run}, {self.configuration}, {self.restart})"

    def __lt__(self, other: str) -> bool:
        return self.numbers < other.numbers if isinstance(other, AttemptId) else NotImplemented

    def __le__(self, other: str) -> bool:
        return self.numbers <= other.numbers if isinstance(other, AttemptId) else NotImplemented

    def __gt__(self, other: str) -> bool:
        return self.numbers > other.numbers if isinstance(other, AttemptId) else NotImplemented

    def __ge__(self, other: str) -> bool:
        return self.numbers >= other.numbers if isinstance(other, AttemptId) else NotImplemented

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `12.45.2`; raises ValueError that quotes the text."""
        parts = text.split(".")
        if len(parts) != 3 or not all(part.isdecimal() for part in parts):
            form = "12.45.2 (run.configuration.restart)"
            raise ValueError(f"{text!r} is no attempt id; one looks like {form}")
        return cls(*map(int, parts))

    def restarted(self) -> "AttemptId":
        """Name the next launch with the same settings and layout."""
        return AttemptId(self.run, self.configuration, self.restart + 1)

    def reconfigured(self) -> "AttemptId":
        """Name the next launch after settings in effect or the layout changed."""
        return AttemptId(self.run, self.configuration + 1, 0)
