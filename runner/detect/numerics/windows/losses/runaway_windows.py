"""Losses of a short log that is over, and that run away to its end: above all before, or without a lower bound."""

import math
from collections.abc import Sequence

from runner.detect.numerics.findings import NumericFinding, incident, number
from runner.detect.numerics.windows.losses.loss_windows import (
    GROWTH_RATIO,
    LEAST_LOSS,
    has_grown,
    in_blocks,
)
from runner.detect.numerics.windows.samples import Samples, are_positive
from runner.facts.faults import Fault

# A loss that turns: falls in a row before its lowest sample, which noise has once in 5,000 orders; rises in a row to the end of
# the log, as one sample alone may be of an odd batch; and the last one in times of the highest before, and (as a rise of more
# samples) of the lowest. All chosen: more than was learned is lost at once.
MIN_FALLS, MIN_RISES, TURNED_RATIO = 6, 2, 2.0
# The same where not all that was learned is lost: fewer falls, to this share of the first sample, more rises, and the last one and
# the first one of them in times of the lowest. Chosen: noise has this order once in 1,600, and then not these ratios.
FEW_FALLS, FALLEN_SHARE, MORE_RISES, LOST_RATIO, TURN_RATIO = 4, 0.5, 3, 4.0, 2.0
# How far a learning rate rises meanwhile, at most. Chosen: a search for one raises it to where the loss turns.
SEARCHED_RATES = 1.5
# A loss below 0 that falls in each sample, faster and faster: samples, its size in times of the first one's, and its least size.
# All chosen: log-likelihoods of flows end at some thousands, and slow down before; only a loss without a bound goes on.
MIN_BELOW_ZERO, BELOW_ZERO_RATIO, LEAST_BELOW_ZERO = 8, 30.0, 1e5

# Two levels, with samples between them: samples of each, different ones among them, the share of all that may lie between, the
# ratio of the nearest samples of both, that where no learning rate is printed, and that in times of the wider range of the two. All
# chosen: of noise alone, the last five of ten are the five highest ones once in 252 orders, and then not four times as far from the
# others as from one another.
MIN_OF_LEVEL, MIN_DIFFERENT, BETWEEN_SHARE = 5, 3, 0.5
LEVELS_RATIO, LEVELS_RATIO_ALONE, LEVELS_RANGES = 1.4, 1.5, 4.0
# An end that rises: samples before it, and in it; and its last one in times of the highest before, and of their range. Chosen.
MIN_BEFORE_END, MIN_OF_END, END_RATIO, END_RANGES = 6, 3, 1.5, 2.5
# How far all losses after a spike are above those before where it was none. Chosen.
LASTING_RATIO = 10.0
# The same of the last one, where each is above the one before. Chosen.
RUNNING_RATIO = 5.0
# The cross entropy of a probability of 0 that was clamped to the smallest normal number of 32 bits, as Caffe and others do; its
# last digit; and samples of it, where there is no other one. A model whose numbers are sound gives no class so little.
SATURATED_LOSS, SATURATED_DIGIT, MIN_SATURATED = -math.log(1.1754943508222875e-38), 2e-4, 2
# Of a weighted one: the weight at most, and how near it is, as six digits are printed.
MOST_SATURATED, SATURATED_SHARE = 1000, 3e-6
# A size that no loss of sound weights has beside others that are so much smaller, a size near the largest number of 32 bits, and
# the share of the first one below which it has come back; chosen.
ABSURD_LOSS, ABSURD_RATIO, LARGEST_LOSS, BACK_SHARE = 1e12, 1e6, 1e30, 1e-3


def saturated_loss(samples: Samples) -> NumericFinding | None:
    """Find a cross entropy at its highest possible value, or at a multiple of it by a weight, with which a log ends."""
    points = samples.losses()
    num = 0
    while num < len(points) and _saturation(points[-1 - num][1]) == 1:
        num += 1
    if not num:
        # Weights of a loss are any number; one that is met by chance is not met twice.
        while (
            num < len(points)
            and points[-1 - num][1] == points[-1][1]
            and _saturation(points[-1][1])
        ):
            num += 1
        num = 0 if num < MIN_SATURATED or num == len(points) else num
    if num == 0 or (num < MIN_SATURATED and num == len(points)):
        return None
    onset, before = points[-num][0], [value for _, value in points[:-num]]
    came_from = f", {number(before[-1])} before" if before else ""
    evidence = (
        f"the loss is {points[-1][1]:.7g} in the last {num} of {len(points)} samples{came_from}: the cross entropy of a "
        "probability of 0, clamped to the smallest normal number of 32 bits"
    )
    return incident("divergence", onset, points[-1][0], evidence)


