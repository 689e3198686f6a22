"""What a machine stands in: time, the store, and the gangs its ranks are part of."""

from __future__ import annotations

from typing import Any, Protocol

from runner.facts.ids import AttemptId
from runner.facts.messages import signals as s
from runner.facts.messages.assignments import Assignment, LaunchPlan, Task
from runner.facts.specs.cluster import ClusterSpec
from runner.simulate.virtual_time import Agenda


class NodeEnv(Protocol):
    """What a machine stands in."""

    agenda: Agenda
    cluster: ClusterSpec

    def store_answers(self) -> bool:
        """Whether the store is up."""
        ...

    def read_register(self, node: str) -> Assignment | None:
        """Read the node's assignment."""
        ...

    def read_tasks(self, node: str, after: int) -> list[tuple[int, Task]]:
        """Read the node's tasks past a number."""
        ...

    def post(self, fact: object) -> None:
        """Put a durable signal into the store."""
        ...

    def beat(self, beat: s.Heartbeat) -> None:
        """Put a heartbeat into the store."""
        ...

    def spawned(self, plan: LaunchPlan, epoch: int) -> None:
        """A node's share of a gang is up."""
        ...

    def rank_died(self, attempt: AttemptId) -> None:
        """A rank is gone: its peers notice soon."""
        ...

    def ask_gang(self, attempt: AttemptId, request_id: str, request: dict[str, Any]) -> bool:
        """Hand a request to a gang's ranks; False when they do not understand it."""
        ...

    def last_step(self, attempt: AttemptId) -> int | None:
        """Return the last step that the gang's ranks have reported."""
        ...

    def phase(self, attempt: AttemptId) -> str:
        """Return the phase its ranks say they are in; "" for ranks that say nothing."""
        ...

    def writes(self, attempt: AttemptId) -> tuple[int, float]:
        """Return how often rank 0 of ranks that say nothing has written to its output, and the seconds between two."""
        ...

    def start(self, attempt: AttemptId, ranks: tuple[int, ...]) -> dict[str, s.StartPhase]:
        """Return the slowest of these ranks in each phase of the start, once the gang steps."""
        ...

    def strike(self, fault: str, node: str, rank: int | None) -> None:
        """Break something, for real."""
        ...
