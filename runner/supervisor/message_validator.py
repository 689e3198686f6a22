"""Intake: what the store's streams hold becomes facts, or is refused and counted. Nothing unsigned, replayed or strange is obeyed.

What the supervisor reads was written by whoever can reach the store. A message is believed only when it carries the code of the
cluster's token for its stream, is of a kind that belongs there, comes from the agent that the node is known by, and comes after
what that agent said before. Without a token (a cluster of one machine, made by an older release) the code is not asked for.
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
from runner.signer import Signer

SIGNALS, REQUESTS, BEATS = "signals", "requests", "beats"
# What may come in each stream: an agent is no person, and neither of them is the supervisor itself.
KINDS: dict[str, tuple[type, ...]] = {
    SIGNALS: (Signal, ActionResult),
    REQUESTS: (Request,),
    BEATS: (Heartbeat,),
}
# these say which assignment their node obeys
OBEDIENT = (Heartbeat, NodeJoined)
Reason = Literal["unsigned", "junk", "uncounted", "replayed", "stranger"]
# Worth a word in the story. The others are what happens: an acknowledgment is lost, an agent was displaced.
SAID: tuple[Reason, ...] = ("unsigned", "junk", "uncounted")


class Refused(WireError):
    """A message that is not taken in: its cursor moves on, and nothing follows from it."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason: Reason = reason


class MessageValidator:
    """Judges messages one by one; one thread calls it. `refused` counts by reason, since this supervisor started."""

    def __init__(self, signer: Signer) -> None:
        self._signer = signer
        # node -> life, incarnation, sequence
        self._beats: dict[str, tuple[str, int, int]] = {}
        self.refused: Counter[str] = Counter()

    def take(self, stream: str, payload: bytes, state: State) -> object:
        """Return the fact that a payload of this stream is; raise Refused with the reason why it is none.

        `state` says which agents the nodes are known by, and what was taken from them. Raises StoreRolledBack for an agent that
        obeys what the journal knows nothing of.
        """
        try:
            fact = self._believed(stream, payload)
            if isinstance(fact, OBEDIENT):
                _check_epoch(fact, state)
            if isinstance(fact, Signal):
                self._check_counted(stream, fact)
                self._check_life(stream, fact, state)
                self._check_news(stream, fact, state)
        except Refused as refused:
            self.refused[refused.reason] += 1
            raise
        return fact

    def _believed(self, stream: str, payload: bytes) -> object:
        if len(payload) > wire.MAX_MESSAGE_BYTES:
            limit = wire.MAX_MESSAGE_BYTES
            raise Refused("junk", f"{stream}: a message of {len(payload)} bytes, {limit} fit")
        try:
            fact: object = wire.decode(self._signer.verify(stream, payload))
        except Forged as error:
            raise Refused("unsigned", str(error)) from error
        except WireError as error:
            raise Refused("junk", str(error)) from error
        if not isinstance(fact, KINDS[stream]) or isinstance(fact, Heartbeat) != (stream == BEATS):
            raise Refused("junk", f"{stream}: a {wire.kind_of(fact)!r} does not belong there")
        return fact

    def _check_counted(self, stream: str, signal: Signal) -> None:
        """What is not counted could be said again and again."""
        if self._signer.is_active and signal.sequence < 1:
            kind = wire.kind_of(signal)
            raise Refused("uncounted", f"{stream}: {kind} of {signal.node!r} has no sequence")

    def _check_life(self, stream: str, signal: Signal, state: State) -> None:
        """What another agent says than the one the node is known by is no word of the node, but for its wish to join."""
        node = state.nodes.get(signal.node)
        if node is None and stream == BEATS:
            raise Refused("stranger", f"{stream}: {signal.node!r} is no node that has joined")
        if is_current_agent(node, signal):
            return
        if not isinstance(signal, NodeJoined):
            kind = wire.kind_of(signal)
            raise Refused("stranger", f"{stream}: {kind} of {signal.node!r}, of another life")
        source = state.sources.get(signal.node)
        if source is not None and signal.life in source.past_lives:
            raise Refused("replayed", f"{stream}: {signal.node!r} joined with that life long ago")

    def _check_news(self, stream: str, signal: Signal, state: State) -> None:
        """What does not come after what the same agent said before was taken then."""
        if signal.sequence < 1:
            return
        known = self._known(stream, signal, state)
        if known is None or (signal.incarnation, signal.sequence) > known:
            if stream == BEATS:
                self._beats[signal.node] = (signal.life, signal.incarnation, signal.sequence)
            return
        kind, number = wire.kind_of(signal), signal.sequence
        raise Refused("replayed", f"{stream}: {kind} {number} of {signal.node!r} was taken before")

    def _known(self, stream: str, signal: Signal, state: State) -> tuple[int, int] | None:
        """Return incarnation and sequence of the newest word of this life; None when none is known.

        Heartbeats have a stream of their own, in which they may be a moment behind: they are compared with each other, and
        only the first one that this supervisor hears with the signals.
        """
        if stream == BEATS and signal.node in self._beats:
            life, *known = self._beats[signal.node]
            return (known[0], known[1]) if life == signal.life else None
        source = state.sources.get(signal.node)
        if source is None or source.life != signal.life:
            return None
        return source.incarnation, source.sequence


def _check_epoch(signal: Heartbeat | NodeJoined, state: State) -> None:
    """Every assignment is in the journal before it is published: an agent cannot be ahead of a store that remembers."""
    if signal.epoch >= state.next_epoch:
        raise StoreRolledBack(
            f"node {signal.node!r} obeys the assignment of epoch {signal.epoch}, but the journal has given out none beyond "
            f"{state.next_epoch - 1}: the store came back with less than it acknowledged"
        )
