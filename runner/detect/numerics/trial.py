"""Trials, judged: the steps after a change against the steps before the onset, by medians and their spread. Pure.

The level before is Theil-Sen's line through the samples of a window, taken at its end; the spread is the median distance from that
line. Single outliers on either side move neither. The line is drawn over the logarithm of the step, where a power law is straight
(Kaplan et al. 2020): over the step itself, early lines of real curves ended 8 % too low, with two to four times the spread.

A loss that was falling has to come back to where it would be by now, not only to where it was: half of the fall that the line
predicts is demanded. Half, since losses flatten: where all of it was demanded, up to 40 % of the early stretches of clean curves
were called sick. With half of it and one and a half spreads, none of 6,000 stretches of the curves that this was chosen on was
(real ones and tiny_cpu's; 1 % of synthetic ones that wander slowly), and 5 of 8,000 of others; with one spread, 41 of these.

Sources of the limits. A loss counts as back within half of what the detector calls a lasting rise (`loss.LASTING_RATIO`); below
that no spike is reported either. OPT-175B's gradient norm rose by a third to three quarters when it drifted (0.14 to 0.18 and
0.25, run 12.43), and sank by a seventh after the cut that helped (0.18 to 0.155, run 12.39): a quarter above is no return. A loss
scale of at least 1.0 is OPT-175B's rule for a checkpoint worth going back to. Windows and counts are chosen, and tried on real
curves.
"""

import math
from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

from runner.detect.numerics.findings import number
from runner.detect.numerics.loss import LASTING_RATIO
from runner.facts.messages.signals import StepRecord
from runner.facts.trials import MetricLevel, Trajectory, Trial, TrialVerdict

# Samples before the onset that are compared with, at most and at least; chosen.
WINDOW, LEAST = 64, 8
# From the median distance to the standard deviation of a normal distribution.
MAD_TO_SPREAD = 1.4826
LOSS_RATIO, NORM_RATIO = LASTING_RATIO / 2, 0.25
# Times the spread of single samples, by which a median may lie above what is due; chosen, for the loss on curves (above).
LOSS_SPREADS, NORM_SPREADS = 1.5, 3.0
# Of the fall that the line before the onset predicts; chosen on curves (above).
FALL_SHARE = 0.5
LEAST_LOSS_SCALE = 1.0
# Beyond the sickness, times its height: a verdict before the last step; in a row; both chosen.
FAR_FACTOR, FAR_SAMPLES = 2.0, 4
# Steps whose gradient norm is not finite, though they were not skipped; chosen: a single one is seen in runs that recover.
NORM_SAMPLES = 2
# Of the steps of a trial, the last ones are judged: a resumed run settles first (IDEFICS: a spike at each resume); chosen.
JUDGED_SHARE = 0.5


class TrialSample(NamedTuple):
    """One step of a run."""

    step: int
    loss: float | None = None
    grad_norm: float | None = None
    loss_scale: float | None = None
    skipped: bool = False


def sample_of(record: StepRecord) -> TrialSample:
    """Return what a trial needs of a step."""
    return TrialSample(
        record.step, record.loss, record.grad_norm, record.loss_scale, record.skipped
    )


def kept(samples: list[TrialSample], new: TrialSample, *, most: int) -> list[TrialSample]:
    """Add a step to those before, and forget what it does again and what is too old; the list may be changed in place."""
    while samples and samples[-1].step >= new.step:
        samples.pop()
    samples.append(new)
    # Seldom, and all at once.
    return samples[-most:] if len(samples) > 2 * most else samples


class Judgement(NamedTuple):
    """A verdict, why, and the median loss of the steps that were judged."""

    verdict: TrialVerdict
    evidence: str
    loss: float | None = None


def trajectory_before(samples: Sequence[TrialSample], onset: int) -> Trajectory | None:
    """Return the numbers of the window before an onset, and what was seen from it on; None: too few samples."""
    window = [one for one in samples if one.step < onset and not one.skipped][-WINDOW:]
    since = [one for one in samples if one.step >= onset]
    loss = level_of([(one.step, one.loss) for one in window if one.loss is not None])
    norm = level_of([(one.step, one.grad_norm) for one in window if one.grad_norm is not None])
    if loss is None and norm is None:
        return None
    return Trajectory(
        first_step=window[0].step,
        last_step=window[-1].step,
        num_samples=len(window),
        loss=loss,
        grad_norm=norm,
        sick_loss=_median(one.loss for one in since),
        sick_grad_norm=_median(one.grad_norm for one in since),
    )


