"""The session: all that an agent says to the store and hears from it, in one life of it.

What it says is stamped (node, incarnation, sequence, life) and signed with the cluster's token; what it hears is believed only if
it is signed with it too. A session has no thread and no connection of its own: a courier carries the words of as many sessions as
share it, with two threads and one handle on the store. An agent has a courier to itself, a benchmark hundreds of sessions on one.
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

# of randomness in the name of a life; chosen: two alike among 10,000 nodes in years are not to be seen
LIFE_BYTES = 8
# tasks that wait while the register names another life; the oldest makes room; chosen
MAX_HELD = 64
# of the silence limit: between two tries to join; chosen
LONGEST_REJOIN_RATIO = 12


def new_life() -> str:
    """Return a name for one life of an agent that no other has."""
    return secrets.token_hex(LIFE_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Who speaks. `task_cursor`: number of the newest task that an earlier life took."""

    node: str
    incarnation: int
    life: str
    task_cursor: int = 0


class Listener(Protocol):
    """Who is told what a session hears, on the courier's threads: it is expected to post, or to be quick."""

    def on_assignment(self, assignment: Assignment) -> None:
        """The register holds this; it may be meant for another life (`Session.is_mine`)."""

    def on_task(self, task: Task, number: int) -> None:
        """A task came, at this number of the node's stream; not before the register names no other life than ours."""

    def on_confirmed(self, asked: int) -> None:
        """The register was read anew after the `asked`-th `confirm()`, and what it holds was told before."""

    def on_junk(self, reason: str) -> None:
        """Something that cannot be obeyed came; its first word says of which kind."""

    def on_acknowledged(self, facts: list[object]) -> None:
        """The store has these for good."""

    def on_displaced(self, life: str) -> None:
        """The register named us, and now names another life: somebody else is this node."""


class AgentSession:
    """One life's words. Its owner's thread alone says things; `rejoin_seconds` is the least time between two tries to join.

    Threads of its own: none. Connections of its own: none. See the module.
    """

    def __init__(
        self,
        courier: StoreClient,
        source: Source,
        listener: Listener,
        *,
        signer: Signer,
        rejoin_seconds: float,
        spool: Spool | None = None,
    ) -> None:
        """Nothing is said or read before `start`. Without a spool, what the store has not got dies with the process."""
        self.source = source
        self._courier = courier
        self._listener = listener
        self._sequence = 0
        self._outbox = Outbox(spool, signer, listener.on_acknowledged, ring=courier.ring)
        self._inbox = Inbox(
            source.node,
            signer,
            source.task_cursor,
            on_message=self._heard,
            on_confirmed=listener.on_confirmed,
            on_junk=listener.on_junk,
        )
        # version of the register that named us last; 0: none has
        self._named_at = 0
        # the highest epoch of an assignment that named us
        self._named_epoch = 0
        # lives that the register named before it named us
        self._before_us = set[str]()
        self._is_answered = False
        # the register names another life, of which tasks are
        self._is_anothers = False
        self._held: collections.deque[tuple[Task, int]] = collections.deque(maxlen=MAX_HELD)
        self._rejoin_seconds = rejoin_seconds
        self._longest_seconds = LONGEST_REJOIN_RATIO * rejoin_seconds
        # monotonic seconds; None before the first join
        self._join_due: float | None = None

    # -- saying

    def stamp(self) -> dict[str, Any]:
        """Return the next signal's source fields."""
        self._sequence += 1
        return {
            "node": self.source.node,
            "incarnation": self.source.incarnation,
            "sequence": self._sequence,
            "life": self.source.life,
        }

    @property
    def waiting(self) -> list[object]:
        """Return the durable signals that are not acknowledged, oldest first: at the start, those of earlier lives."""
        return self._outbox.waiting

    def start(self) -> None:
        """Be heard, beginning with what an earlier life left in the spool, and hear."""
        self._courier.add(self._inbox)
        self._courier.ring(self._outbox)

    def tell(self, fact: object) -> None:
        """Say something durable; raises WireError when it cannot be a message."""
        self._outbox.put(fact)

    def beat(self, beat: Heartbeat) -> bool:
        """Say something volatile, lost when the store is away; False when it is too large to be said."""
        return self._outbox.beat(beat)

    def join(self, joined: NodeJoined, now: float) -> None:
        """Say that we are here, for the first time or again. `now`: monotonic seconds."""
        self._join_due = now + self._rejoin_seconds
        self._rejoin_seconds = min(2 * self._rejoin_seconds, self._longest_seconds)
        self.tell(joined)

    def wants_join(self, now: float) -> bool:
        """Whether joining is to be said again: nobody has answered it, though the store has taken it."""
        if self._is_answered or self._join_due is None or now < self._join_due:
            return False
        return not any(isinstance(fact, NodeJoined) for fact in self._outbox.waiting)

    # -- hearing

    def is_mine(self, assignment: Assignment) -> bool:
        """Whether an assignment is meant for this life; those of older supervisors name none, and are for whoever reads them."""
        return assignment.life in ("", self.source.life)

    def confirm(self) -> int:
        """Have the register read anew, whatever is known of it; return the number `on_confirmed` will carry."""
        return self._courier.confirm(self._inbox)

    def lost_since(self, now: float) -> float | None:
        """Return since when the store takes nothing from us (monotonic seconds); None while it does."""
        return self._outbox.lost_since(now)

    # -- ending

    def deafen(self) -> None:
        """Hear nothing more."""
        self._courier.remove(self._inbox)

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until the store has every durable signal; False if it has not by then."""
        return self._outbox.flush(timeout_seconds)

    def close(self) -> None:
        """Say nothing more; what the store has not got stays in the spool."""
        self.deafen()
        self._outbox.close()

    def _heard(self, message: Assignment | Task, number: int) -> None:
        if isinstance(message, Task):
            if self._is_anothers:
                self._held.append((message, number))
            else:
                self._listener.on_task(message, number)
            return
        if message.life == self.source.life:
            self._named_at = number
            self._named_epoch = max(self._named_epoch, message.epoch)
        elif message.life and 0 < self._named_at < number:
            if message.epoch < self._named_epoch or message.life in self._before_us:
                # Signed once, and put back by somebody who cannot sign.
                life, epoch = message.life, message.epoch
                self._listener.on_junk(
                    f"replayed assignment {number}: it names life {life} by epoch {epoch}, which was before ours"
                )
                return
            self._listener.on_displaced(message.life)
            return
        elif message.life and not self._named_at:
            self._before_us.add(message.life)
        self._is_anothers = not self.is_mine(message)
        self._listener.on_assignment(message)
        if not self._is_anothers:
            self._is_answered = True
            while self._held:
                self._listener.on_task(*self._held.popleft())
