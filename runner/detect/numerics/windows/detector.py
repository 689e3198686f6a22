"""The first samples of an attempt: jumps of the loss and the gradient norm, and a loss scale that falls, before a level is learned.

The detectors for long curves need 16 healthy samples. This one judges from the third on, with wider limits, and stops once they
can: a short log, or the first steps after a restart, would otherwise not be judged. A sample that is late, or steps that
run backwards, begin another window; warm-up falls, whatever their size, are no jumps.
"""

import math
from collections import deque

from runner.detect.numerics.findings import NumericFinding, incident, number, recovery
from runner.detect.numerics.loss import LEAST, LossDetector
from runner.detect.numerics.metric_detector import Extra, MetricDetector, finite, register_metric
from runner.detect.numerics.windows.jumps import Jump, JumpLimits, find_jump
from runner.facts.faults import Fault
from runner.facts.messages.signals import StepRecord

# Samples of an attempt that are judged so: the loss has a level by then.
MAX_SAMPLES = LEAST
# Chosen on the development half of the curves: their healthy samples rise by 29 % at most above the three before.
LOSS = JumpLimits(single=2.2, pair=1.3, few=3.5, backed=1.25, judges_first=True)
# Healthy runs have single norms of 200 times the one before.
NORM = JumpLimits(single=1000.0, pair=10.0, few=30.0)
# A norm so many times, and so many of their ranges, above all before confirms a jump of the loss; chosen.
BACKING, BACKING_RANGES, MIN_BACKED = 3.0, 2.0, 3
# Of logarithms that are kept.
DIGITS = 5
# In a row, before a jump is over; chosen, as for long curves.
BACK_SAMPLES = 3
# A scale that falls so far from a settled one, as for long curves; and the samples that settle it.
SCALE_FALL, SETTLED_SAMPLES = 32.0, 2


