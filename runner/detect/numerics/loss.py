"""The loss: spikes, and divergence that does not come back.

A sample is abnormal when it lies above the median of the last healthy ones by a quarter, by six times the spread of their noise,
and by more than the run's excursions while it was healthy: a run with heavy tails teaches its own limit. Noise is the difference
between one sample and the next, so that a falling loss counts for its noise and not for its fall. A single sample that the
gradient norm does not confirm is noise of the measurement, or of one batch: a note.

Abnormal samples open a *spike* and are not learned from. It ends when the loss is back, or after `PATIENCE` samples, when the
loss has diverged and its present level becomes the one that later spikes are measured against.

Rules of others (bench/detectors runs them): six sigma of 128 alarms on tails of healthy noise, a multiple of the early maximum
cannot fire once the loss has fallen, twice the mean for five samples misses what heals sooner.
"""

import math
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from runner.detect.numerics.drift import LossDrift
from runner.detect.numerics.findings import NumericFinding, incident, note, recovery
from runner.detect.numerics.gradient import GradientDetector
from runner.detect.numerics.metric_detector import Extra, MetricDetector, finite, register_metric
from runner.detect.numerics.rolling_quantiles import Excursion, RollingQuantiles
from runner.detect.numerics.transform import LossTransform
from runner.facts.messages.signals import StepRecord

# Healthy samples behind a level; chosen.
WINDOW = 48
# Of them, before anything is judged: the first samples of a run fall steeply; chosen.
LEAST = 16
# Before that, a jump off a settled loss is a spike all the same: so many samples within so little of each other, and a jump of so
# much, and so many times what they differ; all chosen.
EARLY_LEAST, EARLY_CALM, EARLY_FIRST, EARLY_RANGES = 3, 0.25, 1.1, 4.0
# Of the samples that follow; chosen.
EARLY_RATIO = 0.5
# A smaller jump is no spike, however little noise the run has; chosen on the development half of the curves.
RISE_RATIO = 0.25
# Of the noise of healthy samples; chosen on the development half of the curves.
SPREADS = 6.0
# Times the furthest excursion of a healthy sample: for a jump that the gradient norm confirms, and for any other; chosen.
BACKED_TAIL_FACTOR, TAIL_FACTOR = 1.0, 1.25
# Beyond the limit; one is enough if the gradient norm confirms it; chosen.
CERTAIN_SAMPLES = 2
# Times the limit, for one sample to be enough after all: where no gradient norm is logged, and where it did not rise (some
# trainers log it after clipping); chosen.
ALONE_FACTOR, AGAINST_FACTOR = 1.5, 3.0
# A rise that lasts for `LASTING_SAMPLES` is a jump from here on; chosen.
LASTING_RATIO = 0.10
# Chosen.
LASTING_SAMPLES = 4
# In a row, before a spike is over; chosen.
BACK_SAMPLES = 3
# A loss so far above its level before in each of so many samples has diverged, without more patience, if it is as high as that,
# too: losses of policies lie near 0, and rise to many times that. All chosen.
FAR_RATIO, FAR_SAMPLES, FAR_LOSS = 99.0, 6, 1.0
# Samples; BLOOM's spike of April 2022 came back by itself within 30 steps.
PATIENCE = 32
# A spike that soon after another is part of it; chosen.
MERGE_SAMPLES = 20


@dataclass(slots=True)
class _Spike:
    """A stretch of abnormal samples. `level` and `limit` are those of before it, on the scale that is judged."""

    onset_step: int
    level: float
    limit: float
    num_samples: int = 0
    num_back: int = 0
    # Samples beyond the limit.
    num_high: int = 0
    is_reported: bool = False


class Usual(NamedTuple):
    """The median of a window of losses, on the scale in which they are judged (None: too few), and the spread of single ones."""

    median: float | None
    spread: float


