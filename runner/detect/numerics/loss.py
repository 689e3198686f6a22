"""The loss: spikes, and divergence that does not come back.

A sample is abnormal when it lies above the median of the last healthy ones by a quarter, by six times the spread of their noise,
and by more than the run has strayed before while it was healthy: a run with heavy tails teaches its own limit. Noise is what one
sample differs from the next by, so that a falling loss counts for its noise and not for its fall. A single sample that the gradient
norm knows nothing of is noise of the measurement, or of one batch: a note.

Abnormal samples open an *episode* and are not learned from. It ends when the loss is back, or after `PATIENCE` samples, when the
loss has diverged and what it is now becomes what later spikes are measured against.

Rules of others (bench/detectors runs them): six sigma of 128 alarms on tails of healthy noise, a multiple of the early maximum
cannot fire once the loss has fallen, twice the mean for five samples misses what heals sooner.
"""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from runner.detect.numerics.drift import DriftTrack
from runner.detect.numerics.findings import NumericFinding, incident, note, recovery
from runner.detect.numerics.rolling_quantiles import Excursion, RollingQuantiles
from runner.detect.numerics.transform import Measure

# healthy samples behind a level; chosen
WINDOW = 48
# of them, before anything is judged: the first samples of a run fall steeply; chosen
LEAST = 16
# Before that, what jumps off a loss that has settled is a spike all the same: so many samples that lie within so little of each
# other, and a jump of so much; all chosen
EARLY_LEAST, EARLY_CALM, EARLY_RATIO = 3, 0.25, 0.5
# a jump of less is no spike, however quiet the run was; chosen on the development half of the curves
RISE_RATIO = 0.25
# of the noise of healthy samples; chosen on the development half of the curves
SPREADS = 6.0
# Times the furthest that a healthy sample has strayed: of a jump that the gradient norm made, too, and of any other; chosen
BACKED_TAIL_FACTOR, TAIL_FACTOR = 1.0, 1.25
# beyond the limit; one is enough if the gradient norm rose with it; chosen
CERTAIN_SAMPLES = 2
# Times the limit, for one sample to be enough after all: where no gradient norm is logged, and where it did not rise (some
# trainers log it after clipping); chosen
ALONE_FACTOR, AGAINST_FACTOR = 1.5, 3.0
# a rise that lasts for `LASTING_SAMPLES` is a jump from here on; chosen
LASTING_RATIO = 0.10
# chosen
LASTING_SAMPLES = 4
# one after the other, before an episode is over; chosen
BACK_SAMPLES = 3
# samples; BLOOM's spike of April 2022 came back by itself within 30 steps
PATIENCE = 32
# a spike that soon after another is part of it; chosen
MERGE_SAMPLES = 20


@dataclass(slots=True)
class _Episode:
    """A stretch of abnormal samples. `level` and `limit` are as they were before it, on the scale that is judged."""

    onset_step: int
    level: float
    limit: float
    num_samples: int = 0
    num_back: int = 0
    # samples beyond the limit
    num_high: int = 0
    is_told: bool = False


def _nobody_knows() -> None:
    """Say of a jump that there is no gradient norm to support it."""