def _saturation(loss: float) -> int:
    """Return how many times the highest cross entropy a loss is; 0: it is no such multiple."""
    if not SATURATED_LOSS / 2 < loss < MOST_SATURATED * SATURATED_LOSS:
        return 0
    times = round(loss / SATURATED_LOSS)
    limit = SATURATED_DIGIT if times == 1 else SATURATED_SHARE * loss
    return times if abs(loss - times * SATURATED_LOSS) <= limit else 0


def absurd_loss(samples: Samples) -> NumericFinding | None:
    """Find a loss of a size that no weights give that are of any use; one that comes back was that of a few samples.

    The squares of large targets may be as large, but then all losses of the log are.
    """
    records = [one for one in samples.records if not one.skipped]
    losses = [
        (one.step, one.loss) for one in records if one.loss is not None and math.isfinite(one.loss)
    ]
    lowest = min((abs(loss) for _, loss in losses), default=0.0)
    absurd = [
        (step, loss)
        for step, loss in losses
        if abs(loss) >= max(ABSURD_LOSS, ABSURD_RATIO * lowest) or abs(loss) >= LARGEST_LOSS
    ]
    if not absurd:
        return None
    step, loss = absurd[0]
    is_back = abs(losses[-1][1]) < BACK_SHARE * ABSURD_LOSS
    meaning = "it came back" if is_back else f"{number(lowest)} is the smallest of the log"
    evidence = f"loss {number(loss)} at step {step}, beyond {ABSURD_LOSS:g}: {meaning}"
    fault: Fault = "loss_spike" if is_back else "divergence"
    return incident(fault, step, losses[-1][0], evidence)


def divergence_from(samples: Samples, onset_step: int) -> NumericFinding | None:
    """Find a spike that was none: all losses from this step on are far above those before, and do not fall."""
    points = samples.losses()
    before = [value for step, value in points if step < onset_step]
    after = [(step, value) for step, value in points if step >= onset_step]
    values = [value for _, value in after]
    if not before or len(after) < MIN_OF_END or not are_positive([*before, *values]):
        return None
    runs_away = values == sorted(set(values)) and values[-1] >= RUNNING_RATIO * max(before)
    stays_far = min(values) >= LASTING_RATIO * max(before) and values[-1] >= values[0]
    if not runs_away and not stays_far:
        return None
    evidence = (
        f"the loss is {number(min(values))} and more in all {len(after)} samples from step {onset_step} on, "
        f"{number(max(before))} at most before, and ends at {number(values[-1])}"
    )
    return incident("divergence", onset_step, after[-1][0], evidence)


def second_level(samples: Samples) -> NumericFinding | None:
    """Find losses that left the level of the first samples for a higher one, on which the log ends."""
    points = samples.losses()
    values = [value for _, value in points]
    if len(values) < 2 * MIN_OF_LEVEL or not are_positive(values) or min(values) < LEAST_LOSS:
        return None
    rates = samples.rates()
    if rates and max(rates) > rates[0]:
        return None
    ratio = LEVELS_RATIO if rates else LEVELS_RATIO_ALONE
    logs = [math.log(value) for value in values]
    most_between = int(BETWEEN_SHARE * len(logs))
    for num in range(MIN_OF_LEVEL, len(logs) - MIN_OF_LEVEL + 1):
        for end in range(num, min(num + most_between, len(logs) - MIN_OF_LEVEL) + 1):
            before, between, after = logs[:num], logs[num:end], logs[end:]
            gap = min(after) - max(before)
            width = max(_width(before), _width(after))
            if gap < max(math.log(ratio), LEVELS_RANGES * width):
                continue
            if min(len(set(before)), len(set(after))) < MIN_DIFFERENT:
                continue
            if any(not max(before) <= value <= max(after) for value in between):
                continue
            evidence = (
                f"the loss is {number(math.exp(min(after)))} and more in all {len(after)} samples from step {points[end][0]} on, "
                f"{number(math.exp(max(before)))} at most in the first {num}, and stays there"
            )
            return incident("divergence", points[num][0], points[-1][0], evidence)
    return None


