"""Start times: which rank of a gang took longest in each phase of the start, from what its nodes report of their own ranks.

Nodes report it in heartbeats, which are not journalled; a gang of any size yields one fact.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from runner.detect.detector import Detector, NodeSilence, register
from runner.facts.faults import GangStartTimed
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat, StartPhase
from runner.facts.watch import WatchedAttempt, WatchList

# From the first node's report until the others are no longer waited for: a gang steps together, but after a take-over or a lost
# heartbeat an agent repeats its report within ten seconds and a heartbeat; chosen.
GRACE_SECONDS = 15.0


@dataclass(slots=True, kw_only=True)
class _Start:
    watched: WatchedAttempt
    nodes: dict[str, None]
    # By node.
    phases: dict[str, Mapping[str, StartPhase]] = field(default_factory=dict)
    first_report_at: float = math.inf
    is_reported: bool = False

    def is_ripe(self, now: float) -> bool:
        is_whole = len(self.phases) == len(self.watched.nodes)
        return is_whole or now >= self.first_report_at + GRACE_SECONDS


@register
class StartTimes(Detector):
    """Gathers reports until all nodes have sent one, or enough time has passed."""

    order = 30

    def __init__(self, silence: NodeSilence | None = None) -> None:
        super().__init__(silence)
        self._starts: dict[AttemptId, _Start] = {}
        self._watch: WatchList | None = None

    def on_heartbeat(
        self, heartbeat: Heartbeat, watch: WatchList, now: float
    ) -> list[GangStartTimed]:
        """Return how a gang started if the heartbeat completes its reports."""
        if not heartbeat.start_phases or heartbeat.attempt is None:
            return []
        self._follow(watch)
        start = self._starts.get(heartbeat.attempt)
        if start is None or heartbeat.node not in start.nodes:
            return []
        start.first_report_at = now if start.first_report_at == math.inf else start.first_report_at
        start.phases[heartbeat.node] = heartbeat.start_phases
        return self.tick(watch, now)

    def tick(self, watch: WatchList, now: float) -> list[GangStartTimed]:
        """Return how gangs started whose nodes have all reported, or are no longer waited for."""
        self._follow(watch)
        ripe = [one for one in self._starts.values() if not one.is_reported and one.is_ripe(now)]
        for start in ripe:
            start.is_reported = True
        return [_slowest_of(start) for start in ripe]

    def shift(self, seconds: float) -> None:
        for start in self._starts.values():
            start.first_report_at += seconds

    def due_at(self, watch: WatchList) -> float | None:
        """Return when a gang's reports are no longer waited for."""
        first = min((start.first_report_at for start in self._starts.values()), default=math.inf)
        return first + GRACE_SECONDS if first < math.inf else None

    def _follow(self, watch: WatchList) -> None:
        if watch is self._watch:
            return
        self._watch = watch
        self._starts = {
            watched.attempt: self._starts.get(watched.attempt)
            or _Start(watched=watched, nodes=dict.fromkeys(watched.nodes))
            for watched in watch.attempts
            if not watched.is_timed
        }
        for start in self._starts.values():
            # It is still watched, so the controller did not get the report.
            start.is_reported = False


def _slowest_of(start: _Start) -> GangStartTimed:
    """Return the slowest rank of each phase, nodes in rank order, phases in the order in which they were first named."""
    slowest: dict[str, StartPhase] = {}
    for node in start.watched.nodes:
        for name, phase in start.phases.get(node, {}).items():
            if name not in slowest or phase.seconds > slowest[name].seconds:
                slowest[name] = replace(phase, node=node)
    return GangStartTimed(attempt=start.watched.attempt, slowest=slowest)
