"""Isolations in the state: nodes that are measured to find the bad one."""

from msgspec import field

from runner.facts.messages.isolation import AloneResult, EndResult, Judged, Measure, PairResult
from runner.facts.wire import MutableValue


class Isolation(MutableValue):
    """Nodes that are measured, alone and in pairs. `begun_at` None: ranks are still to be gone from them.

    `participants`: node -> its agent's incarnation when the isolation began.
    """

    isolation: str
    nodes: list[str]
    reason: str = ""
    run: int | None = None
    incident: str | None = None
    request: str | None = None
    python: str = ""
    wanted_at: float = 0.0
    begun_at: float | None = None
    participants: dict[str, int] = field(default_factory=dict)
    known_good: list[str] = field(default_factory=list)
    # As the first round found them.
    hardware_classes: dict[str, str] = field(default_factory=dict)
    # The whole newest round.
    asked: Measure | None = None
    alone: list[AloneResult] = field(default_factory=list)
    pairs: list[PairResult] = field(default_factory=list)
    # Of the newest round: the first end of a pair to answer.
    ends: list[EndResult] = field(default_factory=list)
    # Why the newest of the measurements without a rate had none.
    trouble: str = ""
    judged: Judged | None = None

    def first_end(self, nodes: tuple[str, str]) -> EndResult | None:
        """Return what the other end of a pair has answered already."""
        return next((end for end in self.ends if end.nodes == nodes), None)