@register_metric
class LossDetector(MetricDetector):
    """Follows one loss."""

    order = 40
    metric = "loss"
    is_rewound = True
    _transform: LossTransform
    _level: RollingQuantiles
    # Healthy samples, until there are `LEAST`.
    _first: list[float]
    # From one healthy sample to the next.
    _changes: RollingQuantiles
    _drift: LossDrift
    _last: float | None
    # Of single samples above their level.
    _excursion: Excursion
    # Of the lowest of `LASTING_SAMPLES`.
    _lasting_excursion: Excursion
    # Steps, and rises above the level.
    _rises: deque[tuple[int, float]]
    _spike: _Spike | None
    # Samples of the spike.
    _recent: deque[float]
    # The last spike, for `MERGE_SAMPLES`.
    _past: _Spike | None
    _since_past: int

    def reset(self) -> None:
        self._transform = LossTransform()
        self._level = RollingQuantiles(WINDOW)
        self._first = []
        self._changes = RollingQuantiles(WINDOW)
        self._drift = LossDrift()
        self._last = None
        self._excursion = Excursion()
        self._lasting_excursion = Excursion()
        self._rises = deque(maxlen=LASTING_SAMPLES)
        self._spike = None
        self._recent = deque(maxlen=PATIENCE)
        self._past = None
        self._since_past = 0

    @property
    def is_calm(self) -> bool:
        """Whether no spike is open."""
        return self._spike is None

    @property
    def usual(self) -> Usual:
        """Return the level of the last healthy losses, once they are many enough."""
        if len(self._level) < WINDOW:
            return Usual(None, 0.0)
        return Usual(self._level.median, self._level.spread)

    @property
    def is_abnormal(self) -> bool:
        """Whether a reported spike is open."""
        return self._spike is not None and self._spike.is_reported

    def accept(self, record: StepRecord) -> None:
        loss = finite(record.loss)
        if loss is not None:
            self._learn(self._scaled(loss))

    def judge(self, record: StepRecord, extra: Extra) -> list[NumericFinding]:
        """Judge a finite loss and learn from it; the gradient norm of the same record may confirm a jump."""
        loss, step = finite(record.loss), record.step
        if loss is None:
            return []
        value = self._scaled(loss)
        if self._spike is not None:
            return self._follow(self._spike, step, value)
        if len(self._level) < LEAST:
            if self._jumps_early(value):
                limit = self._transform.rise_by(EARLY_RATIO, self._level.median)
                is_certain = bool(self.peer(GradientDetector).confirms(record.grad_norm))
                return self._open(step, step, value, limit, is_certain=is_certain)
            self._first.append(value)
            self._learn(value)
            return []
        self._since_past += 1
        median = self._level.median
        rise = value - median
        self._rises.append((step, rise))
        if rise <= 0:
            self._lasting_excursion.add(0.0)
        else:
            opened = self._judge_rise(step, value, rise, record.grad_norm)
            if opened is not None:
                return opened
        self._excursion.add(rise)
        self._learn(value)
        if len(self._level) < WINDOW:
            return []
        return self._drift.judge(step, value, self._level, self._transform)

    def _jumps_early(self, value: float) -> bool:
        """Whether one of the first samples jumps off a settled loss, in a log that begins in the middle of a run."""
        if len(self._first) < EARLY_LEAST:
            return False
        median, width = self._level.median, max(self._first) - min(self._first)
        if not self._transform.is_log and not median and not width:
            # Losses of policies begin at 0.
            return False
        is_settled = width <= self._transform.rise_by(EARLY_CALM, median)
        limit = max(self._transform.rise_by(EARLY_FIRST, median), EARLY_RANGES * width)
        return is_settled and value - median > limit

    def _judge_rise(
        self, step: int, value: float, rise: float, grad_norm: float | None
    ) -> list[NumericFinding] | None:
        """Begin a spike with a sample above its level, if it is abnormal or the last one of several; None: it is neither."""
        noise_limit = SPREADS * self._changes.spread / math.sqrt(2)
        limit = max(self._transform.rise_by(RISE_RATIO, value - rise), noise_limit)
        if rise > max(limit, BACKED_TAIL_FACTOR * self._excursion.furthest):
            is_confirmed = self.peer(GradientDetector).confirms(grad_norm)
            if not is_confirmed:
                limit = max(limit, TAIL_FACTOR * self._excursion.furthest)
            is_far = rise > (ALONE_FACTOR if is_confirmed is None else AGAINST_FACTOR) * limit
            if rise > limit:
                is_certain = bool(is_confirmed) or is_far
                return self._open(step, step, value, limit, is_certain=is_certain)
        lowest = min(past for _, past in self._rises)
        limit = max(
            self._transform.rise_by(LASTING_RATIO, value - rise),
            noise_limit,
            TAIL_FACTOR * self._lasting_excursion.furthest,
        )
        self._lasting_excursion.add(lowest)
        if lowest <= limit or len(self._rises) < LASTING_SAMPLES:
            return None
        return self._open(self._rises[0][0], step, value, limit, is_certain=True)

    def _learn(self, value: float) -> None:
        if self._last is not None:
            self._changes.add(value - self._last)
        self._last = value
        self._level.add(value)

    def _scaled(self, loss: float) -> float:
        if loss <= 0 and self._transform.is_log:
            # What was learned is on the other scale.
            self.reset()
            self._transform = LossTransform(is_log=False)
        return self._transform.scaled(loss)

    def _open(
        self, onset: int, step: int, value: float, limit: float, *, is_certain: bool
    ) -> list[NumericFinding]:
        """Begin a spike, or go on with the one before if that was just now."""
        past = self._past if self._since_past <= MERGE_SAMPLES else None
        if past is None or not past.is_reported:
            past = _Spike(onset, self._level.median, limit)
        past.num_back, past.num_samples, past.num_high = 0, 1, 1
        self._spike = past
        self._recent.append(value)
        self._rises.clear()
        return self._report(past, step, value) if is_certain else []

    def _report(self, spike: _Spike, step: int, value: float) -> list[NumericFinding]:
        """Report a jump once."""
        if spike.is_reported:
            return []
        spike.is_reported = True
        return [incident("loss_spike", spike.onset_step, step, self._evidence(spike, step, value))]

    def _evidence(self, spike: _Spike, step: int, value: float) -> str:
        since = "" if spike.onset_step == step else f", raised since step {spike.onset_step}"
        as_loss = self._transform.format
        return (
            f"loss {as_loss(value)} at step {step}{since}: the median of the last {len(self._level)} healthy samples was "
            f"{as_loss(spike.level)}, the limit {as_loss(spike.level + spike.limit)}"
        )

    def _follow(self, spike: _Spike, step: int, value: float) -> list[NumericFinding]:
        """Wait for the loss to come back."""
        self._recent.append(value)
        spike.num_samples += 1
        is_back = value - spike.level <= spike.limit / 2
        spike.num_back = spike.num_back + 1 if is_back else 0
        if spike.num_back >= BACK_SAMPLES:
            return self._close(spike, step)
        spike.num_high += value - spike.level > spike.limit
        found = self._report(spike, step, value) if spike.num_high >= CERTAIN_SAMPLES else []
        if (spike.num_samples < PATIENCE and not self._is_far(spike)) or is_back:
            return found
        as_loss, back = self._transform.format, spike.level + spike.limit / 2
        evidence = (
            f"loss {as_loss(value)} at step {step}, {spike.num_samples} samples after it left {as_loss(spike.level)} at step "
            f"{spike.onset_step}; the lowest of the last {len(self._recent)} was {as_loss(min(self._recent))} (limit "
            f"{as_loss(back)} for {BACK_SAMPLES} samples)"
        )
        was_reported = self._drift.is_resting
        self._settle(spike)
        self._drift.restart(spike.onset_step, back)
        if was_reported:
            return found
        return [*found, incident("divergence", spike.onset_step, step, evidence)]

    def _is_far(self, spike: _Spike) -> bool:
        """Whether every sample of a spike is orders of magnitude above the level before it."""
        if spike.num_samples < FAR_SAMPLES or not self._transform.is_log:
            return False
        lowest = min(self._recent)
        is_high = lowest >= self._transform.scaled(FAR_LOSS)
        return is_high and lowest - spike.level > self._transform.rise_by(FAR_RATIO, spike.level)

    def _close(self, spike: _Spike, step: int) -> list[NumericFinding]:
        """End a spike: the loss is back."""
        highest = max(self._recent)
        self._end(spike, BACK_SAMPLES)
        if not spike.is_reported:
            # It was noise, and there may be more.
            self._excursion.add_returned(highest - spike.level)
            evidence = f"{self._evidence(spike, spike.onset_step, highest)}; it came back at once"
            return [note("loss_spike", spike.onset_step, step, evidence)]
        level = self._transform.format(self._level.median)
        num_high = spike.num_samples - BACK_SAMPLES
        evidence = f"the loss came back to {level} after {num_high} samples"
        return [recovery("loss_spike", spike.onset_step, step, evidence)]

    def _settle(self, spike: _Spike) -> None:
        """Make the present loss the level that later spikes are measured against."""
        self._level.clear()
        self._changes.clear()
        self._last = None
        self._end(spike, LEAST)

    def _end(self, spike: _Spike, num_healthy: int) -> None:
        """Learn from the last samples of a spike, which are healthy, and close it."""
        for value in list(self._recent)[-num_healthy:]:
            self._learn(value)
        self._recent.clear()
        self._spike, self._past, self._since_past = None, spike, 0