class LossTrack:
    """Follows one loss."""

    def __init__(self) -> None:
        self._measure = Measure()
        self._level = RollingQuantiles(WINDOW)
        # healthy samples, until there are `LEAST`
        self._first: list[float] = []
        # from one healthy sample to the next
        self._changes = RollingQuantiles(WINDOW)
        self._drift = DriftTrack()
        self._last: float | None = None
        # of single samples above their level
        self._reach = Excursion()
        # of the lowest of `LASTING_SAMPLES`
        self._lasting_reach = Excursion()
        self._rises: deque[tuple[int, float]] = deque(
            maxlen=LASTING_SAMPLES
            # step, above the level
        )
        self._episode: _Episode | None = None
        # of the episode
        self._recent: deque[float] = deque(maxlen=PATIENCE)
        # the one before, for `MERGE_SAMPLES`
        self._past: _Episode | None = None
        self._since_past = 0

    @property
    def is_calm(self) -> bool:
        """Whether what has been learned is worth going back to after a rewind."""
        return self._episode is None

    @property
    def is_told(self) -> bool:
        """Whether the loss is abnormal just now, and that was said."""
        return self._episode is not None and self._episode.is_told

    def copy(self) -> LossTrack:
        """Return a track that learns on its own from here; only of a calm one."""
        other = copy.copy(self)
        other._level, other._changes = self._level.copy(), self._changes.copy()
        other._reach, other._lasting_reach = copy.copy(self._reach), copy.copy(self._lasting_reach)
        other._drift, other._rises = self._drift.copy(), self._rises.copy()
        other._recent, other._first = self._recent.copy(), list(self._first)
        return other

    def accept(self, loss: float) -> None:
        """Learn from a sample that is not judged: a change was announced."""
        self._learn(self._scaled(loss))

    def take(
        self, step: int, loss: float, backed: Callable[[], bool | None] = _nobody_knows
    ) -> list[NumericFinding]:
        """Judge a finite sample and learn from it. `backed`: whether the gradient norm rose too; None: it is not logged."""
        value = self._scaled(loss)
        if self._episode is not None:
            return self._follow(self._episode, step, value)
        if len(self._level) < LEAST:
            if self._leaps(value):
                limit = self._measure.part(EARLY_RATIO, self._level.median)
                return self._open(step, step, value, limit, is_certain=bool(backed()))
            self._first.append(value)
            self._learn(value)
            return []
        self._since_past += 1
        median = self._level.median
        rise = value - median
        self._rises.append((step, rise))
        if rise <= 0:
            self._lasting_reach.add(0.0)
        else:
            opened = self._judge(step, value, rise, backed)
            if opened is not None:
                return opened
        self._reach.add(rise)
        self._learn(value)
        if len(self._level) < WINDOW:
            return []
        return self._drift.take(step, value, self._level, self._measure)

    def _leaps(self, value: float) -> bool:
        """Whether one of the first samples jumps off a loss that had settled: a log that begins in the middle of a run."""
        if len(self._first) < EARLY_LEAST:
            return False
        median = self._level.median
        is_settled = max(self._first) - min(self._first) <= self._measure.part(EARLY_CALM, median)
        return is_settled and value - median > self._measure.part(EARLY_RATIO, median)

    def _judge(
        self, step: int, value: float, rise: float, backed: Callable[[], bool | None]
    ) -> list[NumericFinding] | None:
        """Begin an episode with a sample above its level, if it is abnormal or the last one of several; None: it is neither."""
        noise_limit = SPREADS * self._changes.spread / math.sqrt(2)
        limit = max(self._measure.part(RISE_RATIO, value - rise), noise_limit)
        if rise > max(limit, BACKED_TAIL_FACTOR * self._reach.furthest):
            is_backed = backed()
            if not is_backed:
                limit = max(limit, TAIL_FACTOR * self._reach.furthest)
            is_far = rise > (ALONE_FACTOR if is_backed is None else AGAINST_FACTOR) * limit
            if rise > limit:
                is_certain = bool(is_backed) or is_far
                return self._open(step, step, value, limit, is_certain=is_certain)
        lowest = min(past for _, past in self._rises)
        limit = max(
            self._measure.part(LASTING_RATIO, value - rise),
            noise_limit,
            TAIL_FACTOR * self._lasting_reach.furthest,
        )
        self._lasting_reach.add(lowest)
        if lowest <= limit or len(self._rises) < LASTING_SAMPLES:
            return None
        return self._open(self._rises[0][0], step, value, limit, is_certain=True)

    def _learn(self, value: float) -> None:
        if self._last is not None:
            self._changes.add(value - self._last)
        self._last = value
        self._level.add(value)

    def _scaled(self, loss: float) -> float:
        if loss <= 0 and self._measure.is_log:
            # what was learned is on the other scale
            self.__dict__.update(LossTrack().__dict__)
            self._measure = Measure(is_log=False)
        return self._measure.scaled(loss)

    def _open(
        self, onset: int, step: int, value: float, limit: float, *, is_certain: bool
    ) -> list[NumericFinding]:
        """Begin an episode, or go on with the one before if that was just now."""
        past = self._past if self._since_past <= MERGE_SAMPLES else None
        if past is None or not past.is_told:
            past = _Episode(onset, self._level.median, limit)
        past.num_back, past.num_samples, past.num_high = 0, 1, 1
        self._episode = past
        self._recent.append(value)
        self._rises.clear()
        return self._tell(past, step, value) if is_certain else []

    def _tell(self, episode: _Episode, step: int, value: float) -> list[NumericFinding]:
        """Say once that the loss has jumped."""
        if episode.is_told:
            return []
        episode.is_told = True
        return [incident("loss_spike", episode.onset_step, step, self._words(episode, step, value))]

    def _words(self, episode: _Episode, step: int, value: float) -> str:
        since = "" if episode.onset_step == step else f", raised since step {episode.onset_step}"
        words = self._measure.words
        return (
            f"loss {words(value)} at step {step}{since}: the median of the last {len(self._level)} healthy samples was "
            f"{words(episode.level)}, the limit {words(episode.level + episode.limit)}"
        )

    def _follow(self, episode: _Episode, step: int, value: float) -> list[NumericFinding]:
        """Wait for the loss to come back."""
        self._recent.append(value)
        episode.num_samples += 1
        is_back = value - episode.level <= episode.limit / 2
        episode.num_back = episode.num_back + 1 if is_back else 0
        if episode.num_back >= BACK_SAMPLES:
            return self._close(episode, step)
        episode.num_high += value - episode.level > episode.limit
        found = self._tell(episode, step, value) if episode.num_high >= CERTAIN_SAMPLES else []
        if episode.num_samples < PATIENCE or is_back:
            return found
        words, back = self._measure.words, episode.level + episode.limit / 2
        evidence = (
            f"loss {words(value)} at step {step}, {episode.num_samples} samples after it left {words(episode.level)} at step "
            f"{episode.onset_step}; the lowest of the last {len(self._recent)} was {words(min(self._recent))} (limit "
            f"{words(back)} for {BACK_SAMPLES} samples)"
        )
        is_known = self._drift.is_resting
        self._settle(episode)
        self._drift.lose(episode.onset_step, back)
        if is_known:
            return found
        return [*found, incident("divergence", episode.onset_step, step, evidence)]

    def _close(self, episode: _Episode, step: int) -> list[NumericFinding]:
        """Go on as before."""
        highest = max(self._recent)
        for value in list(self._recent)[-BACK_SAMPLES:]:
            self._learn(value)
        self._recent.clear()
        self._episode, self._past, self._since_past = None, episode, 0
        if not episode.is_told:
            # it was noise, and there may be more
            self._reach.teach(highest - episode.level)
            words = f"{self._words(episode, episode.onset_step, highest)}; it came back at once"
            return [note("loss_spike", episode.onset_step, step, words)]
        level = self._measure.words(self._level.median)
        num_high = episode.num_samples - BACK_SAMPLES
        evidence = f"the loss came back to {level} after {num_high} samples"
        return [recovery("loss_spike", episode.onset_step, step, evidence)]

    def _settle(self, episode: _Episode) -> None:
        """Take what the loss is now for the level that later spikes are measured against."""
        self._level.clear()
        self._changes.clear()
        self._last = None
        for value in list(self._recent)[-LEAST:]:
            self._learn(value)
        self._recent.clear()
        self._episode, self._past, self._since_past = None, episode, 0
