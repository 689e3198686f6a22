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
# A first loss after more steps and lines than that, and than twice what lies between later ones, may be the mean of the epoch
# before, which a bar repeats. An excerpt begins late, but with a loss.
MOST_BEFORE, MOST_GAPS = 10, 2


class ConstantLoss:
    """Follows the loss of one log from its start."""

    def __init__(self) -> None:
        self._value: float | None = None
        self._num_samples = self._num_steps = 0
        self._first_step = self._last_step = 0
        self._first_line = self._last_line = 0
        self._has_moved = False

    def add(self, record: StepRecord, line: int) -> None:
        """Count a loss of a line; those of skipped steps count, too."""
        if record.loss is None or self._has_moved:
            return
        if self._value is None:
            self._value, self._first_step = record.loss, record.step
            self._first_line = line
            self._has_moved = not has_digits(record.loss, MIN_DIGITS)
        self._has_moved |= record.loss != self._value
        self._num_steps += not self._num_samples or record.step != self._last_step
        self._num_samples += 1
        self._last_step, self._last_line = record.step, line

    def finding(self) -> NumericFinding | None:
        """Return what the log shows once it is over; None: the loss moves, or there are too few samples."""
        if self._value is None or self._has_moved:
            return None
        if self._num_samples < MIN_SAMPLES or self._num_steps < MIN_STEPS:
            return None
        if self._begins_late():
            return None
        evidence = (
            f"the loss is {self._value:.12g} in each of the {self._num_samples} samples of this log, from step "
            f"{self._first_step} to step {self._last_step}"
        )
        return incident("plateau", self._first_step, self._last_step, evidence)

    def _begins_late(self) -> bool:
        """Whether steps without a loss may have come before: by its step, and by the lines before it, if it is on lines at all."""
        steps, lines = self._last_step - self._first_step, self._last_line - self._first_line
        if self._first_step <= MOST_BEFORE + MOST_GAPS * steps / (self._num_steps - 1):
            return False
        most_lines = MOST_BEFORE + MOST_GAPS * lines / (self._num_samples - 1)
        return lines < MIN_STEPS or self._first_line > most_lines


def has_digits(value: float, least: int) -> bool:
    """Whether a value is finite and was printed with so many digits that count: two of them that are equal are no chance."""
    if not math.isfinite(value):
        return False
    mantissa = f"{abs(value):.12g}".partition("e")[0]
    return len(mantissa.replace(".", "").strip("0")) >= least
