"""Losses of a short log that is over, and that turn and rise to its end along a smooth line, or with each pass over the data."""

from collections.abc import Sequence
from itertools import pairwise

from runner.detect.numerics.findings import NumericFinding, incident, number
from runner.detect.numerics.windows.losses.loss_windows import (
    LEAST_LOSS,
    SUM_RATIO,
    is_sum,
    order_chance,
)
from runner.detect.numerics.windows.orders import order, spread_around_curve
from runner.detect.numerics.windows.samples import Samples, are_positive

# A smooth rise: samples in all, rises since the lowest one, how far those are in order, and what is left of it at the end. Chosen.
MIN_SAMPLES, MIN_RISES, LEAST_ORDER, LEFT_SHARE = 6, 4, 0.8, 0.8
# Its size, and that in times of the noise which second differences show: at a learning rate that is known not to rise; a smaller
# one of more rises with less noise; where no rate is printed, as one that rises again takes a loss up by a fifth; and where the
# log begins with its lowest loss. All chosen. And what the last one is of all before the lowest, where no rate is printed.
RATED_RISE, SMALL_RISE, UNRATED_RISE, FEW_UNRATED_RISE, FROM_FIRST_RISE = 0.2, 0.1, 0.35, 0.6, 1.0
ABOVE_BEFORE = 1.2
# A late run whose loss rises in each sample from the first on, at a known rate: samples, its first step, and the rise. Chosen.
MIN_LATE, LATE_STEP, LATE_RISE, LATE_ORDER = 5, 1000, 0.5, 0.9
# How alike the steps of a sum of losses are, where a learning rate is printed, as scripts that print one do not sum. Chosen.
RATED_SUM = 2.5
# A rise so large, to so many times the highest before it, may have more noise; chosen.
FAR_RISE, FAR_ABOVE, FAR_OVER_NOISE = 0.8, 1.5, 7.0
OVER_NOISE, SMALL_OVER_NOISE, SMALL_RISES = 10.0, 20.0, 5
STEEP_SAMPLES = 2
# Falls in a row before the lowest, rises after it, the first of these in times of the noise of the falls and as a ratio, and the
# last one in times of the first sample. Chosen: noise of so few has no such line, nor a jump so far off it.
MIN_SMOOTH_FALLS, MIN_LEFT, LEFT_OVER_NOISE, LEFT_RATIO, LEFT_ABOVE = 4, 2, 20.0, 1.3, 2.0
# Passes over the data, the rise of the loss in all, and the chance that noise has the order of each metric. Chosen.
MIN_ORDERED, ORDERED_RISE, ORDERED_CHANCE = 10, 0.03, 1e-3
# Passes in a row that make the training loss and its accuracy worse, and the rise of the loss in all. Chosen: means over all data
# have little noise.
WORSE_PASSES = ((6, 0.03), (4, 0.08), (3, 0.25))


def smooth_rise(samples: Samples) -> NumericFinding | None:
    """Find a loss that rises from its lowest sample to the end of the log, far beyond its noise, at a rate that does not rise."""
    points = samples.losses()
    values = [value for _, value in points]
    if len(values) < MIN_LATE or not are_positive(values) or min(values) < LEAST_LOSS:
        return None
    lowest = values.index(min(values))
    since, rates = values[lowest:], samples.rates()
    is_late = bool(rates) and points[0][0] >= LATE_STEP and order(since) >= LATE_ORDER
    if len(values) < MIN_SAMPLES and not is_late:
        return None
    has_fallen = lowest >= 2 and values[lowest - 2] > values[lowest - 1]
    if len(since) <= MIN_RISES or order(since) < LEAST_ORDER:
        return None
    if not has_fallen and is_sum(since, RATED_SUM if rates else SUM_RATIO):
        return None
    if rates and max(rates[lowest:]) > rates[lowest]:
        return None
    # Of the rise, and of what was before, without the steep start of a curve.
    noise = max(
        spread_around_curve(values[max(0, lowest - 1) :]),
        spread_around_curve(
            values[STEEP_SAMPLES : lowest + 1] if lowest > STEEP_SAMPLES else values[: lowest + 2]
        ),
    )
    rise = since[-1] - since[0]
    highest = max(values[: lowest + 1])
    is_far = rise >= FAR_RISE * since[0] and since[-1] >= FAR_ABOVE * highest
    over_noise = FAR_OVER_NOISE if is_far else OVER_NOISE
    if rise < LEFT_SHARE * (max(since) - since[0]) or rise < over_noise * noise:
        return None
    is_rated = bool(rates) or samples.steps_are_passes
    if not is_rated and since[-1] < ABOVE_BEFORE * highest:
        return None
    unrated = UNRATED_RISE if len(since) > SMALL_RISES else FEW_UNRATED_RISE
    limit = RATED_RISE if is_rated else unrated
    if rates and len(since) > SMALL_RISES and rise >= SMALL_OVER_NOISE * noise:
        limit = SMALL_RISE
    from_first = LATE_RISE if is_late else FROM_FIRST_RISE
    if rise < max(limit, from_first if lowest == 0 else limit) * since[0]:
        return None
    evidence = (
        f"the loss rises from {number(since[0])}, its lowest, to {number(since[-1])} over the last {len(since)} samples, along a "
        f"line from which they are {number(noise)} away"
    )
    return incident("divergence", points[lowest + 1][0], points[-1][0], evidence)


