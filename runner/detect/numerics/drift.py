"""A loss that rises too slowly for any single sample to stand out: its level itself has left the lowest one there was."""

from __future__ import annotations

import copy
import math
from collections import deque

from runner.detect.numerics.findings import NumericFinding, incident, recovery
from runner.detect.numerics.rolling_quantiles import Excursion, RollingQuantiles, change_at
from runner.detect.numerics.transform import Measure

# of the loss; chosen
RISEN_RATIO = 0.10
# of the samples behind the median, their wandering included; chosen on synthetic runs that wander
SPREADS = 4.0
# beyond the furthest that a healthy level has wandered and come back; chosen
TAIL_FACTOR = 1.5
# for which the level must have risen; chosen
LASTING_SAMPLES = 16
# samples among which the first one of the rise is looked for; chosen
HISTORY = 192
# after a divergence, before the new level is what a rise is measured against; chosen
REST_SAMPLES = 192


class DriftTrack:
    """Compares the median of healthy samples with the lowest one."""

    def __init__(self) -> None:
        self._best = math.inf
        self._reach = Excursion()
        self._num_risen = 0
        self._rest = 0
        self._history: deque[tuple[int, float]] = deque(maxlen=HISTORY)
        # onset of a divergence, and what would be back
        self._lost: tuple[int, float] | None = None

    def copy(self) -> DriftTrack:
        """Return a track that learns on its own from here."""
        other = copy.copy(self)
        other._reach, other._history = copy.copy(self._reach), self._history.copy()
        return other

    @property
    def is_resting(self) -> bool:
        """Whether a divergence was found just now, and its new level is not settled."""
        return self._rest > 0

    def lose(self, onset_step: int, back: float) -> None:
        """Begin anew: the loss has left for good, unless its level is below `back` again."""
        self._lost, self._rest = self._lost if self._rest else (onset_step, back), REST_SAMPLES
        self._best, self._num_risen = math.inf, 0
        self._reach.leave()

    def take(
        self, step: int, value: float, level: RollingQuantiles, measure: Measure
    ) -> list[NumericFinding]:
        """Judge the level of a full window, and the sample that comes to it."""
        self._history.append((step, value))
        median = level.median
        if self._lost is not None and median <= self._lost[1]:
            onset, self._lost, self._rest = self._lost[0], None, 0
            self._reach.come_back()
            evidence = f"the loss came back to {measure.words(median)}"
            return [recovery("divergence", onset, step, evidence)]
        if self._rest:
            self._rest -= 1
            return []
        if median < self._best:
            self._best = median
        over = median - self._best
        if over > measure.part(RISEN_RATIO, self._best):
            return self._risen(step, level, measure)
        self._num_risen = 0
        self._reach.add(over)
        return []

    def _risen(self, step: int, level: RollingQuantiles, measure: Measure) -> list[NumericFinding]:
        best, median = self._best, level.median
        limit = max(
            measure.part(RISEN_RATIO, best),
            SPREADS * level.spread,
            TAIL_FACTOR * self._reach.furthest,
        )
        self._reach.add(median - best)
        self._num_risen = self._num_risen + 1 if median - best > limit else 0
        if self._num_risen < LASTING_SAMPLES:
            return []
        values = [value for _, value in self._history]
        onset = self._history[change_at(values, best + limit / 2)][0]
        evidence = (
            f"the median of the last samples rose from {measure.words(best)} to {measure.words(median)} (limit "
            f"{measure.words(best + limit)} for {LASTING_SAMPLES} samples)"
        )
        self.lose(onset, best + limit / 2)
        return [incident("divergence", onset, step, evidence)]
