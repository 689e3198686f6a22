"""A loss that rises too slowly for a single sample to stand out: its level has left the lowest one seen."""

import copy
import math
from collections import deque

from runner.detect.numerics.findings import NumericFinding, incident, recovery
from runner.detect.numerics.memory import Remembered
from runner.detect.numerics.rolling_quantiles import Excursion, RollingQuantiles, change_at
from runner.detect.numerics.transform import LossTransform

# Of the loss; chosen.
RISEN_RATIO = 0.10
# Of the samples behind the median, their wandering included; chosen on synthetic runs that wander.
SPREADS = 4.0
# Times the furthest excursion of a healthy level; chosen.
TAIL_FACTOR = 1.5
# For which the level must have risen; chosen.
LASTING_SAMPLES = 16
# Samples among which the onset of the rise is searched for; chosen.
HISTORY = 192
# After a divergence, before a rise is measured against the new level; chosen.
REST_SAMPLES = 192


class LossDrift(Remembered):
    """Compares the median of healthy samples with the lowest one."""

    _best: float
    _excursion: Excursion
    _num_risen: int
    _num_resting: int
    _history: deque[tuple[int, float]]
    # Onset of a divergence, and the level below which the loss is back.
    _diverged: tuple[int, float] | None

    def __init__(self) -> None:
        self._best = math.inf
        self._excursion = Excursion()
        self._num_risen = 0
        self._num_resting = 0
        self._history = deque(maxlen=HISTORY)
        self._diverged = None

    def __copy__(self) -> "LossDrift":
        other = LossDrift()
        other.__dict__ = {name: copy.copy(value) for name, value in vars(self).items()}
        return other

    @property
    def is_resting(self) -> bool:
        """Whether a divergence was just reported, and the new level is not settled."""
        return self._num_resting > 0

    def restart(self, onset_step: int, back: float) -> None:
        """Start over after a divergence; it has recovered once the level is below `back` again."""
        self._diverged, self._num_resting = (
            self._diverged if self._num_resting else (onset_step, back),
            REST_SAMPLES,
        )
        self._best, self._num_risen = math.inf, 0
        self._excursion.restart()

    def judge(
        self, step: int, value: float, level: RollingQuantiles, transform: LossTransform
    ) -> list[NumericFinding]:
        """Judge the level of a full window and its newest sample."""
        self._history.append((step, value))
        median = level.median
        if self._diverged is not None and median <= self._diverged[1]:
            onset, self._diverged, self._num_resting = self._diverged[0], None, 0
            self._excursion.recover()
            evidence = f"the loss came back to {transform.format(median)}"
            return [recovery("divergence", onset, step, evidence)]
        if self._num_resting:
            self._num_resting -= 1
            return []
        if median < self._best:
            self._best = median
        over = median - self._best
        if over > transform.rise_by(RISEN_RATIO, self._best):
            return self._risen(step, level, transform)
        self._num_risen = 0
        self._excursion.add(over)
        return []

    def _risen(
        self, step: int, level: RollingQuantiles, transform: LossTransform
    ) -> list[NumericFinding]:
        best, median = self._best, level.median
        limit = max(
            transform.rise_by(RISEN_RATIO, best),
            SPREADS * level.spread,
            TAIL_FACTOR * self._excursion.furthest,
        )
        self._excursion.add(median - best)
        self._num_risen = self._num_risen + 1 if median - best > limit else 0
        if self._num_risen < LASTING_SAMPLES:
            return []
        values = [value for _, value in self._history]
        onset = self._history[change_at(values, best + limit / 2)][0]
        evidence = (
            f"the median of the last samples rose from {transform.format(best)} to {transform.format(median)} (limit "
            f"{transform.format(best + limit)} for {LASTING_SAMPLES} samples)"
        )
        self.restart(onset, best + limit / 2)
        return [incident("divergence", onset, step, evidence)]