def left_smooth_fall(samples: Samples) -> NumericFinding | None:
    """Find a loss that fell along a smooth line, and rises twice and more to the end, to twice the first one."""
    points = samples.losses()
    values = [value for _, value in points]
    if not are_positive(values) or len(values) < MIN_SMOOTH_FALLS + 1 + MIN_LEFT:
        return None
    lowest = values.index(min(values))
    falls, rises, rates = values[: lowest + 1], values[lowest:], samples.rates()
    are_smooth = falls == sorted(set(falls), reverse=True) and rises == sorted(set(rises))
    if not are_smooth or len(falls) <= MIN_SMOOTH_FALLS or len(rises) <= MIN_LEFT:
        return None
    if min(values) < LEAST_LOSS or (rates and max(rates[lowest:]) > rates[lowest]):
        return None
    noise = spread_around_curve(falls)
    least = max(LEFT_OVER_NOISE * noise, (LEFT_RATIO - 1) * rises[0])
    if rises[1] - rises[0] < least or rises[-1] < LEFT_ABOVE * values[0]:
        return None
    evidence = (
        f"the loss fell in each of {len(falls)} samples, to {number(rises[0])}, along a line from which they are {number(noise)} "
        f"away, and rises in each of the last {len(rises) - 1}, to {number(rises[-1])}"
    )
    return incident("divergence", points[lowest + 1][0], points[-1][0], evidence)


def _is_worse_in_order(rows: Sequence[tuple[int, float, float]]) -> bool:
    """Whether losses rise and accuracies fall from the lowest loss to the end of many passes, nearly always."""
    losses, accuracies = [loss for _, loss, _ in rows], [-one for *_, one in rows]
    if len(rows) < MIN_ORDERED or losses[-1] < (1 + ORDERED_RISE) * min(losses):
        return False
    return max(order_chance(losses), order_chance(accuracies)) <= ORDERED_CHANCE


def worse_passes(samples: Samples) -> NumericFinding | None:
    """Find passes over the data, to the end of the log, of which each makes the training loss and its accuracy worse."""
    rows = samples.scores("accuracy") if samples.steps_are_passes else []
    if not are_positive(loss for _, loss, _ in rows):
        return None
    if _is_worse_in_order(rows):
        (_, first, _), (step, last, _) = rows[0], rows[-1]
        evidence = (
            f"the training loss rises over {len(rows)} passes over the data, from {number(first)} to {number(last)}, and the "
            "accuracy falls, nearly always"
        )
        return incident("divergence", rows[1][0], step, evidence)
    num = 0
    for before, after in pairwise(reversed(rows)):
        if not (after[1] < before[1] and after[2] > before[2]):
            break
        num += 1
    if not num:
        return None
    (_, first, best), (step, last, accuracy) = rows[-1 - num], rows[-1]
    if not any(num >= least and last >= (1 + rise) * first for least, rise in WORSE_PASSES):
        return None
    evidence = (
        f"the training loss rises with each of the last {num} passes over the data, from {number(first)} to {number(last)}, and "
        f"the accuracy falls from {number(best)} to {number(accuracy)}"
    )
    return incident("divergence", rows[-num][0], step, evidence)
