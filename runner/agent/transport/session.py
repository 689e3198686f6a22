"""The session: one agent instance's signals to the store, and the store's assignments and tasks for it.

Signals carry a header (node, incarnation, sequence, instance id) and the signature of the cluster's token; messages from the
store are accepted with that signature only. One client serves any number of sessions with two threads and one store handle.
"""

import collections
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from msgspec.structs import replace

from runner.agent.transport.inbox import Inbox, Message
from runner.agent.transport.outbox import Outbox, Spool
from runner.agent.transport.store_client import StoreClient
from runner.facts.messages.assignments import Assignment, Task
from runner.facts.messages.requests import Answer
from runner.facts.messages.signals import NodeJoined
from runner.facts.store_names import answer_register
from runner.facts.wording import visible
from runner.signer import Signer

log = logging.getLogger("stoker.agent")

# Chosen, not measured: no two of 10,000 nodes' agents are alike in years.
INSTANCE_ID_BYTES = 8
# Chosen, not measured. The oldest task makes room.
MAX_WAITING_TASKS = 64
MAX_REJOIN_FACTOR = 12


def new_instance_id() -> str:
    """Return a random id for one instance of an agent."""
    return secrets.token_hex(INSTANCE_ID_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalEmitter:
    """`next_header` returns a signal's source fields, `emit` sends a durable signal, `heartbeat` sends a heartbeat now."""

    next_header: Callable[[], Mapping[str, Any]]
    emit: Callable[[object], None]
    heartbeat: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInstance:
    """The sender of a session's signals. `task_cursor`: number of the newest task that an earlier instance handled."""

    node: str
    incarnation: int
    instance_id: str
    task_cursor: int = 0


class Listener(Protocol):
    """Receives a session's events."""

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


@dataclass(eq=False)
class AgentSession:
    """One agent instance's signals, which go through its `outbox`, and messages. It has no thread and no connection.

    Its owner's thread alone emits; nothing is sent or read before `start`. Without a spool,
    unacknowledged signals are lost with the process. `rejoin_seconds` is the shortest delay between
    two joins; it doubles up to MAX_REJOIN_FACTOR. `post` has the owner's thread make a call to the
    listener; without it the client's threads call, and the listener is expected to return quickly.
    """

    client: StoreClient
    instance: AgentInstance
    listener: Listener
    signer: Signer
    rejoin_seconds: float
    spool: Spool | None = None
    post: Callable[[Callable[[], None]], None] = lambda call: call()

    def __post_init__(self) -> None:
        self._sequence = 0
        on_acknowledged = partial(self._deliver, self.listener.on_acknowledged)
        self.outbox = Outbox(self.spool, self.signer, on_acknowledged, notify=self.client.notify)
        self._inbox = Inbox(
            self.instance.node,
            answer_register(self.instance.instance_id),
            self.signer,
            self.instance.task_cursor,
            on_message=self._on_message,
            on_confirmed=partial(self._deliver, self.listener.on_confirmed),
            on_malformed=partial(self._deliver, self.listener.on_malformed),
        )
        # Newest version (0: none) and highest generation of the register that named this instance.
        self._own_version = self._own_generation = 0
        self._earlier_instances = set[str]()
        self._is_answered = False
        # While the register names another instance, tasks wait: they are for that one.
        self._is_others = False
        self._waiting_tasks = collections.deque[tuple[Task, int]](maxlen=MAX_WAITING_TASKS)
        self._next_rejoin_seconds = self.rejoin_seconds
        self._join_due: float | None = None

    def next_header(self) -> dict[str, Any]:
        """Return the next signal's source fields."""
        self._sequence += 1
        return {
            "node": self.instance.node,
            "incarnation": self.instance.incarnation,
            "sequence": self._sequence,
            "instance_id": self.instance.instance_id,
        }

    def start(self) -> None:
        """Begin to send, the spooled signals of earlier instances first, and to receive."""
        self.client.add(self._inbox)
        self.client.notify(self.outbox)

    def join(self, joined: NodeJoined, now: float) -> None:
        """Emit a join, the first or a repeated one. `now`: monotonic seconds."""
        self._join_due = now + self._next_rejoin_seconds
        longest_seconds = MAX_REJOIN_FACTOR * self.rejoin_seconds
        self._next_rejoin_seconds = min(2 * self._next_rejoin_seconds, longest_seconds)
        self.outbox.put(replace(joined, sent_at=time.time()))

    def wants_join(self, now: float) -> bool:
        """Whether to join again: the store has the last join, and no assignment has answered it."""
        if self._is_answered or self._join_due is None or now < self._join_due:
            return False
        return not any(isinstance(fact, NodeJoined) for fact in self.outbox.waiting)

    def is_mine(self, assignment: Assignment) -> bool:
        """Whether an assignment is meant for this instance; those of older supervisors name no instance."""
        return assignment.instance_id in ("", self.instance.instance_id)

    def confirm(self) -> int:
        """Have the register read again whatever its version; return the number that `on_confirmed` will carry."""
        self._inbox.num_requests += 1
        self.client.wake()
        return self._inbox.num_requests

    def _deliver(self, callback: Callable[..., None], *args: Any) -> None:
        self.post(partial(callback, *args))

    def _on_message(self, message: Message, number: int) -> None:
        if isinstance(message, Answer):
            log.warning("this agent may not join: %s; it asks again", visible(message.message))
            return
        if isinstance(message, Task):
            if self._is_others:
                self._waiting_tasks.append((message, number))
            else:
                self._deliver(self.listener.on_task, message, number)
            return
        instance_id, generation = message.instance_id, message.generation
        if instance_id == self.instance.instance_id:
            self._own_version = number
            self._own_generation = max(self._own_generation, generation)
        elif instance_id and 0 < self._own_version < number:
            if generation < self._own_generation or instance_id in self._earlier_instances:
                # Signed once, and written again by a sender that cannot sign.
                reason = (
                    f"replayed assignment {number}: it names agent {instance_id} at generation {generation}, "
                    "which is older than this agent's assignment"
                )
                self._deliver(self.listener.on_malformed, reason)
            else:
                self._deliver(self.listener.on_displaced, instance_id)
            return
        elif instance_id and not self._own_version:
            self._earlier_instances.add(instance_id)
        self._is_others = not self.is_mine(message)
        self._deliver(self.listener.on_assignment, message)
        if not self._is_others:
            self._is_answered, self._inbox.answer = True, ""
            while self._waiting_tasks:
                self._deliver(self.listener.on_task, *self._waiting_tasks.popleft())

    def unsubscribe(self) -> None:
        """Receive no more messages."""
        self.client.remove(self._inbox)

    def close(self) -> None:
        """Send nothing more; unacknowledged signals stay in the spool."""
        self.unsubscribe()
        self.outbox.close()
