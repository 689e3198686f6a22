"""Validation of messages: an item of a stream becomes a fact, or is refused and counted.

Any process that reaches the store can write to its streams. A message is accepted only if it is
signed with the cluster's token for its stream, is of a kind that belongs there, comes from the
registered agent of its node, and is newer than what that agent sent before. A cluster without a
token (one machine, made by an older release) accepts unsigned messages.
"""

from __future__ import annotations

from collections import Counter
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

# What each stream may hold: agents send no requests, and no stream holds records of the supervisor
# itself.
KINDS: dict[str, tuple[type, ...]] = {
    SIGNALS: (Signal, ActionResult),
    REQUESTS: (Request,),
    HEARTBEATS: (Heartbeat,),
}
# These name the assignment that their node obeys.
NAME_ASSIGNMENT = (Heartbeat, NodeJoined)
Reason = Literal["unsigned", "malformed", "unsequenced", "replayed", "unknown_sender"]
# Reasons worth a journal entry. The others are routine: an acknowledgement is lost, an agent was
# displaced.
JOURNALLED: tuple[Reason, ...] = ("unsigned", "malformed", "unsequenced")


class MessageRefused(WireError):
    """A message is refused: its stream's cursor moves on, and nothing follows from it."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason: Reason = reason


class MessageValidator:
    """Validates messages one by one, on one thread. `refused` counts by reason, since this supervisor started."""

    def __init__(self, signer: Signer) -> None:
        self._signer = signer
        # node -> instance id, incarnation, sequence
        self._heartbeats: dict[str, tuple[str, int, int]] = {}
        self.refused: Counter[str] = Counter()

    def validate(self, stream: str, payload: bytes, state: State) -> object:
        """Decode a payload of this stream and return the fact; raise MessageRefused with the reason if it must not be processed.

        `state` holds the registered agents and what was processed of them. Raises StoreRolledBack
        for an agent that obeys an assignment newer than any in the journal.
        """
        try:
            fact = self._decode(stream, payload)
            if isinstance(fact, NAME_ASSIGNMENT):
                _check_assignment(fact, state)
            if isinstance(fact, Signal):
                self._check_sequenced(stream, fact)
                self._check_sender(stream, fact, state)
                self._check_not_replayed(stream, fact, state)
        except MessageRefused as refused:
            self.refused[refused.reason] += 1
            raise
        return fact

    def _decode(self, stream: str, payload: bytes) -> object:
        if len(payload) > wire.MAX_MESSAGE_BYTES:
            limit = wire.MAX_MESSAGE_BYTES
            raise MessageRefused(
                "malformed", f"{stream}: a message of {len(payload)} bytes, the limit is {limit}"
            )
        try:
            fact: object = wire.decode(self._signer.verify(stream, payload))
        except Forged as error:
            raise MessageRefused("unsigned", str(error)) from error
        except WireError as error:
            raise MessageRefused("malformed", str(error)) from error
        if not isinstance(fact, KINDS[stream]) or isinstance(fact, Heartbeat) != (
            stream == HEARTBEATS
        ):
            raise MessageRefused(
                "malformed", f"{stream}: a {wire.kind_of(fact)!r} does not belong there"
            )
        return fact

    def _check_sequenced(self, stream: str, signal: Signal) -> None:
        """A signal without a sequence number could be replayed forever."""
        if self._signer.is_active and signal.sequence < 1:
            kind = wire.kind_of(signal)
            raise MessageRefused(
                "unsequenced", f"{stream}: {kind} of {signal.node!r} has no sequence"
            )

    def _check_sender(self, stream: str, signal: Signal, state: State) -> None:
        """Reject signals from any agent instance but the registered one, except NodeJoined."""
        node = state.nodes.get(signal.node)
        if node is None and stream == HEARTBEATS:
            raise MessageRefused("unknown_sender", f"{stream}: {signal.node!r} has not joined")
        if is_current_agent(node, signal):
            return
        if not isinstance(signal, NodeJoined):
            kind = wire.kind_of(signal)
            raise MessageRefused(
                "unknown_sender",
                f"{stream}: {kind} of {signal.node!r}, which another agent instance of that node sent",
            )
        source = state.sources.get(signal.node)
        if source is not None and signal.instance_id in source.past_instance_ids:
            raise MessageRefused(
                "replayed", f"{stream}: {signal.node!r} joined with that instance id before"
            )

    def _check_not_replayed(self, stream: str, signal: Signal, state: State) -> None:
        """Reject a signal that is not newer than what the same agent sent before."""
        if signal.sequence < 1:
            return
        known = self._newest_accepted(stream, signal, state)
        if known is None or (signal.incarnation, signal.sequence) > known:
            if stream == HEARTBEATS:
                self._heartbeats[signal.node] = (
                    signal.instance_id,
                    signal.incarnation,
                    signal.sequence,
                )
            return
        kind, number = wire.kind_of(signal), signal.sequence
        raise MessageRefused(
            "replayed", f"{stream}: {kind} {number} of {signal.node!r} was processed before"
        )

    def _newest_accepted(self, stream: str, signal: Signal, state: State) -> tuple[int, int] | None:
        """Return incarnation and sequence of the newest accepted signal of this agent instance; None without any.

        Heartbeats have a stream of their own and may lag behind signals: they are compared with
        each other, and only the first one that this supervisor processes with the signals.
        """
        if stream == HEARTBEATS and signal.node in self._heartbeats:
            instance_id, *known = self._heartbeats[signal.node]
            return (known[0], known[1]) if instance_id == signal.instance_id else None
        source = state.sources.get(signal.node)
        if source is None or source.instance_id != signal.instance_id:
            return None
        return source.incarnation, source.sequence


def _check_assignment(signal: Heartbeat | NodeJoined, state: State) -> None:
    """Every assignment is journalled before it is written: an agent is ahead of the journal only if the store rolled back."""
    if signal.generation >= state.next_generation:
        raise StoreRolledBack(
            f"node {signal.node!r} obeys the assignment of generation {signal.generation}, but the newest in the journal is "
            f"{state.next_generation - 1}: the store came back with less than it acknowledged"
        )
