"""The loss: spikes, and divergence that does not come back.

A sample is abnormal when it lies above the median of the last healthy ones by a quarter, by six times the spread of their noise,
and by more than the run has strayed before while it was healthy: a run with heavy tails teaches its own limit. Noise is what one
sample differs from the next by, so that a falling loss counts for its noise and not for its fall. Abnormal samples open an
*episode* and are not learned from. It ends when the loss is back, or after `PATIENCE` samples, when the loss has diverged and what
it is now becomes what later spikes are measured against.

Rules of others on healthy runs (see bench/detectors): six sigma of 128 alarms on tails of healthy noise, a multiple of the early
maximum cannot fire once the loss has fallen, twice the mean for five samples misses what heals sooner.
"""

from __future__ import annotations

import copy
import math
from collections import deque
from dataclasses import dataclass

from runner.detect.levels import Level, change_at
from runner.detect.numerics_findings import NumericFinding, incident, number, recovery

WINDOW = 48  # healthy samples behind a level; chosen
LEAST = 16  # of them, before anything is judged: the first samples of a run fall steeply; chosen
RISE_RATIO = 0.25  # a jump of less is no spike, however quiet the run was; chosen on the development half of the curves
SPREADS = 6.0  # of the noise of healthy samples; chosen on the development half of the curves
TAIL_FACTOR = 1.25  # beyond the furthest that a healthy sample has strayed; chosen
RISEN_RATIO = 0.10  # a rise that lasts is one from here on; chosen
RISEN_SAMPLES = 4  # one after the other, that high; chosen
BACK_SAMPLES = 3  # one after the other, before an episode is over; chosen
PATIENCE = 32  # samples; BLOOM's spike of April 2022 came back by itself within 30 steps
MERGE_SAMPLES = 20  # a spike that soon after another is part of it; chosen
DRIFT_SAMPLES = 16  # for which the level itself must have risen; chosen
DRIFT_SPREADS = 2.0  # that a level must have risen: eight standard errors of its median, and healthy runs wander; chosen
HISTORY = 4 * WINDOW  # samples among which the first one of a drift is looked for; chosen
REST_SAMPLES = (
    4 * WINDOW
)  # after a divergence, before the new level counts as what a drift is measured against; chosen


@dataclass(slots=True)
class _Episode:
    """A stretch of abnormal samples. `level` and `limit` are as they were before it, on the scale that is judged."""

    onset_step: int
    level: float
    limit: float
    num_samples: int = 0
    num_back: int = 0


