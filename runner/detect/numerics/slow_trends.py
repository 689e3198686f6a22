"""Trends over many samples: a validation loss that rises, activations that grow, a loss that stops falling."""

import itertools
import math
from collections import deque

from runner.detect.numerics.findings import NumericFinding, incident, note, number, recovery
from runner.detect.numerics.loss import LossDetector
from runner.detect.numerics.metric_detector import Extra, MetricDetector, finite, register_metric
from runner.detect.numerics.rolling_quantiles import RollingQuantiles
from runner.facts.messages.signals import StepRecord

# In a row above the limit; chosen.
EVALUATIONS = 3
# Of the validation loss above its best: it overfits, perhaps as intended; both chosen.
NOTE_RISE, INCIDENT_RISE = 0.03, 0.15

# Its name in `extra`.
ACTIVATION_NORM = "activation_norm"
# Samples; chosen.
ACTIVATION_WINDOW = 32
# Of the median above the lowest one; chosen: OPT-175B's grew by 30 % over 16,000 steps and went on.
ACTIVATION_RISE = 0.25

# Samples behind one point of a plateau; chosen.
BLOCK = 64
# Over which the loss must have fallen steadily before, and over which it falls no more; chosen.
FALLING_BLOCKS, FLAT_BLOCKS = 4, 4
# Of the fall before; a power law keeps more than a third of it; chosen.
FLAT_SHARE = 0.05


@register_metric
class ValidationDetector(MetricDetector):
    """Compares evaluations with the best one."""

    order = 70
    metric = "loss"
    is_rewound = True
    _best: float
    _num_above: dict[float, int]
    _onset: dict[float, int]
    # Onset of the rise that was reported.
    _reported: int | None

    def reset(self) -> None:
        self._best = math.inf
        self._num_above = {NOTE_RISE: 0, INCIDENT_RISE: 0}
        self._onset = {NOTE_RISE: 0, INCIDENT_RISE: 0}
        self._reported = None

    def judge(self, record: StepRecord, extra: Extra) -> list[NumericFinding]:
        loss, step = record.validation_loss, record.step
        if loss is None or not math.isfinite(loss):
            return []
        findings: list[NumericFinding] = []
        best = self._best
        for ratio in (NOTE_RISE, INCIDENT_RISE):
            if loss <= best + ratio * abs(best):
                self._num_above[ratio] = 0
                continue
            self._onset[ratio] = self._onset[ratio] if self._num_above[ratio] else step
            self._num_above[ratio] += 1
            if self._num_above[ratio] == EVALUATIONS:
                findings.append(self._finding(ratio, step, loss))
        if self._reported is not None and not self._num_above[NOTE_RISE]:
            evidence = f"the validation loss is {number(loss)} again"
            findings.append(recovery("validation_divergence", self._reported, step, evidence))
            self._reported = None
        self._best = min(best, loss)
        return findings

    def _finding(self, ratio: float, step: int, loss: float) -> NumericFinding:
        evidence = (
            f"validation loss {number(loss)} at step {step}: {EVALUATIONS} evaluations one after the other are more than "
            f"{100 * ratio:g} % above the best, {number(self._best)}"
        )
        if ratio == NOTE_RISE:
            return note("validation_divergence", self._onset[ratio], step, evidence)
        self._reported = self._onset[ratio]
        return incident("validation_divergence", self._onset[ratio], step, evidence)


@register_metric
class ActivationDetector(MetricDetector):
    """Reports activations that have grown: OPT-175B's turned up 600 steps before its loss (12.43)."""

    order = 80
    is_rewound = True
    judges_skipped = True
    _level: RollingQuantiles
    _lowest: float
    _onset: int | None

    def reset(self) -> None:
        self._level = RollingQuantiles(ACTIVATION_WINDOW)
        self._lowest = math.inf
        self._onset = None

    def judge(self, record: StepRecord, extra: Extra) -> list[NumericFinding]:
        norm, step = finite(extra.get(ACTIVATION_NORM)), record.step
        if norm is None:
            return []
        self._level.add(norm)
        if len(self._level) < ACTIVATION_WINDOW:
            return []
        median = self._level.median
        self._lowest = min(self._lowest, median)
        limit = self._lowest * (1 + ACTIVATION_RISE)
        if norm <= limit:
            self._onset = None
        elif self._onset is None:
            self._onset = step
        if median <= limit or self._onset is None:
            return []
        evidence = (
            f"the median activation norm of {ACTIVATION_WINDOW} samples rose from {number(self._lowest)} to {number(median)} "
            f"(limit {number(limit)})"
        )
        onset, self._lowest, self._onset = self._onset, median, None
        return [note("activation_norm_drift", onset, step, evidence)]


@register_metric
class PlateauDetector(MetricDetector):
    """Reports a steadily falling loss that stops at once. It is a note: a run that has converged does the same."""

    order = 50
    metric = "loss"
    is_rewound = True
    _block: list[float]
    _block_step: int
    # First step of each of the last blocks, its median.
    _points: deque[tuple[int, float]]

    def reset(self) -> None:
        self._block = []
        self._block_step = 0
        self._points = deque(maxlen=FALLING_BLOCKS + FLAT_BLOCKS)

    def judge(self, record: StepRecord, extra: Extra) -> list[NumericFinding]:
        """Judge a healthy loss; after a jump the fall is measured from the start."""
        loss, step = finite(record.loss), record.step
        if loss is None:
            return []
        if not self.peer(LossDetector).is_calm:
            self._block.clear()
            self._points.clear()
            return []
        if not self._block:
            self._block_step = step
        self._block.append(loss)
        if len(self._block) < BLOCK:
            return []
        self._points.append((self._block_step, sorted(self._block)[BLOCK // 2]))
        self._block = []
        if len(self._points) < FALLING_BLOCKS + FLAT_BLOCKS:
            return []
        return self._judge_points(step, list(self._points))

    def _judge_points(self, step: int, points: list[tuple[int, float]]) -> list[NumericFinding]:
        values = [value for _, value in points]
        before = values[:FALLING_BLOCKS]
        falls = [earlier - later for earlier, later in itertools.pairwise(before)]
        fall = before[0] - before[-1]
        # Each block takes its part in the fall: a jump down is none.
        is_steady = fall > 0 and min(falls) > fall / (2 * len(falls))
        flat = values[FALLING_BLOCKS:]
        is_flat = before[-1] - min(flat) <= FLAT_SHARE * fall
        if not (is_steady and is_flat):
            return []
        self._points.clear()
        evidence = (
            f"the loss fell from {number(before[0])} to {number(before[-1])} over {FALLING_BLOCKS * BLOCK} samples, and to no less "
            f"than {number(min(flat))} over the next {FLAT_BLOCKS * BLOCK}"
        )
        return [note("plateau", points[FALLING_BLOCKS][0], step, evidence)]
