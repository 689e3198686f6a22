"""Silence: which nodes are not heard. Judged by arrival on our own clock, never by a node's."""

from __future__ import annotations

from runner.facts.faults import Finding, MassSilence, NodeHeard
from runner.facts.signals import Heartbeat
from runner.facts.watch import Watch

MASS_SILENCE_SHARE = 0.5  # more than this share of the nodes at once: the store or the fabric is blamed; chosen, not measured
MIN_MASS = 3  # fewer silent nodes are no crowd, unless nobody else is left; chosen, not measured


class Silence:
    """Tracks when each node was last heard."""

    def __init__(self, silence_seconds: float) -> None:
        self.silence_seconds = silence_seconds
        self._heard: dict[str, float] = {}
        self._silent: dict[str, float] = {}  # node -> when it was found silent
        self._en_masse: tuple[str, ...] = ()

    def heard(self, beat: Heartbeat, watch: Watch, now: float) -> list[NodeHeard]:
        """Note a heartbeat; say so if its node had been silent, or was given up."""
        before = self._heard.get(beat.node)
        self._heard[beat.node] = now
        came_back = self._silent.pop(beat.node, None) is not None
        lost = beat.node in watch.lost and (before is None or now - before < self.silence_seconds)
        if came_back or (lost and (before is None or int(now) != int(before))):
            return [NodeHeard(node=beat.node, incarnation=beat.incarnation)]
        return []

    def tick(self, watch: Watch, now: float) -> list[Finding | MassSilence]:
        """Return findings about nodes that have just become silent."""
        found: list[Finding | MassSilence] = []
        for name in watch.nodes:
            heard = self._heard.setdefault(name, now)
            # Said again from time to time: whoever decides may have trusted the node for some other sign of life.
            if now >= self._due(name, heard):
                self._silent[name] = now
                found.append(self._finding(name, now))
        crowd = self._crowd(watch)
        if crowd != self._en_masse:
            self._en_masse = crowd
            found.insert(0, MassSilence(nodes=crowd))
        return found

    def _due(self, name: str, heard: float) -> float:
        return max(heard, self._silent.get(name, heard)) + self.silence_seconds

    def _crowd(self, watch: Watch) -> tuple[str, ...]:
        """Return the nodes that are silent together, or none. A node leaves the crowd only by being heard."""
        silent = tuple(name for name in watch.nodes if name in self._silent)
        everybody = len(silent) == len(watch.nodes) > 1
        many = len(silent) >= MIN_MASS and len(silent) > MASS_SILENCE_SHARE * len(watch.nodes)
        return silent if many or everybody else ()

    def _finding(self, name: str, now: float) -> Finding:
        silent = now - self._heard[name]
        evidence = (
            f"nothing heard from {name} for {silent:.1f} s (limit {self.silence_seconds:g} s)"
        )
        return Finding(fault="node_silent", evidence=evidence, node=name, silent_seconds=silent)

    def begin_anew(self) -> None:
        """Forget when nodes were heard: nobody listened (our own pause, a store outage), which proves nothing about them.

        Each node gets the whole limit again, as it does from a new supervisor: what it said meanwhile has yet to arrive.
        """
        self._heard.clear()

    def due_at(self, watch: Watch) -> float | None:
        """Return when the next node becomes silent, or is to be named again, if nothing is heard."""
        times = [self._due(name, self._heard[name]) for name in watch.nodes if name in self._heard]
        return min(times, default=None)

    def seconds_since(self, node: str, now: float) -> float | None:
        """Return how long ago a node was heard, for display."""
        return now - self._heard[node] if node in self._heard else None
