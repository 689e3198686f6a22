"""Gang liveness: gangs that go on stepping although a node of theirs is silent. A gang steps together, so that node's ranks live.

Steps under way when the node fell silent prove nothing: steps count from half the silence limit after its last heartbeat, which
is more than a heartbeat's interval, and two more must have been made since.
"""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from runner.detect.detector import Detector, NodeSilence, WatchedGangs, register
from runner.facts.faults import GangStillStepping
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat
from runner.facts.watch import WatchList

# Steps that prove that all ranks live: one may have been under way, and be known to some nodes only; chosen.
LEAST_STEPS = 2
# Of the silence limit, after a node's last heartbeat, from which on steps count; chosen.
FROM_SHARE = 0.5
# How finely a gang's steps are sampled, and how often it is judged; chosen.
SAMPLES_PER_LIMIT = 8
# Silence limits for which samples are kept; chosen.
MAX_AGE_LIMITS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    """The newest step that was known at a time."""

    at: float
    step: int


@dataclass(slots=True, kw_only=True)
class _Gang:
    attempt: AttemptId
    nodes: dict[str, None]
    step: int = 0
    # When the next sample is due.
    sample_at: float = -math.inf
    # The oldest first.
    samples: deque[_Sample] = field(default_factory=deque)
    # Silent node -> the sample of its last finding.
    reported: dict[str, _Sample] = field(default_factory=dict)


@register
class GangLiveness(Detector):
    """Follows the steps of gangs. Most heartbeats of a large gang cost nothing, and all cost little while no node is silent."""

    order = 40

    def __init__(self, silence: NodeSilence | None = None) -> None:
        super().__init__(silence)
        self._gangs = WatchedGangs(
            lambda watched: _Gang(attempt=watched.attempt, nodes=dict.fromkeys(watched.nodes))
        )

    def on_heartbeat(
        self, heartbeat: Heartbeat, watch: WatchList, now: float
    ) -> list[GangStillStepping]:
        """Return a finding if the heartbeat's gang steps on without nodes that are silent."""
        step = heartbeat.last_step if heartbeat.last_step is not None else heartbeat.printed_step
        gang = self._gangs.of(heartbeat, watch) if step is not None else None
        if gang is None or step is None:
            return []
        gang.step = max(gang.step, step)
        if now < gang.sample_at:
            return []
        limit = self.silence.limit_seconds
        gang.sample_at = now + limit / SAMPLES_PER_LIMIT
        gang.samples.append(_Sample(at=now, step=gang.step))
        while gang.samples[0].at < now - MAX_AGE_LIMITS * limit:
            gang.samples.popleft()
        silent = [name for name in self.silence.silent_since if name in gang.nodes]
        gang.reported = {name: gang.reported[name] for name in silent if name in gang.reported}
        return self._judge(gang, silent) if silent else []

    def shift(self, seconds: float) -> None:
        """Start over: when the steps of that time were made is not known."""
        for gang in self._gangs.known.values():
            gang.samples.clear()
            gang.sample_at = -math.inf
            gang.reported.clear()

    def _judge(self, gang: _Gang, silent: Iterable[str]) -> list[GangStillStepping]:
        newest, step_seconds, alive = gang.samples[-1], 0.0, list[str]()
        for name in silent:
            base = self._base(gang, name)
            if base is None or newest.step < base.step + LEAST_STEPS:
                continue
            alive.append(name)
            gang.reported[name] = newest
            seconds = (newest.at - base.at) / (newest.step - base.step)
            step_seconds = max(step_seconds, seconds)
        finding = GangStillStepping(
            attempt=gang.attempt, nodes=tuple(alive), step=newest.step, step_seconds=step_seconds
        )
        return [finding] if alive else []

    def _base(self, gang: _Gang, name: str) -> _Sample | None:
        """Return the sample from which steps count for a silent node; None: not yet, or it was reported just now."""
        last = self.silence.last_heartbeat.get(name)
        if last is None:
            return None
        counts_from = last + FROM_SHARE * self.silence.limit_seconds
        reported = gang.reported.get(name)
        if reported is None or reported.at < counts_from:
            return next((sample for sample in gang.samples if sample.at >= counts_from), None)
        is_due = gang.samples[-1].at >= reported.at + self.silence.limit_seconds
        return reported if is_due else None
