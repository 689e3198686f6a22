"""Sums of one run that only rise, as counters and histograms of metrics must: from the journal alone, across take-overs.

Seconds of a run are classified again when more is known: a rewind makes rework of productive ones, an incident makes `detect` of
the last ones of a step. A counter holds the furthest that such a sum has been until the sum is past it again. So does the one of
productive seconds, which ends with the last mark of progress.

A *recovery* lasts from the fault that broke an attempt to the first step of a later one, however many attempts that took. Each has
one observation of each phase, as the ledger defines them; `rework` is the time on steps that it overwrote.
"""

from bisect import bisect_left
from collections.abc import Mapping

from msgspec import field

from runner.facts.wire import MutableValue

RECOVERY_PHASES = ("detect", "stop", "prepare", "start", "rework")
# Upper bounds of the histograms' buckets, chosen around the times of the benchmarks and of large fleets; the last has none.
BUCKET_SECONDS = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)


class PhaseHistogram(MutableValue):
    """Seconds of one phase of recovery. `counts`: observations of each bucket alone, the last beyond all bounds."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKET_SECONDS) + 1))
    total_seconds: float = 0.0

    def observe(self, seconds: float) -> None:
        """Count one recovery's seconds."""
        self.counts[bisect_left(BUCKET_SECONDS, seconds)] += 1
        self.total_seconds += seconds


class RunCounters(MutableValue):
    """The sums of one run. `restarts`: fault, or what else ended the attempt before -> launches after it.

    `steps`: made, those that were overwritten included. `tokens` and `skipped_steps` are what ranks reported with their marks.
    """

    productive_seconds: float = 0.0
    lost_seconds: dict[str, float] = field(default_factory=dict)
    steps: int = 0
    tokens: int = 0
    skipped_steps: int = 0
    restarts: dict[str, int] = field(default_factory=dict)
    phases: dict[str, PhaseHistogram] = field(
        default_factory=lambda: {phase: PhaseHistogram() for phase in RECOVERY_PHASES}
    )
    # Seconds of the recovery that goes on; None: none does.
    recovering: dict[str, float] | None = None
    # Of the run, at its last first step.
    rework_seconds: float = 0.0
    has_launched: bool = False

    def keep(self, productive_seconds: float, lost_seconds: Mapping[str, float]) -> None:
        """Hold what the sums are at least, before they may fall."""
        self.productive_seconds = max(self.productive_seconds, productive_seconds)
        for cause, seconds in lost_seconds.items():
            self.lost_seconds[cause] = max(self.lost_seconds.get(cause, 0.0), seconds)

    def begin_recovery(self) -> None:
        """An attempt broke; a recovery that goes on already lasts longer."""
        if self.recovering is None:
            self.recovering = {}

    def spend(self, phase: str, seconds: float) -> None:
        """Add the seconds of a phase that ended, if a recovery goes on and it is one of its phases."""
        if self.recovering is not None and phase in RECOVERY_PHASES:
            self.recovering[phase] = self.recovering.get(phase, 0.0) + seconds

    def on_first_step(self, rework_seconds: float) -> None:
        """Steps are made again: a recovery is over. `rework_seconds`: of the run so far."""
        rework = max(0.0, rework_seconds - self.rework_seconds)
        self.rework_seconds = rework_seconds
        if self.recovering is None:
            return
        spent, self.recovering = {**self.recovering, "rework": rework}, None
        for phase in RECOVERY_PHASES:
            self.phases[phase].observe(spent.get(phase, 0.0))

    def on_launch(self, cause: str) -> None:
        """Count a launch that is not the first. `cause`: of the end of the attempt before."""
        if self.has_launched:
            self.restarts[cause] = self.restarts.get(cause, 0) + 1
        self.has_launched = True
