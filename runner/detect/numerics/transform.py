"""On which scale a loss is judged: its logarithm, so that noise in proportion to it is noise; plain, once it is not positive."""

from __future__ import annotations

import math
from dataclasses import dataclass

from runner.detect.numerics.findings import number


@dataclass(frozen=True, slots=True)
class Measure:
    """A scale, and the way back to what people know."""

    is_log: bool = True

    def scaled(self, loss: float) -> float:
        """Return where a finite loss lies on the scale; the logarithm of what is not positive is refused with ValueError."""
        return math.log(loss) if self.is_log else loss

    def part(self, ratio: float, level: float) -> float:
        """Return how much a rise by this share of the loss is, from this level on."""
        return math.log1p(ratio) if self.is_log else ratio * abs(level)

    def words(self, value: float) -> str:
        """Write a value of the scale as a loss."""
        return number(math.exp(min(value, 700.0)) if self.is_log else value)
