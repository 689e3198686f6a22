"""Losses of a short log that is over, and that run away to its end: above all before, or without a lower bound."""

from runner.detect.numerics.findings import NumericFinding, incident, number
from runner.detect.numerics.windows.loss_windows import (
    GROWTH_RATIO,
    LEAST_LOSS,
    has_grown,
    in_blocks,
)
from runner.detect.numerics.windows.samples import Samples, are_positive

# A loss that turns: falls in a row before its lowest sample, which noise has once in 5,000 orders; rises in a row to the end of
# the log, as one sample alone may be of an odd batch; and the last one in times of the highest before, and (as a rise of more
# samples) of the lowest. All chosen: more than was learned is lost at once.
MIN_FALLS, MIN_RISES, TURNED_RATIO = 6, 2, 2.0
# How far a learning rate rises meanwhile, at most. Chosen: a search for one raises it to where the loss turns.
SEARCHED_RATES = 1.5
# A loss below 0 that falls in each sample, faster and faster: samples, its size in times of the first one's, and its least size.
# All chosen: log-likelihoods of flows end at some thousands, and slow down before; only a loss without a bound goes on.
MIN_BELOW_ZERO, BELOW_ZERO_RATIO, LEAST_BELOW_ZERO = 8, 30.0, 1e5


def turned_loss(samples: Samples) -> NumericFinding | None:
    """Find a loss that fell in each sample, and then rises in each one, to more than it ever was."""
    points = samples.losses()
    values = [value for _, value in points]
    if not are_positive(values) or len(values) <= MIN_FALLS + MIN_RISES or min(values) < LEAST_LOSS:
        return None
    lowest, num_rises = min(values), len(values) - 1 - values.index(min(values))
    falls = values[: len(values) - num_rises]
    rises = values[len(falls) - 1 :]
    if len(falls) <= MIN_FALLS or num_rises < MIN_RISES:
        return None
    if falls != sorted(set(falls), reverse=True) or rises != sorted(set(rises)):
        return None
    rates = samples.rates()
    if rates and rates[-1] > SEARCHED_RATES * rates[len(falls) - 1]:
        return None
    before = max(values[:-1])
    if values[-1] < max(TURNED_RATIO * before, GROWTH_RATIO * lowest):
        return None
    evidence = (
        f"the loss fell in each of {len(falls)} samples, from {number(values[0])} to {number(lowest)}, and rises in each of the "
        f"last {num_rises}, to {number(values[-1])}: {TURNED_RATIO:g} times and more what it ever was"
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
