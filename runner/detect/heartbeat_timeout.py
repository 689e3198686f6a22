"""Silence: which nodes are not heard, alone or with their failure domain. Judged by arrival on our own clock, never a node's."""

from __future__ import annotations

from collections.abc import Collection

from runner.detect.domain_silence import QUIET_SHARE, Hearing, Judgement, judge
from runner.facts.faults import CorrelatedSilence, DomainSilence, Finding, HeartbeatResumed
from runner.facts.messages.signals import Heartbeat
from runner.facts.watch import WatchList

# more than this share of the nodes at once: the store or the fabric is blamed; chosen, not measured
MASS_SILENCE_SHARE = 0.5
# fewer silent nodes are no crowd, unless nobody else is left; chosen, not measured
MIN_MASS = 3


class HeartbeatTimeout:
    """Tracks when each node was last heard."""

    def __init__(self, silence_seconds: float) -> None:
        self.silence_seconds = silence_seconds
        self._heard: dict[str, float] = {}
        # of the agents that were last looked at
        self._lives: dict[str, str] = {}
        # node -> when it was found silent
        self._silent: dict[str, float] = {}
        self._en_masse: tuple[str, ...] = ()
        # those of a mass silence that ended are given time to be heard, too
        self._mass_until = 0.0
        # silent, its domain may be -> when it is named anyway
        self._held: dict[str, float] = {}
        # whose next word, or silence, decides about those
        self._awaited: dict[str, bool] = {}
        # an awaited one spoke: whoever is held back may have no reason left
        self._may_go = False
        # While these nodes are watched, of these lives, and nobody is silent, nobody can be before then: a large fleet is not
        # walked in vain.
        self._calm: tuple[object, object, float] = (None, None, 0.0)
        # when anybody was heard last
        self._latest = 0.0
        self._lost: tuple[WatchList | None, dict[str, None]] = (None, {})

    def heard(self, beat: Heartbeat, watch: WatchList, now: float) -> list[HeartbeatResumed]:
        """Note a heartbeat; say so if its node had been silent, or was given up."""
        before = self._heard.get(beat.node)
        self._heard[beat.node] = self._latest = now
        came_back = self._silent.pop(beat.node, None) is not None
        self._held.pop(beat.node, None)
        self._may_go = self._may_go or beat.node in self._awaited
        if self._lost[0] is not watch:
            self._lost = (watch, dict.fromkeys(watch.lost))
        is_lost = beat.node in self._lost[1]
        lost = is_lost and (before is None or now - before < self.silence_seconds)
        if came_back or (lost and (before is None or int(now) != int(before))):
            return [HeartbeatResumed(node=beat.node, incarnation=beat.incarnation)]
        return []

    def tick(
        self, watch: WatchList, now: float
    ) -> list[Finding | CorrelatedSilence | DomainSilence]:
        """Return findings about nodes, and domains, that have just become silent."""
        if self._is_calm(watch) and now < self._calm[2]:
            return []
        found = self._look(watch, now)
        self._calm = (None, None, 0.0)
        if not (found or self._silent or self._held or self._en_masse):
            self._calm = (watch.nodes, watch.lives, self._first_due(watch) or 0.0)
        return found

    def _is_calm(self, watch: WatchList) -> bool:
        return self._calm[0] is watch.nodes and self._calm[1] is watch.lives

    def _look(
        self, watch: WatchList, now: float
    ) -> list[Finding | CorrelatedSilence | DomainSilence]:
        """Look at every node there is."""
        self._note_lives(watch, now)
        # Said again from time to time: whoever decides may have trusted the node for some other sign of life.
        due = {
            name: True
            for name in watch.nodes
            if now >= self._due(name, self._heard.setdefault(name, now))
        }
        found: list[Finding | CorrelatedSilence | DomainSilence] = []
        crowd = self._crowd(watch, due)
        if crowd != self._en_masse:
            self._en_masse = crowd
            self._mass_until = now + QUIET_SHARE * self.silence_seconds
            found.append(CorrelatedSilence(nodes=crowd))
        judged = Judgement() if crowd or not due else self._judge(watch, due, now)
        found += judged.silent
        in_domains = {name: True for silence in judged.silent for name in silence.nodes}
        self._hold(due, judged, now)
        singles = [name for name in due if name not in in_domains and name not in self._held]
        self._silent |= dict.fromkeys((*in_domains, *singles), now)
        found += [self._finding(name, now) for name in singles]
        return found

    def _note_lives(self, watch: WatchList, now: float) -> None:
        """Take the join of another agent for a sign of life: what the one before was last heard of says nothing of it."""
        for name in watch.nodes:
            life = watch.lives.get(name, "")
            if self._lives.setdefault(name, life) != life:
                self._lives[name], self._heard[name] = life, now
                self._silent.pop(name, None)

    def _due(self, name: str, heard: float) -> float:
        return max(heard, self._silent.get(name, heard)) + self.silence_seconds

    def _judge(self, watch: WatchList, due: dict[str, bool], now: float) -> Judgement:
        """Ask whether whole domains fell silent, unless there are none."""
        if not watch.domains:
            return Judgement()
        hearing = Hearing(heard=self._heard, limit=self.silence_seconds, now=now)
        quiet = sum(hearing.is_quiet(name) for name in watch.nodes)
        may_be_mass = now < self._mass_until or _is_mass(quiet, len(watch.nodes))
        return judge(due, watch, hearing, may_be_mass=may_be_mass)

    def _hold(self, due: dict[str, bool], judged: Judgement, now: float) -> None:
        """Keep back those whose domain may be silent, for as long as a quiet peer can take to show; then no longer."""
        wait_seconds = QUIET_SHARE * self.silence_seconds
        until = self._mass_until if now < self._mass_until else now + wait_seconds
        held = {name: self._held.get(name, until) for name in due if name in judged.held}
        self._held = {name: limit for name, limit in held.items() if now < limit}
        self._awaited = judged.awaited if self._held else {}
        self._may_go = False

    def _crowd(self, watch: WatchList, due: dict[str, bool]) -> tuple[str, ...]:
        """Return the nodes that are silent together, or none. A node leaves by being heard, or by its word that it ends.

        One that is watched no more, unheard, leaves those that are left no less a crowd: they were one of all that were watched
        when it formed.
        """
        silent = tuple(name for name in watch.nodes if name in self._silent or name in due)
        still = [name for name in self._en_masse if name in self._silent and name not in watch.left]
        crowd = tuple(dict.fromkeys((*still, *silent)))
        watched = dict.fromkeys((*watch.nodes, *still))
        return crowd if silent and _is_mass(len(crowd), len(watched)) else ()

    def _finding(self, name: str, now: float) -> Finding:
        silent = now - self._heard[name]
        evidence = (
            f"nothing heard from {name} for {silent:.1f} s (limit {self.silence_seconds:g} s)"
        )
        return Finding(fault="node_silent", evidence=evidence, node=name, silent_seconds=silent)

    @property
    def silent(self) -> Collection[str]:
        """Nodes that were found silent and have not been heard since."""
        return self._silent.keys()

    def heard_at(self, node: str) -> float | None:
        """Return when a node was last heard, or began to be listened for."""
        return self._heard.get(node)

    def begin_anew(self) -> None:
        """Forget when nodes were heard: nobody listened (our own pause, a store outage), which proves nothing about them.

        Each node gets the whole limit again, as it does from a new supervisor: what it said meanwhile has yet to arrive.
        """
        self._heard.clear()
        self._calm = (None, None, 0.0)
        self._held, self._awaited, self._may_go = {}, {}, False

    def due_at(self, watch: WatchList) -> float | None:
        """Return when the next node becomes silent, or is to be named again, if nothing is heard; or a time before that.

        While all is calm, only what was worked out earlier is told, for as long as it is yet to come: whoever was heard since then
        is due later.
        """
        if self._is_calm(watch) and self._calm[2] > self._latest:
            return self._calm[2]
        return self._first_due(watch)

    def _first_due(self, watch: WatchList) -> float | None:
        held = {} if self._may_go else self._held
        times = [
            held.get(name, self._due(name, self._heard[name]))
            for name in watch.nodes
            if name in self._heard
        ]
        return min(times, default=None)

    def seconds_since(self, node: str, now: float) -> float | None:
        """Return how long ago a node was heard, for display."""
        return now - self._heard[node] if node in self._heard else None


def _is_mass(silent: int, watched: int) -> bool:
    """Whether so many are silent that neither nodes nor domains are blamed: most of them, or everybody."""
    return silent == watched > 1 or (silent >= MIN_MASS and silent > MASS_SILENCE_SHARE * watched)
