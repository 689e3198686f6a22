"""Validation of messages: an item of a stream becomes a fact, or is refused and counted.

Any process that reaches the store can write to its streams. A message is accepted only if it is signed with the cluster's token
for its stream, is of a kind that belongs there, comes from the registered agent of its node, and is newer than what that agent
sent before. Requests and joins say when they were sent: those that were processed are remembered, and older ones are refused. A
cluster without a token (one machine, made by an older release) accepts unsigned messages.
"""

import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Literal

from runner.decide.nodes.predicates import is_current_agent
from runner.decide.state.cluster_state import State
from runner.errors import Forged, StoreRolledBack, WireError
from runner.facts import wire
from runner.facts.actions import ActionResult
from runner.facts.messages.requests import Request
from runner.facts.messages.signals import Heartbeat, NodeJoined, Signal
from runner.facts.store_names import HEARTBEATS, REQUESTS, SIGNALS
from runner.signer import Signer

# What each stream may hold: agents send no requests, and no stream holds records of the supervisor itself.
KINDS: dict[str, tuple[type, ...]] = {
    SIGNALS: (Signal, ActionResult),
    REQUESTS: (Request,),
    HEARTBEATS: (Heartbeat,),
}
Reason = Literal["unsigned", "malformed", "unsequenced", "replayed", "unknown_sender", "stale"]
# The other reasons are routine: an acknowledgement is lost, an agent was displaced.
JOURNALLED: tuple[Reason, ...] = ("unsigned", "malformed", "unsequenced", "stale")
# That may lie between the sender's clock and the supervisor's, delays included; chosen.
MAX_APART_SECONDS = 300.0
# These carry the time at which they were sent.
TimedMessage = Request | NodeJoined


class MessageRefused(WireError):
    """A message is refused: its stream's cursor moves on, and nothing follows from it. `stale`: the one that is answered."""

    def __init__(self, reason: Reason, message: str, stale: TimedMessage | None = None) -> None:
        super().__init__(message)
        self.reason: Reason = reason
        self.stale = stale