def rising_end(samples: Samples) -> NumericFinding | None:
    """Find losses that rise in each of the last samples, far above all that came before."""
    points = samples.losses()
    values = [value for _, value in points]
    num = 1
    while num < len(values) and values[-num - 1] < values[-num]:
        num += 1
    # The lowest of them is where the rise begins.
    end, before = values[len(values) - num + 1 :], values[: len(values) - num + 1]
    if len(end) < MIN_OF_END or len(before) < MIN_BEFORE_END or not are_positive(values):
        return None
    if (rates := samples.rates()) and rates[-1] > rates[-len(end) - 1]:
        return None
    highest = max(before)
    width = _width([math.log(value) for value in before])
    limit = max(math.log(END_RATIO), END_RANGES * width)
    if min(before) < LEAST_LOSS or end[0] <= highest or math.log(end[-1] / highest) < limit:
        return None
    evidence = (
        f"the loss rises in each of the last {len(end)} samples, to {number(end[-1])}: {number(highest)} was the highest of the "
        f"{len(before)} before (limit {number(highest * math.exp(limit))})"
    )
    return incident("divergence", points[-len(end)][0], points[-1][0], evidence)


def _width(values: Sequence[float]) -> float:
    return max(values) - min(values)


def turned_loss(samples: Samples) -> NumericFinding | None:
    """Find a loss that fell in each sample, and then rises in each one: to more than it ever was, or to many times its lowest."""
    points = samples.losses()
    values = [value for _, value in points]
    if len(values) < 2 or not are_positive(values) or min(values) < LEAST_LOSS:
        return None
    lowest, num_rises = min(values), len(values) - 1 - values.index(min(values))
    falls = values[: len(values) - num_rises]
    rises = values[len(falls) - 1 :]
    if falls != sorted(set(falls), reverse=True) or rises != sorted(set(rises)):
        return None
    rates = samples.rates()
    if rates and rates[-1] > SEARCHED_RATES * rates[len(falls) - 1]:
        return None
    before, num_falls = max(values[:-1]), len(falls) - 1
    has_lost_all = num_falls >= MIN_FALLS and num_rises >= MIN_RISES
    has_lost_all &= values[-1] >= max(TURNED_RATIO * before, GROWTH_RATIO * lowest)
    has_lost_much = num_falls >= FEW_FALLS and num_rises >= MORE_RISES
    has_lost_much &= lowest <= FALLEN_SHARE * values[0] and values[-1] >= LOST_RATIO * lowest
    if not has_lost_all and not (has_lost_much and rises[1] >= TURN_RATIO * lowest):
        return None
    limit = (
        f"{TURNED_RATIO:g} times and more what it ever was"
        if has_lost_all
        else f"{LOST_RATIO:g} times and more its lowest"
    )
    evidence = (
        f"the loss fell in each of {len(falls)} samples, from {number(values[0])} to {number(lowest)}, and rises in each of the "
        f"last {num_rises}, to {number(values[-1])}: {limit}"
    )
    return incident("divergence", points[len(falls)][0], points[-1][0], evidence)


def loss_without_bound(samples: Samples) -> NumericFinding | None:
    """Find a loss below 0 whose size grows faster and faster to the end of the log."""
    points = [(step, -value) for step, value in in_blocks(samples.losses())]
    sizes = [size for _, size in points]
    if len(sizes) < MIN_BELOW_ZERO or not are_positive(sizes) or sizes != sorted(set(sizes)):
        return None
    if sizes[-1] < LEAST_BELOW_ZERO or not has_grown(points, len(points), BELOW_ZERO_RATIO):
        return None
    last_step, _ = samples.losses()[-1]
    evidence = (
        f"the loss falls from {number(-sizes[0])} to {number(-sizes[-1])} over {len(points)} samples, faster and faster: it has no "
        "lower bound, as where labels or signs are wrong"
    )
    return incident("divergence", points[1][0], last_step, evidence)