@register_metric
class ShortWindows(MetricDetector):
    """Judges the first samples of a run or of an attempt, until the loss has a level."""

    order = 90
    metric = "loss"
    judges_skipped = True
    _num: int
    _steps: deque[int]
    # Logarithms, rounded. Of a norm that was not logged: 0 with `_has_norms` False.
    _losses: deque[float]
    _norms: deque[float]
    _has_norms: bool
    # Steps and scales since the last rise.
    _scales: deque[tuple[int, float]]
    # Of an open finding, by fault: its onset, and below which logarithm its metric is back.
    _open: dict[str, tuple[int, float]]
    _num_back: int

    def reset(self) -> None:
        self._open = {}
        self.begin_attempt()

    def begin_attempt(self) -> None:
        """Begin another window."""
        self._num = 0
        self._forget()

    def _forget(self) -> None:
        """Forget the samples."""
        self._num_back = 0
        self._steps = deque(maxlen=MAX_SAMPLES)
        self._losses = deque(maxlen=MAX_SAMPLES)
        self._norms = deque(maxlen=MAX_SAMPLES)
        self._has_norms = True
        self._scales = deque(maxlen=MAX_SAMPLES)

    def judge(self, record: StepRecord, extra: Extra) -> list[NumericFinding]:
        """Judge a record among the first ones, and follow what was found until it is over."""
        self._num += 1
        if self._num > MAX_SAMPLES and not self._open:
            return []
        if self._steps and record.step < self._steps[-1]:
            self.begin_attempt()
        found = self._judge_scale(record)
        loss = finite(record.loss)
        if record.skipped or loss is None or loss <= 0:
            return found
        value = math.log(loss)
        if self.peer(LossDetector).is_abnormal:
            # It has found the jump, too, and will end it.
            self._open.pop("loss", None)
            self._forget()
            return found
        if "loss" in self._open:
            return found + self._follow(record.step, value)
        if self._num > MAX_SAMPLES or self.peer(LossDetector).usual.median is not None:
            return found
        if self._steps and (record.step, round(value, DIGITS)) == (
            self._steps[-1],
            self._losses[-1],
        ):
            # Each rank prints the line of the step.
            return found
        norm = finite(record.grad_norm)
        if record.grad_norm is not None and norm is None:
            # Its step was skipped, whether the line says so or not; what lasts is found by another judge.
            return found
        self._steps.append(record.step)
        self._losses.append(round(value, DIGITS))
        has_norm = norm is not None and norm > 0
        self._has_norms &= has_norm
        self._norms.append(round(math.log(norm), DIGITS) if norm and has_norm else 0.0)
        return found + self._judge_loss(record.step) + self._judge_norm(record.step)

    def _judge_loss(self, step: int) -> list[NumericFinding]:
        losses = list(self._losses)
        backed = [self._is_backed(index) for index in range(len(losses))]
        jump = find_jump(losses, LOSS, backed)
        if jump is None:
            return []
        fault: Fault = "divergence" if jump.is_gradual else "loss_spike"
        return [self._report("loss", fault, jump, step, losses[-1])]

    def _is_backed(self, index: int) -> bool:
        """Whether the gradient norm of a sample confirms a jump of the loss."""
        norms = list(self._norms)
        before = norms[max(0, index - MIN_BACKED) : index]
        if len(before) < MIN_BACKED or not self._has_norms:
            return False
        width = max(before) - min(before)
        limit = max(math.log(BACKING), BACKING_RANGES * width)
        return norms[index] - max(before) > limit

    def _judge_norm(self, step: int) -> list[NumericFinding]:
        norms = list(self._norms)
        if "norm" in self._open or "loss" in self._open or not self._has_norms:
            return []
        jump = find_jump(norms, NORM)
        if jump is None:
            return []
        return [self._report("norm", "grad_norm_spike", jump, step, norms[-1])]

    def _report(
        self, name: str, fault: Fault, jump: Jump, step: int, value: float
    ) -> NumericFinding:
        onset = self._steps[jump.index]
        self._open[name] = (onset, jump.level + jump.limit / 2)
        self._num_back = 0
        what = "loss" if name == "loss" else "gradient norm"
        since = "" if onset == step else f", raised since step {onset}"
        evidence = (
            f"{what} {number(_exp(value))} at step {step}{since}: the highest of the {min(jump.index, 8)} samples before was "
            f"{number(_exp(jump.level))}, the limit {number(_exp(jump.level + jump.limit))}"
        )
        return incident(fault, onset, step, evidence)

    def _follow(self, step: int, value: float) -> list[NumericFinding]:
        """Wait for the loss to come back."""
        onset, level = self._open["loss"]
        self._num_back = self._num_back + 1 if value <= level else 0
        if self._num_back < BACK_SAMPLES:
            return []
        self._open.clear()
        self.begin_attempt()
        return [recovery("loss_spike", onset, step, f"the loss came back to {number(_exp(value))}")]

    def _judge_scale(self, record: StepRecord) -> list[NumericFinding]:
        """Find a fall of the loss scale off a settled one; a search for it begins with the fall."""
        scale = finite(record.loss_scale)
        if scale is None or scale <= 0 or self._num > MAX_SAMPLES or "scale" in self._open:
            return []
        if self._scales and scale > self._scales[-1][1]:
            self._scales.clear()
        self._scales.append((record.step, scale))
        highest = self._scales[0][1]
        num_settled = sum(value == highest for _, value in self._scales)
        if num_settled < SETTLED_SAMPLES or scale * SCALE_FALL > highest:
            return []
        onset = next(step for step, value in self._scales if value < highest)
        self._open["scale"] = (onset, 0.0)
        evidence = (
            f"the loss scale fell from {number(highest)} to {number(scale)} in {len(self._scales) - num_settled} samples without "
            f"a rise (limit {number(SCALE_FALL)} times)"
        )
        return [incident("loss_scale_floor", onset, record.step, evidence)]


def _exp(value: float) -> float:
    """Return e to this power, or infinity beyond what a float holds."""
    return math.exp(value) if value < 709 else math.inf
