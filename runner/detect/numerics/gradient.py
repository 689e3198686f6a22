"""The gradient norm: jumps that lead a loss spike (by four steps in BLOOM's of April 2022).

Healthy runs have single samples of several times the usual norm (GPT-2 124M has two beyond five times in 10,000 steps), which
clipping is there for. So a jump is a note, and an incident once it is tenfold and lasts.
"""

from __future__ import annotations

import copy
import math

from runner.detect.numerics.findings import NumericFinding, incident, note, number
from runner.detect.numerics.rolling_quantiles import RollingQuantiles

# healthy samples; chosen, as for the loss
WINDOW = 48
# of them, before anything is judged; chosen
LEAST = 16
# above the median: what led BLOOM's loss by four steps
NOTE_FACTOR = 4.0
# chosen; BLOOM's gradient norm was there three steps before its loss
INCIDENT_FACTOR = 10.0
# of healthy samples' logarithms; chosen, as for the loss
SPREADS = 7.0
# for a jump of the loss to be believed at once; chosen
BACKING_FACTOR, BACKING_SPREADS = 2.0, 2.0
# beyond the furthest that a healthy sample has strayed; chosen, as for the loss
TAIL_FACTOR = 1.25
# one after the other, for an incident; chosen
LASTING_SAMPLES = 3
# a jump that soon after another is part of it; chosen
MERGE_SAMPLES = 20
# samples beyond the limit, before they are what is usual now; chosen, as for the loss
PATIENCE = 32

_NOTE_RISE = math.log(NOTE_FACTOR)


class GradientTrack:
    """Follows one gradient norm, by its logarithm."""

    def __init__(self) -> None:
        self._level = RollingQuantiles(WINDOW)
        self._strayed = 0.0
        # samples beyond the limit, one after the other
        self._high: list[float] = []
        # of them, tenfold, one after the other
        self._num_extreme = 0
        self._onset = 0
        # healthy samples since the last jump
        self._since = MERGE_SAMPLES
        # the jump is an incident already
        self._is_told = False

    @property
    def is_calm(self) -> bool:
        """Whether what has been learned is worth going back to after a rewind."""
        return not self._high

    def copy(self) -> GradientTrack:
        """Return a track that learns on its own from here; only of a calm one."""
        other = copy.copy(self)
        other._level, other._high = self._level.copy(), []
        return other

    def accept(self, norm: float) -> None:
        """Learn from a sample that is not judged: a change was announced."""
        if norm > 0:
            self._level.add(math.log(norm))

    def backs(self, norm: float | None) -> bool | None:
        """Return whether this norm, not yet taken, supports a jump of the loss; None where norms are not logged."""
        if len(self._level) < LEAST or norm is None:
            return None
        if not math.isfinite(norm) or norm <= 0:
            return norm != 0
        rise = math.log(norm) - self._level.median
        return rise > max(math.log(BACKING_FACTOR), BACKING_SPREADS * self._level.spread)

    def take(self, step: int, norm: float) -> list[NumericFinding]:
        """Judge a finite sample and learn from it. A norm of zero says nothing."""
        if norm <= 0:
            return []
        value = math.log(norm)
        if len(self._level) < LEAST:
            self._level.add(value)
            return []
        median = self._level.median
        rise = value - median
        if rise > _NOTE_RISE:
            limit = max(_NOTE_RISE, SPREADS * self._level.spread, TAIL_FACTOR * self._strayed)
            if rise > limit:
                return self._jump(step, value, median, limit)
        if self._high:
            self._high, self._num_extreme = [], 0
        self._since += 1
        if rise > self._strayed:
            self._strayed = rise
        self._level.add(value)
        return []

    def _jump(self, step: int, value: float, median: float, limit: float) -> list[NumericFinding]:
        if not self._high and self._since >= MERGE_SAMPLES:
            self._onset, self._is_told = step, False
            found = [note("grad_norm_spike", step, step, _evidence(step, value, median, limit))]
        else:
            found = []
        self._high.append(value)
        self._since = 0
        limit = max(limit, math.log(INCIDENT_FACTOR))
        self._num_extreme = self._num_extreme + 1 if value - median > limit else 0
        if self._num_extreme >= LASTING_SAMPLES and not self._is_told:
            self._is_told = True
            evidence = f"{_evidence(step, value, median, limit)}, for {self._num_extreme} samples"
            found.append(incident("grad_norm_spike", self._onset, step, evidence))
        if len(self._high) >= PATIENCE:
            self._settle()
        return found

    def _settle(self) -> None:
        """Take what the norm is now for what is usual."""
        self._level.clear()
        for value in self._high[-LEAST:]:
            self._level.add(value)
        self._high, self._num_extreme = [], 0


def _evidence(step: int, value: float, median: float, limit: float) -> str:
    return (
        f"gradient norm {number(_bounded_exp(value))} at step {step}, {number(_bounded_exp(value - median))} times the median of "
        f"the last healthy samples, {number(math.exp(median))} (limit {number(_bounded_exp(limit))} times)"
    )


def _bounded_exp(value: float) -> float:
    """Return e to this power, or infinity beyond what a float holds."""
    return math.exp(value) if value < 709 else math.inf