class MessageValidator:
    """Validates messages one by one, on one thread. `refused` counts by reason, since this supervisor started."""

    def __init__(self, signer: Signer, clock: Callable[[], float] = time.time) -> None:
        """`clock`: the wall clock, in Unix seconds; that of the decisions may be far ahead after a clock that was off."""
        self._signer, self._clock = signer, clock
        # node -> instance id, (incarnation, sequence)
        self._heartbeats: dict[str, tuple[str, tuple[int, int]]] = {}
        self.refused: Counter[str] = Counter()

    def validate(self, stream: str, payload: bytes, state: State) -> object:
        """Decode a payload of this stream and return the fact; raise MessageRefused with the reason if it must not be processed.

        `state` holds the registered agents and what was processed of them. Raises StoreRolledBack
        for an agent that obeys an assignment newer than any in the journal.
        """
        try:
            fact = self._decode(stream, payload)
            # These name the assignment that their node obeys.
            if isinstance(fact, Heartbeat | NodeJoined):
                _check_assignment(fact, state)
            if isinstance(fact, Signal):
                self._check_sequenced(stream, fact)
                self._check_sender(stream, fact, state)
                self._check_not_replayed(stream, fact, state)
            if isinstance(fact, Request):
                if fact.id in state.requests or fact.id in state.request_ids:
                    raise MessageRefused("replayed", f"request {fact.id} was processed before")
                self._check_fresh(fact, f"request {fact.id}", state.other_requests_until)
                self._check_not_expired(fact)
            elif isinstance(fact, NodeJoined):
                self._check_fresh(fact, f"the join of {fact.node}")
        except MessageRefused as refused:
            self.refused[refused.reason] += 1
            raise
        return fact

    def _decode(self, stream: str, payload: bytes) -> object:
        size, limit = len(payload), wire.MAX_MESSAGE_BYTES
        if size > limit:
            what = f"a message of {size} bytes"
            raise MessageRefused("malformed", f"{stream}: {what}, the limit is {limit}")
        try:
            fact: object = wire.decode(self._signer.verify(stream, payload))
        except Forged as error:
            raise MessageRefused("unsigned", str(error)) from error
        except WireError as error:
            raise MessageRefused("malformed", str(error)) from error
        is_misplaced = isinstance(fact, Heartbeat) and stream != HEARTBEATS
        if not isinstance(fact, KINDS[stream]) or is_misplaced:
            kind = wire.kind_of(fact)
            raise MessageRefused("malformed", f"{stream}: a {kind!r} does not belong there")
        return fact

    def _check_sequenced(self, stream: str, signal: Signal) -> None:
        """A signal without a sequence number could be replayed forever."""
        if self._signer.is_active and signal.sequence < 1:
            what = f"{wire.kind_of(signal)} of {signal.node!r}"
            raise MessageRefused("unsequenced", f"{stream}: {what} has no sequence")

    def _check_sender(self, stream: str, signal: Signal, state: State) -> None:
        """Reject signals from any agent instance but the registered one, except NodeJoined."""
        node = state.nodes.get(signal.node)
        if node is None and stream == HEARTBEATS:
            raise MessageRefused("unknown_sender", f"{stream}: {signal.node!r} has not joined")
        if is_current_agent(node, signal):
            return
        if not isinstance(signal, NodeJoined):
            what = f"{wire.kind_of(signal)} of {signal.node!r}"
            message = f"{stream}: {what}, which another agent instance of that node sent"
            raise MessageRefused("unknown_sender", message)
        source = state.sources.get(signal.node)
        if source is not None and signal.instance_id in source.past_instance_ids:
            message = f"{stream}: {signal.node!r} joined with that instance id before"
            raise MessageRefused("replayed", message)

    def _check_not_replayed(self, stream: str, signal: Signal, state: State) -> None:
        """Reject a signal that is not newer than what the same agent sent before."""
        if signal.sequence < 1:
            return
        refused = state.refused_joins.get(signal.instance_id, 0)
        if isinstance(signal, NodeJoined) and signal.sequence <= refused:
            what = f"join {signal.sequence} of {signal.node!r}"
            raise MessageRefused("replayed", f"{stream}: {what} was refused before")
        known = self._newest_accepted(stream, signal, state)
        number = signal.incarnation, signal.sequence
        if known is not None and number <= known:
            what = f"{wire.kind_of(signal)} {signal.sequence} of {signal.node!r}"
            raise MessageRefused("replayed", f"{stream}: {what} was processed before")
        if stream == HEARTBEATS:
            self._heartbeats[signal.node] = (signal.instance_id, number)

    def _newest_accepted(self, stream: str, signal: Signal, state: State) -> tuple[int, int] | None:
        """Return incarnation and sequence of the newest accepted signal of this agent instance; None without any.

        Heartbeats have a stream of their own and may lag behind signals: they are compared with
        each other, and only the first one that this supervisor processes with the signals.
        """
        if stream == HEARTBEATS and signal.node in self._heartbeats:
            instance_id, known = self._heartbeats[signal.node]
            return known if instance_id == signal.instance_id else None
        source = state.sources.get(signal.node)
        if source is None or source.instance_id != signal.instance_id:
            return None
        return source.incarnation, source.sequence

    def _check_fresh(self, message: TimedMessage, what: str, after: float = 0.0) -> None:
        """Refuse a message that was not sent within MAX_APART_SECONDS, or not after this time (Unix seconds)."""
        now, sent_at = self._clock(), message.sent_at
        # What was sent may be any number.
        ours, theirs = (
            datetime.fromtimestamp(min(max(0.0, at), 4e9), UTC) for at in (now, sent_at)
        )
        if not sent_at and self._signer.is_active:
            text = "carries no time: its sender is of an earlier release; upgrade that machine"
        elif sent_at and not abs(now - sent_at) <= MAX_APART_SECONDS:
            text = (
                f"was sent at {theirs:%Y-%m-%d %H:%M:%S} UTC, {abs(now - sent_at):,.0f} s {'before' if sent_at < now else 'after'} "
                f"this supervisor's clock, {ours:%Y-%m-%d %H:%M:%S} UTC; at most {MAX_APART_SECONDS:g} s may lie between: set the "
                "clocks with NTP, or send it again"
            )
        elif sent_at and sent_at <= after:
            text = "was sent before many that were processed; send it again"
        else:
            return
        raise MessageRefused("stale", f"{what} {text}", message)

    def _check_not_expired(self, request: Request) -> None:
        """Refuse a request whose sender has set a time that has passed: it may be wrong by now."""
        now, late = self._clock(), self._clock() - request.expires_at
        if request.expires_at and not now <= request.expires_at:
            text = f"request {request.id} expired {late:,.0f} s ago and was not carried out; send it again if it is still wanted"
            raise MessageRefused("stale", text, request)


def _check_assignment(signal: Heartbeat | NodeJoined, state: State) -> None:
    """Every assignment is journalled before it is written: an agent is ahead of the journal only if the store rolled back."""
    if signal.generation >= state.next_generation:
        raise StoreRolledBack(
            f"node {signal.node!r} obeys the assignment of generation {signal.generation}, but the newest in the journal is "
            f"{state.next_generation - 1}: the store came back with less than it acknowledged"
        )
