"""A loss that never moves: the weights do not change, or the loss does not depend on them.

It is judged of a whole log that is over, not of a live run: bars repeat a value until the next one is there.
"""

import math

from runner.detect.numerics.findings import NumericFinding, incident
from runner.facts.messages.signals import StepRecord

# Samples with one value, from the first on, and different steps among them: ranks may print the same step; both chosen.
MIN_SAMPLES, MIN_STEPS = 20, 10
# Digits of it: a small loss that is printed with four decimals may be rounded to one value, and 0 is no loss that is stuck. Chosen.
MIN_DIGITS = 4


class ConstantLoss:
    """Follows the loss of one log from its start."""

    def __init__(self) -> None:
        self._value: float | None = None
        self._num_samples = self._num_steps = 0
        self._first_step = self._last_step = 0
        self._has_moved = False

    def add(self, record: StepRecord) -> None:
        """Count a loss; those of skipped steps count, too."""
        if record.loss is None or self._has_moved:
            return
        if self._value is None:
            self._value, self._first_step = record.loss, record.step
            self._has_moved = not _is_precise(record.loss)
        self._has_moved |= record.loss != self._value
        self._num_steps += not self._num_samples or record.step != self._last_step
        self._num_samples += 1
        self._last_step = record.step

    def finding(self) -> NumericFinding | None:
        """Return what the log shows once it is over; None: the loss moves, or there are too few samples."""
        if self._value is None or self._has_moved:
            return None
        if self._num_samples < MIN_SAMPLES or self._num_steps < MIN_STEPS:
            return None
        evidence = (
            f"the loss is {self._value:.12g} in each of the {self._num_samples} samples of this log, from step "
            f"{self._first_step} to step {self._last_step}"
        )
        return incident("plateau", self._first_step, self._last_step, evidence)


def _is_precise(loss: float) -> bool:
    """Whether a loss has digits enough to show that it does not move."""
    if not math.isfinite(loss):
        return False
    mantissa = f"{abs(loss):.12g}".partition("e")[0]
    return len(mantissa.replace(".", "").strip("0")) >= MIN_DIGITS
