"""The environment of a simulated node: time, the store, and the gangs of its ranks."""

from __future__ import annotations

from typing import Any, Protocol

from runner.facts.ids import AttemptId
from runner.facts.messages import signals as s
from runner.facts.messages.assignments import Assignment, LaunchPlan, Task
from runner.facts.specs.cluster import ClusterSpec
from runner.simulate.virtual_time import Agenda


class NodeEnv(Protocol):
    """The environment of a simulated node."""

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

    def append_signal(self, fact: object) -> None:
        """Append a durable signal to the store."""
        ...

    def send_heartbeat(self, beat: s.Heartbeat) -> None:
        """Send a heartbeat."""
        ...

    def on_ranks_started(self, plan: LaunchPlan, epoch: int) -> None:
        """React to the ranks of a gang on one node having started."""
        ...

    def on_rank_died(self, attempt: AttemptId) -> None:
        """React to the death of a rank: its peers notice soon."""
        ...

    def request_gang(self, attempt: AttemptId, request_id: str, request: dict[str, Any]) -> bool:
        """Pass a request to a gang's ranks; False when they do not support it."""
        ...

    def last_step(self, attempt: AttemptId) -> int | None:
        """Return the last step that the gang's ranks have reported."""
        ...

    def phase(self, attempt: AttemptId) -> str:
        """Return the phase that its ranks report; "" without reports."""
        ...

    def writes(self, attempt: AttemptId) -> tuple[int, float]:
        """Return how many lines rank 0 of a gang without reports has written, and the seconds between two."""
        ...

    def start(self, attempt: AttemptId, ranks: tuple[int, ...]) -> dict[str, s.StartPhase]:
        """Return the slowest of these ranks in each phase of the start, once the gang steps."""
        ...

    def inject_fault(self, fault: str, node: str, rank: int | None) -> None:
        """Carry out a drill."""
        ...