class LossTrack:
    """Follows one loss. Positive losses are judged by their logarithm, so that noise in proportion to the loss is noise."""

    def __init__(self) -> None:
        self._level = Level(WINDOW)
        self._changes = Level(WINDOW)  # from one healthy sample to the next
        self._last: float | None = None
        self._is_log = True
        self._strayed = 0.0  # the furthest above its level that a healthy sample was
        self._episode: _Episode | None = None
        self._past: _Episode | None = None  # the one before, for `MERGE_SAMPLES`
        self._since_past = 0
        self._recent: deque[float] = deque(maxlen=PATIENCE)  # of the episode
        self._risen: tuple[int, int] = (
            0,
            0,
        )  # samples one after the other that had risen, and the first one's step
        self._best = math.inf  # the lowest level there was
        self._history: deque[tuple[int, float]] = deque(maxlen=HISTORY)
        self._num_drifted = 0
        self._lost: _Episode | None = None  # a divergence that has not come back
        self._rest = 0

    @property
    def is_calm(self) -> bool:
        """Whether what has been learned is worth going back to after a rewind."""
        return self._episode is None and self._risen[0] == 0

    def copy(self) -> LossTrack:
        """Return a track that learns on its own from here; only of a calm one."""
        other = copy.copy(self)
        other._level, other._changes = self._level.copy(), self._changes.copy()
        other._recent = self._recent.copy()
        return other

    def accept(self, loss: float) -> None:
        """Learn from a sample that is not judged: a change was announced."""
        self._learn(self._scaled(loss))

    def take(self, step: int, loss: float) -> list[NumericFinding]:
        """Judge a finite sample and learn from it."""
        value = self._scaled(loss)
        if self._episode is not None:
            return self._follow(self._episode, step, value)
        if len(self._level) < LEAST:
            self._learn(value)
            return []
        self._since_past += 1
        median = self._level.median
        spread = self._noise
        rise = value - median
        limit = max(self._part(RISE_RATIO, median), SPREADS * spread)
        if rise > max(limit, TAIL_FACTOR * self._strayed):
            return self._open(step, step, value, max(limit, TAIL_FACTOR * self._strayed))
        risen = self._count_risen(
            step, rise, max(self._part(RISEN_RATIO, median), SPREADS * spread)
        )
        if risen is not None:
            return self._open(risen, step, value, limit)
        if not self._risen[0]:
            self._strayed = max(self._strayed, rise)
        self._learn(value)
        self._history.append((step, value))
        return self._drift(step)

    @property
    def _noise(self) -> float:
        """The standard deviation of healthy samples around wherever the loss is just then."""
        return self._changes.spread / math.sqrt(2) if len(self._changes) else math.inf

    def _learn(self, value: float) -> None:
        if self._last is not None:
            self._changes.add(value - self._last)
        self._last = value
        self._level.add(value)

    def _scaled(self, loss: float) -> float:
        if self._is_log and loss <= 0:
            self._is_log, self._last, self._strayed = False, None, 0.0
            self._level.clear()
            self._changes.clear()
            self._episode, self._past, self._lost, self._best = None, None, None, math.inf
        return math.log(loss) if self._is_log else loss

    def _part(self, ratio: float, median: float) -> float:
        """Return how much a rise by this share of the loss is, on the scale that is judged."""
        return math.log1p(ratio) if self._is_log else ratio * abs(median)

    def _raw(self, value: float) -> str:
        return number(math.exp(value) if self._is_log else value)

    def _count_risen(self, step: int, rise: float, limit: float) -> int | None:
        """Count samples that lie clearly higher one after the other; return the first one's step when they are enough."""
        count, first = self._risen
        if rise <= limit:
            self._risen = (0, 0)
            return None
        self._risen = (count + 1, first if count else step)
        return self._risen[1] if self._risen[0] >= RISEN_SAMPLES else None

    def _open(self, onset: int, step: int, value: float, limit: float) -> list[NumericFinding]:
        """Begin an episode, or go on with the one before if that was just now."""
        self._risen = (0, 0)
        median = self._level.median
        past = self._past if self._since_past <= MERGE_SAMPLES else None
        episode = past or _Episode(onset, median, limit)
        episode.num_back, episode.num_samples = 0, 1
        self._episode = episode
        self._recent.append(value)
        if past is not None:
            return []
        since = "" if onset == step else f" (raised since step {onset})"
        evidence = (
            f"loss {self._raw(value)} at step {step}{since}: the median of the last {len(self._level)} healthy samples was "
            f"{self._raw(median)}, the limit {self._raw(median + limit)}"
        )
        return [incident("loss_spike", onset, step, evidence)]

    def _follow(self, episode: _Episode, step: int, value: float) -> list[NumericFinding]:
        """Wait for the loss to come back."""
        self._recent.append(value)
        episode.num_samples += 1
        is_back = value - episode.level <= episode.limit / 2
        episode.num_back = episode.num_back + 1 if is_back else 0
        if episode.num_back >= BACK_SAMPLES:
            return self._close(episode, step)
        if episode.num_samples < PATIENCE or is_back:
            return []
        lowest = min(self._recent)
        evidence = (
            f"loss {self._raw(value)} at step {step}, {episode.num_samples} samples after it left {self._raw(episode.level)} "
            f"at step {episode.onset_step}; it was never below {self._raw(lowest)} in the last {len(self._recent)} of them (limit "
            f"{self._raw(episode.level + episode.limit / 2)} for {BACK_SAMPLES} samples)"
        )
        self._settle(episode)
        return [incident("divergence", episode.onset_step, step, evidence)]

    def _close(self, episode: _Episode, step: int) -> list[NumericFinding]:
        for value in list(self._recent)[-BACK_SAMPLES:]:
            self._learn(value)
        self._recent.clear()
        self._episode, self._past, self._since_past = None, episode, 0
        num_high = episode.num_samples - BACK_SAMPLES
        evidence = f"the loss came back to {self._raw(self._level.median)} after {num_high} samples"
        return [recovery("loss_spike", episode.onset_step, step, evidence)]

    def _settle(self, episode: _Episode) -> None:
        """Take what the loss is now for the level that later spikes are measured against."""
        self._level.clear()
        self._changes.clear()
        self._last = None
        for value in list(self._recent)[-LEAST:]:
            self._learn(value)
        self._recent.clear()
        self._episode, self._past = None, None
        self._lost, self._rest = episode, REST_SAMPLES
        self._best, self._num_drifted = math.inf, 0

    def _drift(self, step: int) -> list[NumericFinding]:
        """Look whether the level itself has risen, too slowly for any single sample to stand out."""
        median = self._level.median
        if self._lost is not None and median <= self._lost.level + self._lost.limit / 2:
            lost, self._lost, self._rest = self._lost, None, 0
            evidence = f"the loss came back to {self._raw(median)}"
            return [recovery("divergence", lost.onset_step, step, evidence)]
        self._rest -= self._rest > 0
        if self._rest or len(self._level) < self._level.size:
            return []
        self._best = min(self._best, median)
        limit = max(self._part(RISEN_RATIO, self._best), DRIFT_SPREADS * self._noise)
        self._num_drifted = self._num_drifted + 1 if median > self._best + limit else 0
        if self._num_drifted < DRIFT_SAMPLES:
            return []
        best = self._best
        values = [past for _, past in self._history]
        onset = self._history[change_at(values, best + limit / 2)][0]
        evidence = (
            f"the median of {len(self._level)} samples rose from {self._raw(best)} to {self._raw(median)} (limit "
            f"{self._raw(best + limit)} for {DRIFT_SAMPLES} samples)"
        )
        self._lost, self._rest = _Episode(onset, best, limit), REST_SAMPLES
        self._best, self._num_drifted = math.inf, 0
        return [incident("divergence", onset, step, evidence)]
