"""The session: one agent instance's signals to the store, and the store's assignments and tasks for it.

Signals carry a header (node, incarnation, sequence, instance id) and the signature of the cluster's token;
messages from the store are accepted with that signature only. One client serves any number of
sessions with two threads and one store handle.
"""

from __future__ import annotations

import collections
import secrets
from dataclasses import dataclass
from typing import Any, Protocol

from runner.agent.transport.inbox import Inbox
from runner.agent.transport.outbox import Outbox
from runner.agent.transport.spool import Spool
from runner.agent.transport.store_client import StoreClient
from runner.facts.messages.assignments import Assignment, Task
from runner.facts.messages.signals import Heartbeat, NodeJoined
from runner.signer import Signer

# Random bytes of an instance id; chosen: no two of 10,000 nodes' agents are alike in years.
INSTANCE_ID_BYTES = 8
# Tasks that wait while the register names another instance; the oldest makes room; chosen.
MAX_WAITING_TASKS = 64
# Longest delay between two joins, as a multiple of the shortest; chosen.
MAX_REJOIN_FACTOR = 12


def new_instance_id() -> str:
    """Return a random id for one instance of an agent."""
    return secrets.token_hex(INSTANCE_ID_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInstance:
    """The sender of a session's signals. `task_cursor`: number of the newest task that an earlier instance handled."""

    node: str
    incarnation: int
    instance_id: str
    task_cursor: int = 0


class Listener(Protocol):
    """Receives a session's events on the client's threads: it is expected to post, or to return quickly."""

    def on_assignment(self, assignment: Assignment) -> None:
        """The register holds this; it may be meant for another instance (`AgentSession.is_mine`)."""

    def on_task(self, task: Task, number: int) -> None:
        """A task came, at this number of the node's stream; none comes while the register names another instance."""

    def on_confirmed(self, request: int) -> None:
        """The register was read after `confirm()` returned this number, and its assignment was dispatched before."""

    def on_malformed(self, reason: str) -> None:
        """A message was refused; the first word of the reason is its class."""

    def on_acknowledged(self, facts: list[object]) -> None:
        """The store has these durably."""

    def on_displaced(self, instance_id: str) -> None:
        """The register named this instance, and names another one now: that one owns the node."""


class AgentSession:
    """One agent instance's signals and messages. It has no thread and no connection of its own.

    Its owner's thread alone emits. `rejoin_seconds` is the shortest delay between two joins; it
    doubles up to MAX_REJOIN_FACTOR.
    """

    def __init__(
        self,
        client: StoreClient,
        instance: AgentInstance,
        listener: Listener,
        *,
        signer: Signer,
        rejoin_seconds: float,
        spool: Spool | None = None,
    ) -> None:
        """Nothing is sent or read before `start`. Without a spool, unacknowledged signals are lost with the process."""
        self.instance = instance
        self._client = client
        self._listener = listener
        self._sequence = 0
        self._outbox = Outbox(spool, signer, listener.on_acknowledged, notify=client.notify)
        self._inbox = Inbox(
            instance.node,
            signer,
            instance.task_cursor,
            on_message=self._on_message,
            on_confirmed=listener.on_confirmed,
            on_malformed=listener.on_malformed,
        )
        # Newest version (0: none) and highest generation of the register that named this instance.
        self._own_version = self._own_generation = 0
        # Instances that the register named before it named this one.
        self._earlier_instances = set[str]()
        self._is_answered = False
        # While the register names another instance, tasks wait: they are for that one.
        self._is_others = False
        self._waiting_tasks: collections.deque[tuple[Task, int]] = collections.deque(
            maxlen=MAX_WAITING_TASKS
        )
        self._rejoin_seconds = rejoin_seconds
        self._max_rejoin_seconds = MAX_REJOIN_FACTOR * rejoin_seconds
        # Monotonic seconds; None before the first join.
        self._join_due: float | None = None

    # -- out

    def next_header(self) -> dict[str, Any]:
        """Return the next signal's source fields."""
        self._sequence += 1
        return {
            "node": self.instance.node,
            "incarnation": self.instance.incarnation,
            "sequence": self._sequence,
            "instance_id": self.instance.instance_id,
        }

    @property
    def waiting(self) -> list[object]:
        """Return the unacknowledged durable signals, oldest first: at the start, those of earlier instances."""
        return self._outbox.waiting

    def start(self) -> None:
        """Begin to send, the spooled signals of earlier instances first, and to receive."""
        self._client.add(self._inbox)
        self._client.notify(self._outbox)

    def emit(self, fact: object) -> None:
        """Send a durable signal; raises WireError when it cannot be encoded or is too large."""
        self._outbox.put(fact)

    def heartbeat(self, heartbeat: Heartbeat) -> bool:
        """Send a heartbeat, which is lost while the store is down; False: it is too large to be sent."""
        return self._outbox.put_heartbeat(heartbeat)

    def join(self, joined: NodeJoined, now: float) -> None:
        """Emit a join, the first or a repeated one. `now`: monotonic seconds."""
        self._join_due = now + self._rejoin_seconds
        self._rejoin_seconds = min(2 * self._rejoin_seconds, self._max_rejoin_seconds)
        self.emit(joined)

    def wants_join(self, now: float) -> bool:
        """Whether to join again: the store has the last join, and no assignment has answered it."""
        if self._is_answered or self._join_due is None or now < self._join_due:
            return False
        return not any(isinstance(fact, NodeJoined) for fact in self._outbox.waiting)

    def lost_since(self, now: float) -> float | None:
        """Return since when the store has accepted no signal (monotonic seconds); None while it does."""
        return self._outbox.lost_since(now)

    # -- in

    def is_mine(self, assignment: Assignment) -> bool:
        """Whether an assignment is meant for this instance; those of older supervisors name no instance."""
        return assignment.instance_id in ("", self.instance.instance_id)

    def confirm(self) -> int:
        """Have the register read again whatever its version; return the number that `on_confirmed` will carry."""
        return self._client.confirm(self._inbox)

    def _on_message(self, message: Assignment | Task, number: int) -> None:
        if isinstance(message, Task):
            if self._is_others:
                self._waiting_tasks.append((message, number))
            else:
                self._listener.on_task(message, number)
            return
        instance_id, generation = message.instance_id, message.generation
        if instance_id == self.instance.instance_id:
            self._own_version = number
            self._own_generation = max(self._own_generation, generation)
        elif instance_id and 0 < self._own_version < number:
            if generation < self._own_generation or instance_id in self._earlier_instances:
                # Signed once, and written again by a sender that cannot sign.
                self._listener.on_malformed(
                    f"replayed assignment {number}: it names agent {instance_id} at generation {generation}, "
                    "which is older than this agent's assignment"
                )
                return
            self._listener.on_displaced(instance_id)
            return
        elif instance_id and not self._own_version:
            self._earlier_instances.add(instance_id)
        self._is_others = not self.is_mine(message)
        self._listener.on_assignment(message)
        if not self._is_others:
            self._is_answered = True
            while self._waiting_tasks:
                self._listener.on_task(*self._waiting_tasks.popleft())

    # -- ending

    def unsubscribe(self) -> None:
        """Receive no more messages."""
        self._client.remove(self._inbox)

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until the store has every durable signal; False when that takes longer."""
        return self._outbox.flush(timeout_seconds)

    def close(self) -> None:
        """Send nothing more; unacknowledged signals stay in the spool."""
        self.unsubscribe()
        self._outbox.close()
