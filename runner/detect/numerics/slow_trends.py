"""Trends over many samples: a validation loss that rises, activations that grow, a loss that stops falling."""

import itertools
import math
from abc import abstractmethod
from collections import deque
from typing import ClassVar

from runner.detect.numerics.findings import NumericFinding, incident, note, number, recovery
from runner.detect.numerics.gradient import GradientDetector
from runner.detect.numerics.loss import LossDetector, Usual
from runner.detect.numerics.memory import Remembered
from runner.detect.numerics.metric_detector import Extra, MetricDetector, finite, register_metric
from runner.detect.numerics.rolling_quantiles import RollingQuantiles
from runner.facts.faults import Fault
from runner.facts.messages.signals import StepRecord

# In a row above the limit; chosen.
EVALUATIONS = 3
# Of the validation loss above its best: it overfits, perhaps as intended; both chosen.
NOTE_RISE, INCIDENT_RISE = 0.03, 0.15
# And of its own spread, where so many second differences show it: the best of many noisy evaluations is far below the usual one.
# Of their sizes the lower quartile counts, which a rise does not change. Chosen.
RISE_SPREADS, LEAST_DIFFERENCES, NUM_DIFFERENCES = 5.0, 5, 12
# Second differences of independent samples have six times their variance.
VARIANCE_OF_SECOND_DIFFERENCES = 6.0
# The lower quartile of the sizes of those of normal samples, in times of the spread of the samples.
QUARTILE_OF_DIFFERENCES = 0.3186 * math.sqrt(VARIANCE_OF_SECOND_DIFFERENCES)

# Its name in `extra`.
ACTIVATION_NORM = "activation_norm"
# Samples; chosen.
ACTIVATION_WINDOW = 32
# Of the median above the lowest one; chosen: OPT-175B's grew by 30 % over 16,000 steps and went on.
ACTIVATION_RISE = 0.25
# Of the median gradient norm above the lowest one; chosen: healthy norms wander by less over thousands of steps.
GRADIENT_RISE = 1.0
# Of the median above the lowest one so far, for an incident whatever the loss does; chosen, as for a jump. The furthest rise of
# eight clean curves is 1.8.
GRADIENT_INCIDENT_RISE = 9.0

# Of a rise that counts: up to that a median is near the lowest one; chosen.
NEAR_SHARE = 0.25
# Learning rates that differ by less are one; chosen.
SAME_RATE = 0.02
# Of single samples: three standard errors of the difference between two medians of 48.
LOSS_SPREADS = 0.75

# Samples behind one point of a plateau; chosen.
BLOCK = 64
# Over which the loss must have fallen steadily before, and over which it falls no more; chosen.
FALLING_BLOCKS, FLAT_BLOCKS = 4, 4
# Of the fall before; a power law keeps more than a third of it; chosen.
FLAT_SHARE = 0.05


