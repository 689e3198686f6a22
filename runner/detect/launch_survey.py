"""Launch survey: what the nodes of a gang run with, by the digests that they report in heartbeats (`facts/launch_conditions`).

Heartbeats are not journalled; a gang of any size yields one fact, and one more for each digest that comes later, such as that of
the data, which ranks know only after their imports.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from runner.detect.detector import Detector, NodeSilence, WatchedGangs, register
from runner.facts.faults import LaunchSurveyed, PartVariant
from runner.facts.ids import AttemptId
from runner.facts.launch_conditions import DIGEST_DIGITS, PARTS
from runner.facts.messages.signals import Heartbeat
from runner.facts.watch import WatchedAttempt, WatchList

# From the first node's report until the others are no longer waited for: a survey takes 20 s at most, nodes of a large gang begin
# up to 30 s later (`agent/launch/conditions.py`), and a heartbeat that is lost is repeated after 10 s. Chosen.
GRACE_SECONDS = 65.0
# Of one part, in one fact; further ones are not compared. Chosen.
MAX_VARIANTS = 16
# Nodes that are named of each. Chosen.
MAX_NODES = 10


@dataclass(slots=True)
class _Gang:
    attempt: AttemptId
    # In rank order; empty: a node has not reported.
    digests: dict[str, Mapping[str, str]]
    num_missing: int
    first_report_at: float = math.inf
    # Part -> digest -> nodes that have it.
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    # There is a digest that no fact had.
    is_changed: bool = False
    reported: dict[str, dict[str, None]] = field(default_factory=dict)

    def note(self, node: str, found: Mapping[str, str], now: float) -> None:
        before = self.digests[node]
        self.num_missing -= not before
        self.first_report_at = min(self.first_report_at, now)
        self.digests[node] = found
        for part, digest in before.items():
            self.counts[part][digest] -= 1
        for part, digest in found.items():
            counts = self.counts.setdefault(part, {})
            counts[digest] = counts.get(digest, 0) + 1
            is_new = digest not in self.reported.get(part, ())
            self.is_changed = self.is_changed or (is_new and len(counts) <= MAX_VARIANTS)

    def due_at(self) -> float:
        if not self.is_changed:
            return math.inf
        return self.first_report_at + (GRACE_SECONDS if self.num_missing else 0.0)


@register
class LaunchSurvey(Detector):
    """Gathers the digests of each gang's nodes."""

    order = 31
    is_advisory = True

    def __init__(self, silence: NodeSilence | None = None) -> None:
        super().__init__(silence)
        self._gangs = WatchedGangs[_Gang](_begin)

    def on_heartbeat(
        self, heartbeat: Heartbeat, watch: WatchList, now: float
    ) -> list[LaunchSurveyed]:
        """Return what a gang runs with if the heartbeat completes its reports, or has something new."""
        gang = self._gangs.of(heartbeat, watch) if heartbeat.conditions else None
        if gang is None or heartbeat.node not in gang.digests:
            return []
        found = {
            part: heartbeat.conditions[part][:DIGEST_DIGITS]
            for part in PARTS
            if part in heartbeat.conditions
        }
        if found != gang.digests[heartbeat.node]:
            gang.note(heartbeat.node, found, now)
        return _surveyed(gang, now)

    def tick(self, watch: WatchList, now: float) -> list[LaunchSurveyed]:
        """Return what gangs run with whose other nodes are no longer waited for."""
        return [fact for gang in self._gangs.on(watch).values() for fact in _surveyed(gang, now)]

    def due_at(self, watch: WatchList) -> float | None:
        """Return when a gang's reports are no longer waited for."""
        due = min((gang.due_at() for gang in self._gangs.on(watch).values()), default=math.inf)
        return due if due < math.inf else None

    def shift(self, seconds: float) -> None:
        """Allow for a time without heartbeats."""
        for gang in self._gangs.known.values():
            gang.first_report_at += seconds


def _begin(watched: WatchedAttempt) -> _Gang:
    nodes: dict[str, Mapping[str, str]] = {node: {} for node in watched.nodes}
    return _Gang(watched.attempt, nodes, num_missing=len(nodes))


def _surveyed(gang: _Gang, now: float) -> list[LaunchSurveyed]:
    if now < gang.due_at():
        return []
    gang.is_changed = False
    nodes: dict[str, dict[str, list[str]]] = {}
    for node, digests in gang.digests.items():
        for part, digest in digests.items():
            of_part = nodes.setdefault(part, {})
            if digest in of_part or len(of_part) < MAX_VARIANTS:
                of_part.setdefault(digest, []).append(node)
    gang.reported = {part: dict.fromkeys(of_part) for part, of_part in nodes.items()}
    missing = [node for node, digests in gang.digests.items() if not digests]
    return [
        LaunchSurveyed(
            attempt=gang.attempt,
            parts={
                part: tuple(_variant(*one) for one in nodes[part].items())
                for part in PARTS
                if part in nodes
            },
            missing=tuple(missing[:MAX_NODES]),
            num_missing=len(missing),
        )
    ]


def _variant(digest: str, nodes: list[str]) -> PartVariant:
    return PartVariant(digest=digest, nodes=tuple(nodes[:MAX_NODES]), num_nodes=len(nodes))