def level_of(points: Iterable[tuple[int, float]]) -> MetricLevel | None:
    """Fit Theil-Sen's line through finite samples (step, value), and return its end; None: fewer than `LEAST`.

    The slope is the flatter one of the window's and its newer half's: a loss that has just stopped falling is to fall no more.
    """
    known = [(step, value) for step, value in points if math.isfinite(value)]
    if len(known) < LEAST:
        return None
    is_log = all(value > 0 for _, value in known)
    values = [
        (math.log(max(step, 1)), math.log(value) if is_log else value) for step, value in known
    ]
    slope, end = median_slope(values), values[-1][0]
    levels = [value - slope * (at - end) for at, value in values]
    level = median(levels)
    spread = MAD_TO_SPREAD * median([abs(one - level) for one in levels])
    newer = values[len(values) // 2 :]
    flatter = max(slope, median_slope(newer)) if len(newer) >= LEAST else slope
    return MetricLevel(
        level=level, slope=flatter / max(known[-1][0], 1), spread=spread, is_log=is_log
    )


def median_slope(values: Sequence[tuple[float, float]]) -> float:
    """Return the median slope between any two points; 0 if all are at one place."""
    slopes = [
        (later - value) / (there - here)
        for index, (here, value) in enumerate(values)
        for there, later in values[index + 1 :]
        if there != here
    ]
    return median(slopes) if slopes else 0.0


def judge(trial: Trial, samples: Sequence[TrialSample], last_step: int) -> Judgement | None:
    """Judge the samples of a trial's steps, in their order; None: it is too early to say, or its run has not healed."""
    counted = [one for one in samples if one.step > trial.after_step and not one.skipped]
    judgement = _certain(trial, counted)
    if judgement is None and last_step >= trial.after_step + trial.steps:
        judgement = _at_the_end(trial, samples, counted)
    if trial.is_last and judgement is not None and judgement.verdict != "helped":
        return None
    return judgement


def _certain(trial: Trial, counted: Sequence[TrialSample]) -> Judgement | None:
    """Return a verdict that no later step can change."""
    for name, values, least in (
        ("loss", [(one.step, one.loss) for one in counted], 1),
        ("gradient norm", [(one.step, one.grad_norm) for one in counted], NORM_SAMPLES),
    ):
        bad = [at for at, value in values if value is not None and not math.isfinite(value)]
        if len(bad) >= least:
            verdict: TrialVerdict = "not_helped" if trial.fault == "nan_loss" else "made_worse"
            return Judgement(verdict, f"{name} is not finite at step {bad[-1]}")
    before = trial.before
    # What is left to itself may go up for a while, and heal.
    if before is None or before.loss is None or "loss" not in trial.statistic:
        return None
    if not trial.is_change:
        return None
    far = _far(before.loss, before.sick_loss)
    newest = [one.loss for one in counted if one.loss is not None][-FAR_SAMPLES:]
    if len(newest) == FAR_SAMPLES and all(_scaled(before.loss, one) > far for one in newest):
        usual = _words(before.loss, before.loss.level)
        what = f"loss above {_words(before.loss, far)} for {FAR_SAMPLES} samples, {usual} before the onset"
        return Judgement("made_worse", what, newest[-1])
    return None


def _far(level: MetricLevel, sick: float | None) -> float:
    """Return how far above its level a loss is no start of a return any more."""
    tolerance = _loss_tolerance(level)
    height = tolerance if sick is None else max(_scaled(level, sick) - level.level, tolerance)
    return level.level + max(FAR_FACTOR * height, FAR_FACTOR * FAR_FACTOR * tolerance)


def _at_the_end(
    trial: Trial, samples: Sequence[TrialSample], counted: Sequence[TrialSample]
) -> Judgement | None:
    """Judge all steps of a trial; None while too few of them were seen."""
    share = trial.steps if trial.is_last else trial.steps * JUDGED_SHARE
    newest = counted[-1].step if counted else trial.after_step
    first = newest - share if trial.is_last else trial.after_step + trial.steps - share
    judged = [one for one in counted if one.step > first]
    if len(judged) < min(LEAST, max(1, int(trial.steps * JUDGED_SHARE))):
        # A loss scaler that skips them all never gets out of that by itself.
        if trial.statistic == "loss_scale" and len(samples) >= LEAST:
            return _judge_scale(trial, samples)
        return None
    if trial.statistic == "loss_scale":
        return _judge_scale(trial, samples)
    loss = _median(one.loss for one in judged)
    if trial.statistic == "replicas":
        # A disagreement ends the trial before.
        evidence = f"{len(counted)} steps, in which the ranks reported no disagreement"
        return Judgement("helped", evidence, loss)
    before = trial.before
    comparable = before is not None and (before.loss is not None or before.grad_norm is not None)
    if trial.statistic == "finite" or not comparable or before is None:
        lacks = "" if trial.statistic == "finite" else "; there is no level from before to compare"
        evidence = f"{len(counted)} steps without a number that is not finite{lacks}"
        return Judgement("helped", evidence, loss)
    norm = _median(one.grad_norm for one in judged)
    parts = [
        _compare_loss(before, loss, judged[len(judged) // 2].step),
        _compare_norm(before, norm),
    ]
    wanted = {"loss": parts[:1], "grad_norm": parts[1:]}.get(trial.statistic, parts)
    # What is not logged is not compared; there is one of the two.
    compared = [part for part in wanted if part is not None] or [part for part in parts if part]
    if not compared:
        return None
    verdicts = [part.verdict for part in compared]
    evidence = "; ".join(part.evidence for part in compared)
    worst: TrialVerdict = max(verdicts, key=_ORDER.index)
    over = f"over {len(judged)} samples to step {judged[-1].step}"
    return Judgement(worst, f"{evidence}, {over}", loss)


_ORDER: tuple[TrialVerdict, ...] = ("helped", "not_helped", "made_worse")


def _judge_scale(trial: Trial, samples: Sequence[TrialSample]) -> Judgement | None:
    """Judge a loss scale: usable again, and most steps not skipped."""
    seen = [one for one in samples if one.step > trial.after_step]
    judged = seen[-max(LEAST, int(len(seen) * JUDGED_SHARE)) :]
    scale = _median(one.loss_scale for one in judged)
    skipped = sum(one.skipped for one in judged)
    text = f"loss scale {'not logged' if scale is None else number(scale)}, {skipped} of the last {len(judged)} steps skipped"
    is_usable = scale is None or scale >= LEAST_LOSS_SCALE
    helped = is_usable and 2 * skipped < len(judged)
    return Judgement("helped" if helped else "not_helped", text, _median(s.loss for s in judged))


def _due_fall(before: Trajectory, step: int) -> float:
    """Return how far below its level before the onset the loss has to be at a step, on the scale of the level.

    The line is followed no further than the window reaches back.
    """
    if before.loss is None:
        return 0.0
    end = max(before.last_step, 1)
    reach = math.log(end / max(min(before.first_step, end), 1))
    passed = math.log(max(step, end) / end)
    return FALL_SHARE * max(0.0, -before.loss.slope) * end * min(passed, reach)


def _compare_loss(before: Trajectory, value: float | None, step: int) -> Judgement | None:
    if before.loss is None or value is None:
        return None
    fall, tolerance = _due_fall(before, step), _loss_tolerance(before.loss)
    return _compare("loss", before.loss, value, before.sick_loss, tolerance=tolerance, fall=fall)


def _compare_norm(before: Trajectory, value: float | None) -> Judgement | None:
    level = before.grad_norm
    if level is None or value is None:
        return None
    tolerance = max(NORM_SPREADS * level.spread, _rise(level, NORM_RATIO))
    return _compare("gradient norm", level, value, before.sick_grad_norm, tolerance=tolerance)


def _compare(
    name: str,
    level: MetricLevel,
    value: float,
    sick: float | None,
    *,
    tolerance: float,
    fall: float = 0.0,
) -> Judgement:
    """Compare a median with the level before, less the fall that is due."""
    at, limit = _scaled(level, value), level.level - fall + tolerance
    falling = " and falling" if fall else ""
    evidence = (
        f"{name} {number(value)}, {_words(level, level.level)} before the onset{falling} (limit "
        f"{_words(level, limit)})"
    )
    if at <= limit:
        return Judgement("helped", evidence)
    worst = -math.inf if sick is None else _scaled(level, sick)
    if worst > limit and at > worst + tolerance:
        return Judgement("made_worse", f"{evidence}; {number(sick or 0.0)} before the change")
    return Judgement("not_helped", evidence)


def _loss_tolerance(level: MetricLevel) -> float:
    return max(LOSS_SPREADS * level.spread, _rise(level, LOSS_RATIO))


def _rise(level: MetricLevel, ratio: float) -> float:
    """Return a rise by a share of the metric, on the scale of the level."""
    return math.log1p(ratio) if level.is_log else ratio * abs(level.level)


def _scaled(level: MetricLevel, value: float) -> float:
    """Return a value on the scale of a level; what has no logarithm lies below everything."""
    if not level.is_log:
        return value
    return math.log(value) if value > 0 else -math.inf


def _words(level: MetricLevel, value: float) -> str:
    return number(math.exp(min(value, 700.0)) if level.is_log else value)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None and math.isfinite(value)]
    return median(known) if known else None
