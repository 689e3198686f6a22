"""Losses of a short log that is over: what a look at the whole window shows, and its first samples do not.

No healthy training shows these ratios, which are wide since so few samples have no spread to learn: they come from the samples
beside them, from a second metric that agrees, or from an order that chance makes once in 50,000 windows.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import pstdev

from runner.detect.numerics.findings import NumericFinding, incident, number
from runner.detect.numerics.metric_detector import finite
from runner.detect.numerics.trial import LEAST_LOSS_SCALE, median_slope
from runner.detect.numerics.windows.samples import MAX_SAMPLES, Points, Samples, are_positive
from runner.facts.messages.signals import StepRecord

# A loss that rested, and has left its level: samples before and after, different ones among those before, their ratio, and times
# the range of those before. Chosen: the data of another epoch change it by less.
MIN_RESTING, MIN_LEFT, MIN_DIFFERENT, LEFT_RATIO, LEFT_RANGES = 5, 3, 3, 1.25, 10.0
# What of a learning rate is a schedule that begins again, in times of the one before; chosen: a warm-up rises by less in a sample.
RAISED_RATE = 2.0
# Two metrics that agree need one sample before: a mean over an epoch and the validation after it double in no healthy run. Chosen.
BOTH_RATIO = 2.0
# Of both, what later evaluations still have. And passes with which the training loss rises, and the rise of both in all, where the
# validation loss rises with each pass, too, and where it does not. Chosen: noise has such an order once in 10,000, or such a size
# only in losses that are no means over many data.
STAYING_RATIO, MIN_TOGETHER, LEAST_TOGETHER, MARKED_TOGETHER = 1.5, 5, 0.003, 0.1
# Below that a loss may begin near 0, and rise without harm, as of policies and with penalties that grow. Chosen.
LEAST_LOSS = 0.1
# A trend: the chance that noise has an order so sorted from its lowest sample on (exact, of inversions), and the rise of its line
# where the learning rate is known not to have risen, and where it is not known. Chosen: 10 % as for a slow rise of long curves, and
# healthy losses wander by 3 %.
MIN_TREND, TREND_CHANCE, TREND_RISE, TREND_RISE_ALONE = 8, 2e-5, 0.10, 0.50
# The rise of its line, in times of the spread of samples around it: what wanders leaves its line. Blocks of a longer log:
# neighbours, which wander together, count once. Chosen.
MAX_BLOCKS, TREND_SPREADS = 20, 6.0
# A rise in each of the last samples, each of so much and in all so far. Chosen: noise of 20 % makes none in 100,000 windows.
MIN_GROWTH, GROWTH_EACH, GROWTH_RATIO = 5, 1.1, 4.0
# The same in fewer samples, of which each is a multiple of the one before. Chosen.
MIN_FAST_GROWTH, FAST_EACH, FAST_RATIO, FAR_EACH, FAR_GROWTH = 4, 2.0, 10.0, 1.5, 25.0
NORM_GROWTH_EACH, NORM_GROWTHS = 1.2, ((6, 100.0), (9, 20.0))
# A level that is risen from the second or third sample on: samples in all, their ratio to those before, times the range of those,
# and how many intervals between samples a run is old that shows it after one. Chosen.
MIN_LEVELS, LEVEL_RATIO, LEVEL_RANGES, BEGIN_INTERVALS = 4, 3.0, 8.0, 2
# The same after two samples, where more samples follow and the learning rate is known not to have risen. Chosen.
MIN_RATED, RATED_RATIO, RATED_RANGES = 6, 2.0, 4.0
# Falls of a loss scale in a row, to less than is worth going back to (`trial.py`); chosen.
MIN_FALLS = 4
# Steps that are skipped one after the other at a scale that is far below 1; chosen: one is found again at 1, and none so low.
MIN_SKIPPED, LOWEST_SCALE = 2, 1 / 16
# Of a rise, the steps of its later half in times of those of its earlier half: a divergence feeds itself. A sum of losses, which
# some scripts print in place of their mean, does not. Of a trend that never falls, the largest step in times of the smallest: those
# of a sum are alike. Chosen.
CONVEX_RATIO, SUM_RATIO = 2.0, 5.0
# Losses of exactly 0 at the end of a log, and the least one before: transformers counts a NaN as 0. Chosen.
MIN_ZEROS, LEAST_BEFORE_ZERO = 3, 1.0


def last_not_finite(samples: Samples) -> NumericFinding | None:
    """Find a loss with which the log ends that is not finite; beside a validation loss that is, it was only not measured."""
    records = [one for one in samples.records if one.loss is not None and not one.skipped]
    tail: list[StepRecord] = []
    for one in reversed(records):
        if one.loss is None or math.isfinite(one.loss):
            break
        tail.insert(0, one)
    # A mean of nothing yet is NaN, too, but no validation is; and where it comes and goes, it is no measure.
    before = records[: len(records) - len(tail)]
    has_come_and_gone = any(one.loss is not None and not math.isfinite(one.loss) for one in before)
    if not tail or has_come_and_gone:
        return None
    if tail[-1].step <= 1 and tail[-1].validation_loss is None:
        return None
    if any(finite(one.validation_loss) is not None for one in tail):
        return None
    evidence = f"the loss is {tail[-1].loss} in the last {len(tail)} of {len(records)} samples"
    return incident("nan_loss", tail[0].step, tail[-1].step, evidence)


def zero_losses(samples: Samples) -> NumericFinding | None:
    """Find a loss that is exactly 0 from one sample on, or beside a gradient norm that is not finite."""
    records = [one for one in samples.records if one.loss is not None]
    num = next((n for n, one in enumerate(reversed(records)) if one.loss != 0), len(records))
    if num < MIN_ZEROS:
        return None
    before = [one.loss for one in records[:-num] if one.loss is not None]
    zeros = records[-num:]
    norms = [one.grad_norm for one in zeros]
    is_nan = all(norm is not None and not math.isfinite(norm) for norm in norms)
    has_dropped = bool(before) and are_positive(before) and min(before) >= LEAST_BEFORE_ZERO
    has_gradient = any(norm is not None and norm > 0 for norm in norms)
    if not is_nan and (not has_dropped or has_gradient):
        return None
    because = (
        ", with a gradient norm that is not finite"
        if is_nan
        else f", after {number(before[-1])} without a fall between them"
    )
    evidence = (
        f"the loss is exactly 0 in the last {num} samples{because}: some trainers print one that is not finite as 0, and no loss "
        "falls so far at once"
    )
    return incident("nan_loss", zeros[0].step, zeros[-1].step, evidence)


def both_losses(samples: Samples) -> NumericFinding | None:
    """Find training and validation losses that jump together, after one evaluation or more, and stay high."""
    evaluations = samples.evaluations()
    for index in range(1, len(evaluations)):
        step, loss, validation = evaluations[index]
        highest = max(one for _, one, _ in evaluations[:index])
        highest_validation = max(one for _, _, one in evaluations[:index])
        is_jump = loss >= BOTH_RATIO * highest and validation >= BOTH_RATIO * highest_validation
        stays = all(
            one >= STAYING_RATIO * highest and other >= STAYING_RATIO * highest_validation
            for _, one, other in evaluations[index:]
        )
        if not is_jump or not stays or min(highest, highest_validation) < LEAST_LOSS:
            continue
        falls = evaluations[-1][1:] < (loss, validation)
        evidence = (
            f"training loss {number(loss)} and validation loss {number(validation)} at step {step}, at most {number(highest)} and "
            f"{number(highest_validation)} before (limit {BOTH_RATIO:g} times)"
        )
        return incident("loss_spike" if falls else "divergence", step, evaluations[-1][0], evidence)
    return None


def rising_together(samples: Samples) -> NumericFinding | None:
    """Find a training loss that rises with each of the last passes over the data, and a validation loss that rises with it."""
    # Data that become harder within a pass make both rise, too.
    evaluations = samples.evaluations() if samples.steps_are_passes else []
    training, validation = [one for _, one, _ in evaluations], [one for *_, one in evaluations]
    num = min(len(evaluations), 1)
    while num < len(evaluations) and training[-num - 1] < training[-num]:
        num += 1
    if num < MIN_TOGETHER:
        return None
    always = all(before < after for before, after in pairwise(validation[-num:]))
    least = LEAST_TOGETHER if always else MARKED_TOGETHER
    rises = (training[-1] / training[-num], validation[-1] / min(validation))
    if min(rises) < 1 + least:
        return None
    evidence = (
        f"the training loss rises with each of the last {num} passes over the data, from {number(training[-num])} to "
        f"{number(training[-1])}, and the validation loss to {number(validation[-1])}: {number(min(validation))} was its best"
    )
    return incident("divergence", evaluations[-num + 1][0], evaluations[-1][0], evidence)


def risen_level(samples: Samples) -> NumericFinding | None:
    """Find losses that all lie far above the first one or two, to the end of the log; after three others judge."""
    points = samples.losses()
    values = [value for _, value in points]
    if not are_positive(values) or len(values) < MIN_LEVELS:
        return None
    rates = samples.rates()
    if (found := _left_level(points, rates)) is not None:
        return found
    interval = points[1][0] - points[0][0]
    is_rated = bool(rates) and max(rates) <= rates[0]
    for num in (1, 2):
        before, after = [math.log(one) for one in values[:num]], values[num:]
        if len(after) < MIN_LEVELS - num or values[0] < LEAST_LOSS:
            continue
        # The first mean of a run may be of fewer losses than it is divided by.
        if num == 1 and points[0][0] < BEGIN_INTERVALS * interval:
            continue
        ratio, ranges = LEVEL_RATIO, LEVEL_RANGES
        if num > 1 and is_rated and len(after) >= MIN_RATED and after[-1] >= after[0]:
            ratio, ranges = RATED_RATIO, RATED_RANGES
        limit = max(math.log(ratio), ranges * (max(before) - min(before)))
        if math.log(min(after)) - max(before) < limit:
            continue
        fault = "divergence" if after[-1] >= after[0] else "loss_spike"
        evidence = (
            f"the loss is {number(min(after))} and more in all {len(after)} samples from step {points[num][0]} on, at most "
            f"{number(max(values[:num]))} before (limit {number(math.exp(max(before) + limit))})"
        )
        return incident(fault, points[num][0], points[-1][0], evidence)
    return None


def _left_level(points: Points, rates: Sequence[float]) -> NumericFinding | None:
    """Find a loss that rested at a level, and lies far above it in each of the last samples, by its noise.

    `rates`: the learning rate of each of them, or none. A schedule that begins again with a higher one raises the loss.
    """
    values = [math.log(value) for _, value in points]
    for num in range(MIN_RESTING, len(values) - MIN_LEFT + 1):
        before, after = values[:num], values[num:]
        limit = max(math.log(LEFT_RATIO), LEFT_RANGES * (max(before) - min(before)))
        if min(after) - max(before) < limit or len(set(before)) < MIN_DIFFERENT:
            continue
        if rates and max(rates[num:]) > RAISED_RATE * rates[num - 1]:
            continue
        fault = "divergence" if len(after) > MIN_LEFT and after[-1] >= after[0] else "loss_spike"
        evidence = (
            f"the loss is {number(math.exp(min(after)))} and more in all {len(after)} samples from step {points[num][0]} on, "
            f"{number(math.exp(min(before)))} to {number(math.exp(max(before)))} in the {num} before (limit "
            f"{number(math.exp(max(before) + limit))})"
        )
        return incident(fault, points[num][0], points[-1][0], evidence)
    return None


def falling_scale(samples: Samples) -> NumericFinding | None:
    """Find a loss scale below 1 that fell at each of the last samples: gradients overflow whatever the scale."""
    scales = [(one.step, one.loss_scale) for one in samples.records if one.loss_scale is not None]
    last = samples.records[-1] if samples.records else None
    # The sentence about a step may come before the line of that step.
    if (
        last is not None
        and len(scales) > 1
        and scales[-1] == (last.step, 0.0)
        and scales[-2][1] > 0
    ):
        evidence = f"the loss scale is 0 at step {last.step}: the gradients overflow whatever it is"
        return incident("loss_scale_floor", last.step, last.step, evidence)
    ended = scales and last is not None and last.step - scales[-1][0] <= 1
    num = 1
    while num < len(scales) and 0 < scales[-num][1] < scales[-num - 1][1]:
        num += 1
    skipped = [one.step for one in samples.records[-MIN_SKIPPED - 1 :] if one.skipped]
    if ended and len(skipped) >= MIN_SKIPPED and num > 1 and scales[-1][1] <= LOWEST_SCALE:
        evidence = (
            f"steps {skipped[0]} and {skipped[-1]} are skipped at a loss scale of {number(scales[-1][1])}, which falls on (limit "
            f"{LOWEST_SCALE:g})"
        )
        return incident("loss_scale_floor", skipped[0], scales[-1][0], evidence)
    if last is not None and last.loss_scale is None and finite(last.loss) is not None:
        # It went on from there.
        return None
    if num <= MIN_FALLS or scales[-1][1] >= LEAST_LOSS_SCALE:
        return None
    (onset, _), (step, scale) = scales[-num + 1], scales[-1]
    evidence = (
        f"the loss scale fell in each of the last {num - 1} samples, from {number(scales[-num][1])} to {number(scale)} (limit "
        f"{MIN_FALLS} in a row, below {LEAST_LOSS_SCALE:g})"
    )
    return incident("loss_scale_floor", onset, step, evidence)


def growth(samples: Samples) -> NumericFinding | None:
    """Find a loss, or a gradient norm, that rises by a factor in each of the last samples."""
    norms = [(one.step, one.grad_norm) for one in samples.records if one.grad_norm is not None]
    num = _num_growing(norms, NORM_GROWTH_EACH)
    if any(num >= least and has_grown(norms, num, ratio) for least, ratio in NORM_GROWTHS):
        return _grown("grad_norm_spike", "gradient norm", norms[-num:])
    losses = samples.losses()
    num = _num_growing(losses, GROWTH_EACH)
    if num >= MIN_GROWTH and losses[-num][1] >= LEAST_LOSS and has_grown(losses, num, GROWTH_RATIO):
        return _grown("divergence", "loss", losses[-num:])
    num = _num_growing(losses, FAST_EACH)
    is_fast = num >= MIN_FAST_GROWTH and losses[-num][1] >= LEAST_LOSS
    if is_fast and has_grown(losses, num, FAST_RATIO):
        return _grown("divergence", "loss", losses[-num:])
    num = _num_growing(losses, FAR_EACH)
    is_far = num >= MIN_FAST_GROWTH and losses[-num][1] >= LEAST_LOSS
    if is_far and has_grown(losses, num, FAR_GROWTH):
        return _grown("divergence", "loss", losses[-num:])
    return None


def _num_growing(points: Points, each: float) -> int:
    """Return how many of the last samples rise, each by this factor."""
    if not are_positive(value for _, value in points):
        return 0
    num = min(len(points), 1)
    while num < len(points) and points[-num][1] >= each * points[-num - 1][1]:
        num += 1
    return num


def has_grown(points: Points, num: int, ratio: float) -> bool:
    """Whether the last `num` samples rise so far, and as far above those before; half of it for the last but one."""
    begin, before = points[-num][1], [value for _, value in points[:-num]]
    level = max([begin, *before])
    steps = [later - value for (_, value), (_, later) in pairwise(points[-num:])]
    half = len(steps) // 2
    if sum(steps[-half:]) < CONVEX_RATIO * sum(steps[:half]):
        return False
    return points[-1][1] >= ratio * level and points[-2][1] >= math.sqrt(ratio) * level


def _grown(fault: str, what: str, points: Points) -> NumericFinding:
    evidence = f"the {what} rises in each of the last {len(points)} samples, from {number(points[0][1])} to {number(points[-1][1])}"
    return incident(fault, points[1][0], points[-1][0], evidence)


def rising_trend(samples: Samples) -> NumericFinding | None:
    """Find a loss that rises to the end of the log, at a learning rate that does not rise with it."""
    points = in_blocks(samples.losses())
    values = [value for _, value in points]
    if len(values) < MIN_TREND or not are_positive(values) or min(values) < LEAST_LOSS:
        return None
    lowest = values.index(min(values))
    rates = [rate for _, rate in in_blocks(list(enumerate(samples.rates())))][lowest:]
    if rates and max(rates) > rates[0]:
        return None
    # The lowest one is the first by choice, so its place is no evidence.
    after = values[lowest + 1 :]
    # No warm-up takes so many passes over the data.
    limit = TREND_RISE if rates or samples.steps_are_passes else TREND_RISE_ALONE
    if len(after) < MIN_TREND or max(after[-2:]) < (1 + limit) * values[lowest]:
        return None
    logs = [math.log(value) for value in values[lowest:]]
    has_fallen = lowest >= 2 and values[lowest - 2] > values[lowest - 1]
    if not has_fallen and is_sum(values[lowest:]):
        return None
    slope = median_slope(list(enumerate(logs)))
    rise = slope * (len(logs) - 1)
    if rise < math.log1p(limit) or order_chance(after) > TREND_CHANCE:
        return None
    if rise < TREND_SPREADS * _spread_around(slope, logs):
        return None
    num = sum(step >= points[lowest][0] for step, _ in samples.losses())
    lr = f", while the learning rate went from {rates[0]:.3g} to {rates[-1]:.3g}" if rates else ""
    evidence = (
        f"the loss rose from {number(values[lowest])} to {number(values[-1])} over {num} samples without a way back{lr} "
        f"(limit {100 * limit:g} % by the line through them; noise has such an order in one of 50,000 windows)"
    )
    return incident("divergence", points[lowest + 1][0], points[-1][0], evidence)


def in_blocks(points: Points) -> Points:
    """Return the points of a short log, and of a longer one the medians of blocks of equal size, each at its first step."""
    if len(points) <= MAX_SAMPLES:
        return points
    size = math.ceil(len(points) / MAX_BLOCKS)
    # What is left over is the oldest: the newest blocks are whole.
    begins = range(len(points) % size, len(points), size)
    return [
        (points[at][0], sorted(value for _, value in points[at : at + size])[size // 2])
        for at in begins
    ]


def _spread_around(slope: float, values: Sequence[float]) -> float:
    """Return the standard deviation of values around a line with this slope."""
    return pstdev(value - slope * at for at, value in enumerate(values))


def is_sum(values: Sequence[float], ratio: float = SUM_RATIO) -> bool:
    """Whether values rise like a sum of losses: always, and by steps that are alike, within this ratio."""
    steps = [later - value for value, later in pairwise(values)]
    return min(steps) > 0 and max(steps) <= ratio * min(steps)


def order_chance(values: Sequence[float]) -> float:
    """Return the chance that independent samples have no more pairs out of order: Mann and Kendall's test, exact."""
    inversions = sum(
        later <= value for index, value in enumerate(values) for later in values[index + 1 :]
    )
    # Of orders of so many samples, how many have 0, 1, 2 ... pairs out of order.
    counts = [1]
    for size in range(2, len(values) + 1):
        longer = [0] * (len(counts) + size - 1)
        for at, count in enumerate(counts):
            for more in range(size):
                longer[at + more] += count
        counts = longer
    return sum(counts[: inversions + 1]) / math.factorial(len(values))
