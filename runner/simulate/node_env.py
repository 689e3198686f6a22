"""The environment of a simulated node: time, the store, and the gangs of its ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from runner.facts.messages import signals as s
from runner.facts.messages.assignments import Assignment, LaunchPlan, Task
from runner.facts.specs.cluster import ClusterSpec
from runner.simulate.virtual_time import Agenda

if TYPE_CHECKING:
    from runner.simulate.gangs import SimGangs


class NodeEnv(Protocol):
    """The environment of a simulated node."""

    agenda: Agenda
    cluster: ClusterSpec
    gangs: SimGangs

    def store_answers(self) -> bool:
        """Whether the store is up."""

    def read_register(self, node: str) -> Assignment | None:
        """Read the node's assignment."""

    def read_tasks(self, node: str, after: int) -> list[tuple[int, Task]]:
        """Read the node's tasks past a number."""

    def append_signal(self, fact: object) -> None:
        """Append a durable signal to the store."""

    def send_heartbeat(self, heartbeat: s.Heartbeat) -> None:
        """Send a heartbeat."""

    def on_ranks_started(self, plan: LaunchPlan, generation: int) -> None:
        """React to the ranks of a gang on one node having started."""

    def inject_fault(self, fault: str, node: str, rank: int | None) -> None:
        """Carry out a drill."""
