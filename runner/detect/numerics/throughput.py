"""Throughput: a lasting drop below the run's own baseline, not single slow samples (evaluations, checkpoints, a stall)."""

import math
from collections import deque

from runner.detect.numerics.baseline import LEARNED_SAMPLES
from runner.detect.numerics.findings import NumericFinding, incident, number, recovery
from runner.detect.numerics.metric_detector import Extra, MetricDetector, register_metric
from runner.detect.numerics.rolling_quantiles import RollingQuantiles, change_at
from runner.facts.messages.signals import StepRecord

# Samples whose median is compared; chosen.
RECENT = 16
# BLOOM's slow GPU of April 2022 cost 6 %.
DROP_RATIO = 0.05
# Of single samples: eight standard errors of a median of 16; chosen.
DROP_SPREADS = 2.0
# For which the median must stay low; chosen.
LASTING_SAMPLES = 16
# Of an attempt, in which kernels are built and caches fill; chosen.
START_SAMPLES = 8
# Samples among which the onset is searched for; chosen.
HISTORY = 4 * RECENT
# The first one that is logged counts; then the step time, and of trainers without one the samples.
SOURCES = ("tokens_per_second", "model_tflops_per_second", "mfu_ratio")
SAMPLES = "samples_per_second"


@register_metric
class ThroughputDetector(MetricDetector):
    """Compares a run with its baseline, which outlives this detector."""

    order = 30
    metric = "throughput"
    judges_skipped = True
    _source: str
    _num_start: int
    _recent: RollingQuantiles
    _learned: list[float]
    _num_low: int
    _history: deque[tuple[int, float]]
    # Onset of the drop that was reported.
    _reported: int | None

    def reset(self) -> None:
        self.baseline = self.settings.baseline
        self._source = ""
        self.begin_attempt()

    def begin_attempt(self) -> None:
        """Leave out the first samples of an attempt; a drop that lasts is reported of it, too."""
        self._num_start = START_SAMPLES
        self._recent = RollingQuantiles(RECENT)
        self._learned = []
        self._num_low = 0
        self._history = deque(maxlen=HISTORY)
        self._reported = None

    def relearn(self) -> None:
        """Reset the baseline: a step is something else from now on."""
        self.begin_attempt()
        self.baseline.throughput = None

    def judge(self, record: StepRecord, extra: Extra) -> list[NumericFinding]:
        """Judge the throughput, or the inverse of the step time, and learn from it."""
        value = self._read(record)
        if value is None or self._num_start:
            self._num_start -= value is not None
            return []
        self._recent.add(value)
        self._learned.append(value)
        if len(self._learned) >= LEARNED_SAMPLES:
            level = RollingQuantiles(LEARNED_SAMPLES)
            for one in self._learned:
                level.add(one)
            self._learned.clear()
            self.baseline.learn(level.median, level.spread)
        usual = self.baseline.throughput
        return [] if usual is None else self._compare(record.step, value, usual)

    def _read(self, record: StepRecord) -> float | None:
        """Return the throughput that this run logs, or the inverse of its step time."""
        if not self._source:
            names = (*SOURCES, "step_seconds_max", SAMPLES)
            known = [name for name in names if getattr(record, name) is not None]
            self._source = known[0] if known else "step_seconds_max"
        value: float | None = getattr(record, self._source)
        if value is None or not 0 < value < math.inf:
            return None
        return 1 / value if self._source == "step_seconds_max" else value

    def _compare(self, step: int, value: float, usual: float) -> list[NumericFinding]:
        drop = max(DROP_RATIO * usual, DROP_SPREADS * self.baseline.spread)
        self._history.append((step, value))
        if len(self._recent) < RECENT:
            return []
        median = self._recent.median
        self._num_low = self._num_low + 1 if median < usual - drop else 0
        if self._reported is not None:
            return self._recovered(step, median, usual - drop / 2)
        if self._num_low < LASTING_SAMPLES:
            return []
        slowness = [-value for _, value in self._history]
        self._reported = self._history[change_at(slowness, -(usual + median) / 2)][0]
        evidence = (
            f"the median throughput of {RECENT} samples is {number(median)}, {100 * (1 - median / usual):.1f} % below the run's "
            f"usual {number(usual)} (limit {number(usual - drop)} for {LASTING_SAMPLES} samples; from {self._source})"
        )
        return [incident("throughput_drop", self._reported, step, evidence)]

    def _recovered(self, step: int, median: float, enough: float) -> list[NumericFinding]:
        if self._reported is None or median < enough:
            return []
        onset, self._reported = self._reported, None
        evidence = f"the median throughput is {number(median)} again"
        return [recovery("throughput_drop", onset, step, evidence)]