@register_metric
class ValidationDetector(MetricDetector):
    """Compares evaluations with the best one, and their rise with their noise."""

    order = 70
    metric = "loss"
    is_rewound = True
    _best: float
    _num_above: dict[float, int]
    _onset: dict[float, int]
    # Onset of the rise that was reported.
    _reported: int | None
    # The two newest evaluations, and the second differences so far.
    _newest: list[float]
    _differences: deque[float]

    def reset(self) -> None:
        self._best = math.inf
        self._newest, self._differences = [], deque(maxlen=NUM_DIFFERENCES)
        self._num_above = {NOTE_RISE: 0, INCIDENT_RISE: 0}
        self._onset = {NOTE_RISE: 0, INCIDENT_RISE: 0}
        self._reported = None

    def judge(self, record: StepRecord, extra: Extra) -> list[NumericFinding]:
        loss, step = record.validation_loss, record.step
        if loss is None or not math.isfinite(loss):
            return []
        findings: list[NumericFinding] = []
        best = self._best
        if len(self._newest) == 2:
            before, last = self._newest
            # Three digits are enough, and short in a learned summary.
            self._differences.append(float(f"{abs(loss - 2 * last + before):.3g}"))
        self._newest = [*self._newest[-1:], loss]
        usual = RISE_SPREADS * self._spread()
        for ratio in (NOTE_RISE, INCIDENT_RISE):
            if loss <= best + max(ratio * abs(best), usual):
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

    def _spread(self) -> float:
        """Return the noise of evaluations around a smooth line; 0 as long as too few show it."""
        if len(self._differences) < LEAST_DIFFERENCES:
            return 0.0
        sizes = sorted(self._differences)
        return sizes[len(sizes) // 4] / QUARTILE_OF_DIFFERENCES

    def _finding(self, ratio: float, step: int, loss: float) -> NumericFinding:
        evidence = (
            f"validation loss {number(loss)} at step {step}: {EVALUATIONS} evaluations one after the other are more than "
            f"{100 * ratio:g} % above the best, {number(self._best)}"
        )
        if ratio == NOTE_RISE:
            return note("validation_divergence", self._onset[ratio], step, evidence)
        self._reported = self._onset[ratio]
        return incident("validation_divergence", self._onset[ratio], step, evidence)


class LowestLevel(Remembered):
    """Where a median was lowest, and when it was last near that."""

    lowest: float
    # The learning rate when it was lowest; None: not logged.
    rate: float | None
    near_step: int

    def __init__(self) -> None:
        self.lowest, self.rate, self.near_step = math.inf, None, 0

    def add(self, median: float, near: float, step: int, rate: float | None) -> bool:
        """Follow a median; return whether it is near the lowest one: above it by this share at most."""
        if median < self.lowest:
            self.lowest, self.rate = median, rate
        is_near = median <= self.lowest * (1 + near)
        if is_near:
            self.near_step = step
        return is_near


class NormTrend(MetricDetector):
    """Reports a norm whose median has risen, with what the learning rate and the loss did meanwhile.

    It is a note, since some runs go on well; unless the kind says otherwise of a loss that rises meanwhile, or of a rise so far.
    """

    fault: ClassVar[Fault]
    label: ClassVar[str]
    rise: ClassVar[float]
    # A rise is an incident where the loss rose, too, at a learning rate that did not fall.
    is_incident_of_risen_loss: ClassVar[bool] = False
    # Over the lowest median of all, for an incident whatever the loss does.
    incident_rise: ClassVar[float] = math.inf
    _level: RollingQuantiles
    # Since the last report, and of all.
    _lately: LowestLevel
    _ever: LowestLevel
    # Learning rate and loss when the median was last near its lowest one since then; None: not logged.
    _near_rate: float | None
    _near_loss: float | None
    _onset: int | None
    # The onset of an incident, and the median at which it is over.
    _reported: int | None
    _back_at: float

    def reset(self) -> None:
        self._level = RollingQuantiles(ACTIVATION_WINDOW)
        self._lately, self._ever = LowestLevel(), LowestLevel()
        self._near_rate, self._near_loss = None, None
        self._onset, self._reported = None, None
        self._back_at = 0.0

    @abstractmethod
    def norm_of(self, record: StepRecord, extra: Extra) -> float | None:
        """Return the norm of a record; None where it is not logged."""

    def judge(self, record: StepRecord, extra: Extra) -> list[NumericFinding]:
        norm, step = finite(self.norm_of(record, extra)), record.step
        if norm is None:
            return []
        norm = _short(norm)
        self._level.add(norm)
        if len(self._level) < ACTIVATION_WINDOW:
            return []
        median, usual, rate = self._level.median, self.peer(LossDetector).usual, finite(record.lr)
        near = self.rise * NEAR_SHARE
        if self._lately.add(median, near, step, rate):
            self._near_rate, self._near_loss = (
                rate,
                None if usual.median is None else _short(usual.median),
            )
        if self.incident_rise < math.inf:
            self._ever.add(median, near, step, rate)
        if self._reported is not None and median <= self._back_at:
            onset, self._reported = self._reported, None
            evidence = f"the median {self.label} norm is {number(median)} again"
            return [recovery(self.fault, onset, step, evidence)]
        limit = self._lately.lowest * (1 + self.rise)
        if norm <= limit:
            self._onset = None
        elif self._onset is None:
            self._onset = step
        if self._reported is None and median > self._ever.lowest * (1 + self.incident_rise):
            return [self._incident(self._ever, 1 + self.incident_rise, record)]
        if median <= limit or self._onset is None:
            return []
        if self._reported is None and self._has_cost(record, usual):
            because = ", and the loss rose by more than its noise"
            return [self._incident(self._lately, 1 + self.rise, record, because)]
        onset = self._onset
        evidence = self._evidence(self._lately, 1 + self.rise, record)
        self._begin_again(record)
        return [note(self.fault, onset, step, evidence)]

    def _incident(
        self, since: LowestLevel, factor: float, record: StepRecord, because: str = ""
    ) -> NumericFinding:
        evidence = self._evidence(since, factor, record) + because
        # It has been rising since then: a level from just before the limit would be sick already.
        onset = since.near_step + 1
        self._reported, self._back_at = onset, since.lowest * (1 + self.rise / 2)
        self._begin_again(record)
        return incident(self.fault, onset, record.step, evidence)

    def _begin_again(self, record: StepRecord) -> None:
        """Measure the next rise from here."""
        self._onset = None
        self._lately.lowest, self._lately.rate = self._level.median, finite(record.lr)

    def _evidence(self, since: LowestLevel, factor: float, record: StepRecord) -> str:
        return (
            f"the median {self.label} norm of {ACTIVATION_WINDOW} samples rose from {number(since.lowest)} to "
            f"{number(self._level.median)} (limit {number(since.lowest * factor)}){_rates(since.rate, finite(record.lr))}"
        )

    def _has_cost(self, record: StepRecord, loss: Usual) -> bool:
        """Whether the loss has risen since the norm was last near its lowest, at a learning rate that has not fallen."""
        rate, before = finite(record.lr), self._near_loss
        rates = [one for one in (self._lately.rate, self._near_rate) if one is not None]
        if not self.is_incident_of_risen_loss or rate is None or not rates:
            return False
        if before is None or loss.median is None or rate < (1 - SAME_RATE) * max(rates):
            return False
        return loss.median > before + LOSS_SPREADS * loss.spread


def _short(value: float) -> float:
    """Return a value in as many digits as a level needs: it is kept for the next supervisor."""
    return float(f"{value:.6g}")


def _rates(then: float | None, now: float | None) -> str:
    """Say what the learning rate did while a norm rose: one that falls makes a rising norm no better."""
    if then is None or now is None:
        return ""
    if abs(now - then) <= SAME_RATE * then:
        return f", at a learning rate of {number(now)}"
    return f", as the learning rate {'rose' if now > then else 'fell'} from {number(then)} to {number(now)}"


@register_metric
class ActivationDetector(NormTrend):
    """Reports activations that have grown: OPT-175B's turned up 600 steps before its loss (12.43)."""

    order = 80
    is_rewound = True
    judges_skipped = True
    fault = "activation_norm_drift"
    label = "activation"
    rise = ACTIVATION_RISE

    def norm_of(self, record: StepRecord, extra: Extra) -> float | None:
        """Trainers report it, and files have it."""
        return extra.get(ACTIVATION_NORM, record.activation_norm)


@register_metric
class GradientTrendDetector(NormTrend):
    """Reports a gradient norm that has doubled slowly: a jump is the spike detector's."""

    order = 85
    metric = "gradient"
    fault = "grad_norm_drift"
    label = "gradient"
    rise = GRADIENT_RISE
    is_incident_of_risen_loss = True
    incident_rise = GRADIENT_INCIDENT_RISE

    def norm_of(self, record: StepRecord, extra: Extra) -> float | None:
        """None while it jumps, or the loss does."""
        is_calm = self.peer(GradientDetector).is_calm and self.peer(LossDetector).is_calm
        return record.grad_norm if is_calm else None


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
