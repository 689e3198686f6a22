"""Starts: which rank of a gang took longest in each phase, out of what its nodes say of their own.

Nodes say it in their heartbeats, which are not journalled; of a gang of any size one fact comes out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from runner.facts.faults import GangStartTimed
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat, StartPhase
from runner.facts.watch import WatchedAttempt, WatchList

# From the first node's word to what is made of it without the others: a gang steps together, so this is some heartbeats; chosen.
GRACE_SECONDS = 5.0


@dataclass(slots=True, kw_only=True)
class _Start:
    watched: WatchedAttempt
    nodes: dict[str, None]
    # by node
    told: dict[str, Mapping[str, StartPhase]] = field(default_factory=dict)
    told_at: float | None = None
    # since there was last something else to watch
    said: bool = False

    def is_ripe(self, now: float) -> bool:
        if self.told_at is None:
            return False
        return len(self.told) == len(self.watched.nodes) or now >= self.told_at + GRACE_SECONDS


class StartTimes:
    """Gathers what nodes say until all have spoken, or enough time has passed."""

    def __init__(self) -> None:
        self._starts: dict[AttemptId, _Start] = {}
        self._followed: WatchList | None = None

    def heard(self, beat: Heartbeat, watch: WatchList, now: float) -> list[GangStartTimed]:
        """Take a heartbeat in; say how the gang started if its node was the last to tell."""
        self._follow(watch)
        start = self._starts.get(beat.attempt) if beat.attempt is not None else None
        if start is None or not beat.start or beat.node not in start.nodes:
            return []
        start.told_at = now if start.told_at is None else start.told_at
        start.told[beat.node] = beat.start
        return self.tick(watch, now)

    def tick(self, watch: WatchList, now: float) -> list[GangStartTimed]:
        """Say how gangs started of which no node is waited for any longer."""
        self._follow(watch)
        ripe = [each for each in self._starts.values() if not each.said and each.is_ripe(now)]
        for start in ripe:
            start.said = True
        return [_sum_up(start) for start in ripe]

    def shift(self, seconds: float) -> None:
        """Allow for a time in which nobody listened."""
        for start in self._starts.values():
            if start.told_at is not None:
                start.told_at += seconds

    def due_at(self) -> float | None:
        """Return when a gang is no longer waited for."""
        times = [s.told_at + GRACE_SECONDS for s in self._starts.values() if s.told_at is not None]
        return min(times, default=None)

    def _follow(self, watch: WatchList) -> None:
        if watch is self._followed:
            return
        self._followed = watch
        wanted = {w.attempt: w for w in watch.attempts if not w.is_timed}
        self._starts = {
            name: self._starts.get(name)
            or _Start(watched=watched, nodes=dict.fromkeys(watched.nodes))
            for name, watched in wanted.items()
        }
        for start in self._starts.values():
            # whoever was told would have it watched no more
            start.said = False


def _sum_up(start: _Start) -> GangStartTimed:
    """Find the slowest rank of each phase, nodes in rank order, phases in the order in which they were first named."""
    slowest: dict[str, StartPhase] = {}
    for node in start.watched.nodes:
        for name, phase in start.told.get(node, {}).items():
            if name not in slowest or phase.seconds > slowest[name].seconds:
                slowest[name] = replace(phase, node=node)
    return GangStartTimed(attempt=start.watched.attempt, slowest=slowest)
