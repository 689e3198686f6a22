"""The scale on which a loss is judged: its logarithm, so that proportional noise is noise; plain once it is not positive."""

import math
from dataclasses import dataclass

from runner.detect.numerics.findings import number


@dataclass(frozen=True, slots=True)
class LossTransform:
    """From a loss to its scale, and back."""

    is_log: bool = True

    def scaled(self, loss: float) -> float:
        """Return a finite loss on the scale; ValueError for the logarithm of one that is not positive."""
        return math.log(loss) if self.is_log else loss

    def rise_by(self, ratio: float, level: float) -> float:
        """Return a rise from this level by a share of the loss, on the scale."""
        return math.log1p(ratio) if self.is_log else ratio * abs(level)

    def format(self, value: float) -> str:
        """Format a value of the scale as a loss."""
        return number(math.exp(min(value, 700.0)) if self.is_log else value)
