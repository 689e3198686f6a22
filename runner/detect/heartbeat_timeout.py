"""Heartbeat timeouts: nodes that fell silent, alone or with their failure domain. Times of arrival on our own clock count."""

from collections.abc import Iterable

from runner.detect.detector import OVERDUE_SHARE, Detector, NodeSilence, register
from runner.detect.domain_silence import DomainAssessment, assess_domains
from runner.facts.faults import CorrelatedSilence, DomainSilence, Finding, HeartbeatResumed
from runner.facts.messages.signals import Heartbeat
from runner.facts.watch import WatchList

# If more than this share of the nodes is silent at once, the store or the fabric is the suspect; chosen, not measured.
CORRELATED_SHARE = 0.5
# Fewer silent nodes are not correlated, unless they are all there are; chosen, not measured.
MIN_CORRELATED = 3
_Silence = Finding | CorrelatedSilence | DomainSilence


@register
class HeartbeatTimeout(Detector):
    """Tracks each node's last heartbeat."""

    order = 10

    def __init__(self, silence: NodeSilence | None = None) -> None:
        super().__init__(silence)
        # Node -> the agent that was last watched.
        self._instance_ids: dict[str, str] = {}
        self._watched: tuple[str, ...] = ()
        self._correlated: tuple[str, ...] = ()
        # Nodes of a correlated silence that ended get until then to send heartbeats, too.
        self._correlated_until = 0.0
        # Node whose domain may be silent -> when it is named all the same.
        self._deferred: dict[str, float] = {}
        # Nodes whose next heartbeat, or silence, decides about the deferred ones.
        self._awaited: dict[str, bool] = {}
        self._has_awaited_resumed = False
        # While these nodes are watched, with these agents, and none is silent, none can be before then: `tick` skips a large
        # fleet.
        self._idle: tuple[object, object, float] = (None, None, 0.0)
        self._newest_heartbeat = 0.0
        self._lost: tuple[WatchList | None, dict[str, None]] = (None, {})

    def on_heartbeat(
        self, heartbeat: Heartbeat, watch: WatchList, now: float
    ) -> list[HeartbeatResumed]:
        """Record a heartbeat; report it if its node had been silent, or was given up."""
        node, limit_seconds = heartbeat.node, self.silence.limit_seconds
        before = self.silence.last_heartbeat.get(node)
        self.silence.last_heartbeat[node] = self._newest_heartbeat = now
        was_silent = self.silence.silent_since.pop(node, None) is not None
        self._deferred.pop(node, None)
        self._has_awaited_resumed = self._has_awaited_resumed or node in self._awaited
        if self._lost[0] is not watch:
            self._lost = (watch, dict.fromkeys(watch.lost_nodes))
        is_lost = node in self._lost[1] and (before is None or now - before < limit_seconds)
        if was_silent or (is_lost and (before is None or int(now) != int(before))):
            return [HeartbeatResumed(node=node, incarnation=heartbeat.incarnation)]
        return []

    def tick(self, watch: WatchList, now: float) -> list[_Silence]:
        """Return findings about nodes, and domains, that have just become silent."""
        if self._is_idle(watch) and now < self._idle[2]:
            return []
        findings = self._check_all(watch, now)
        self._idle = (None, None, 0.0)
        if not (findings or self.silence.silent_since or self._deferred or self._correlated):
            self._idle = (watch.nodes, watch.instance_ids, self._first_due(watch) or 0.0)
        return findings

    def _is_idle(self, watch: WatchList) -> bool:
        return self._idle[0] is watch.nodes and self._idle[1] is watch.instance_ids

    def _check_all(self, watch: WatchList, now: float) -> list[_Silence]:
        self._follow_agents(watch, now)
        # A silent node is reported again after each limit: the controller may have other evidence that it is alive.
        due = {
            name: True
            for name in watch.nodes
            if now >= self._due(name, self.silence.last_heartbeat.setdefault(name, now))
        }
        findings: list[_Silence] = []
        correlated = self._correlated_nodes(watch, due)
        if correlated != self._correlated:
            self._correlated = correlated
            self._correlated_until = now + OVERDUE_SHARE * self.silence.limit_seconds
            findings.append(CorrelatedSilence(nodes=correlated))
        assessment = DomainAssessment()
        if due and watch.domains and not correlated:
            overdue = sum(self.silence.is_overdue(name, now) for name in watch.nodes)
            assessment = assess_domains(
                due,
                watch,
                self.silence,
                now=now,
                may_be_correlated=now < self._correlated_until
                or _is_correlated(overdue, len(watch.nodes)),
            )
        findings += assessment.silent
        in_domains = {name: True for domain in assessment.silent for name in domain.nodes}
        self._defer(due, assessment, now)
        singles = [name for name in due if name not in in_domains and name not in self._deferred]
        self.silence.silent_since |= dict.fromkeys((*in_domains, *singles), now)
        findings += [self._finding(name, now) for name in singles]
        return findings

    def _follow_agents(self, watch: WatchList, now: float) -> None:
        """Count the join of another agent, or the return of a node, as a heartbeat: earlier ones say nothing about it."""
        if watch.nodes is not self._watched:
            before, self._watched = dict.fromkeys(self._watched), watch.nodes
            for name in watch.nodes:
                if name not in before and name in self._instance_ids:
                    self.silence.last_heartbeat[name] = now
                    self.silence.silent_since.pop(name, None)
        for name in watch.nodes:
            instance_id = watch.instance_ids.get(name, "")
            if self._instance_ids.setdefault(name, instance_id) != instance_id:
                self._instance_ids[name], self.silence.last_heartbeat[name] = instance_id, now
                self.silence.silent_since.pop(name, None)

    def _due(self, name: str, last: float) -> float:
        return max(last, self.silence.silent_since.get(name, last)) + self.silence.limit_seconds

    def _defer(self, due: Iterable[str], assessment: DomainAssessment, now: float) -> None:
        """Defer nodes whose domain may be silent, for as long as an overdue peer may take to decide."""
        until = self._correlated_until
        if now >= until:
            until = now + OVERDUE_SHARE * self.silence.limit_seconds
        times = {
            name: self._deferred.get(name, until) for name in due if name in assessment.deferred
        }
        self._deferred = {name: until for name, until in times.items() if now < until}
        self._awaited = assessment.awaited if self._deferred else {}
        self._has_awaited_resumed = False

    def _correlated_nodes(self, watch: WatchList, due: Iterable[str]) -> tuple[str, ...]:
        """Return the nodes of a correlated silence, or none. A node leaves it by a heartbeat, or by announcing its end.

        A node that is no longer watched, and sent no heartbeat, still counts: it was watched when the silence began.
        """
        silent = tuple(
            name for name in watch.nodes if name in self.silence.silent_since or name in due
        )
        still = [
            name
            for name in self._correlated
            if name in self.silence.silent_since and name not in watch.left_nodes
        ]
        correlated = tuple(dict.fromkeys((*still, *silent)))
        watched = dict.fromkeys((*watch.nodes, *still))
        return correlated if silent and _is_correlated(len(correlated), len(watched)) else ()

    def _finding(self, name: str, now: float) -> Finding:
        seconds = now - self.silence.last_heartbeat[name]
        evidence = (
            f"no heartbeat from {name} for {seconds:.1f} s (limit {self.silence.limit_seconds:g} s)"
        )
        return Finding(fault="node_silent", evidence=evidence, node=name, silent_seconds=seconds)

    def shift(self, seconds: float) -> None:
        """Give each node the whole limit again, as a new supervisor does: its heartbeats may have yet to arrive."""
        self.silence.last_heartbeat.clear()
        self._idle = (None, None, 0.0)
        self._deferred, self._awaited, self._has_awaited_resumed = {}, {}, False

    def due_at(self, watch: WatchList) -> float | None:
        """Return when the next node becomes silent, or is to be reported again; or a time before that.

        While the fleet is idle, the time computed earlier holds: nodes with newer heartbeats are due later.
        """
        if self._is_idle(watch) and self._idle[2] > self._newest_heartbeat:
            return self._idle[2]
        return self._first_due(watch)

    def _first_due(self, watch: WatchList) -> float | None:
        deferred = {} if self._has_awaited_resumed else self._deferred
        last = self.silence.last_heartbeat
        times = [
            deferred.get(name, self._due(name, last[name])) for name in watch.nodes if name in last
        ]
        return min(times, default=None)


def _is_correlated(silent: int, watched: int) -> bool:
    """Whether so many are silent that neither nodes nor domains are named: most of them, or all."""
    return silent == watched > 1 or (
        silent >= MIN_CORRELATED and silent > CORRELATED_SHARE * watched
    )
