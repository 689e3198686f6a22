"""Gradient norms of a short log that were steady: they jump, or rise slowly to the end, while the loss tells little."""

import math
from statistics import median

from runner.detect.numerics.findings import NumericFinding, incident, number
from runner.detect.numerics.windows.losses.loss_windows import TREND_CHANCE, order_chance
from runner.detect.numerics.windows.orders import width
from runner.detect.numerics.windows.samples import Samples, are_positive

# A jump off steady norms: samples before it and how many of them count, its ratio to the highest of those, and that in times of
# their range, both as logarithms. Measured: of healthy real curves the furthest are 18 times with 3.3 ranges, and 7 times with 27
# ranges. The same after fewer samples; chosen.
MIN_STEADY, MOST_BEFORE, JUMP_RATIO, JUMP_RANGES = 5, 8, 12.0, 4.0
FEW_STEADY, FEW_RATIO, FEW_RANGES = 4, 30.0, 10.0
LATE_STEP, LEAST_STEADY, LEAST_STEADY_RATIO, LEAST_STEADY_RANGES = 100, 3, 60.0, 15.0
# A drift: samples, those at each end whose medians are compared, the ratio of the norms' and of the losses' medians, and the chance
# that noise alone has the order of the losses. Chosen: norms rise in a warm-up, but the loss does not rise with them.
MIN_DRIFT, END_SAMPLES, DRIFT_RATIO, DRIFT_LOSS, LOSS_CHANCE = 9, 3, 3.0, 1.01, 0.01


def jump_off_steady_norms(samples: Samples) -> NumericFinding | None:
    """Find a gradient norm far above all before, by the range of those."""
    both = samples.losses_and_norms()
    if not are_positive(norm for _, _, norm in both):
        return None
    logs = [math.log(norm) for _, _, norm in both]
    is_late = bool(both) and both[0][0] >= LATE_STEP
    for index in range(LEAST_STEADY if is_late else FEW_STEADY, len(both)):
        before = logs[max(0, index - MOST_BEFORE) : index]
        ratio, ranges = JUMP_RATIO, JUMP_RANGES
        if len(before) < FEW_STEADY:
            ratio, ranges = LEAST_STEADY_RATIO, LEAST_STEADY_RANGES
        elif len(before) < MIN_STEADY:
            ratio, ranges = FEW_RATIO, FEW_RANGES
        limit = max(math.log(ratio), ranges * width(before))
        if logs[index] - max(logs[:index]) < limit:
            continue
        step, _, norm = both[index]
        evidence = (
            f"gradient norm {number(norm)} at step {step}: the {len(before)} samples before are between "
            f"{number(math.exp(min(before)))} and {number(math.exp(max(before)))} (limit {number(math.exp(max(before) + limit))})"
        )
        return incident("grad_norm_spike", step, samples.records[-1].step, evidence)
    return None


def drifting_norms(samples: Samples) -> NumericFinding | None:
    """Find gradient norms that rise in order to a multiple, and a loss that rises with them, at a rate that does not."""
    both = samples.losses_and_norms()
    losses, norms = [loss for _, loss, _ in both], [norm for *_, norm in both]
    if len(both) < MIN_DRIFT or not are_positive([*losses, *norms]):
        return None
    rates = samples.rates()
    if rates and max(rates) > rates[0]:
        return None
    ratio = median(norms[-END_SAMPLES:]) / median(norms[:END_SAMPLES])
    rise = median(losses[-END_SAMPLES:]) / median(losses[:END_SAMPLES])
    if ratio < DRIFT_RATIO or rise < DRIFT_LOSS:
        return None
    if order_chance(norms) > TREND_CHANCE or order_chance(losses) > LOSS_CHANCE:
        return None
    evidence = (
        f"the gradient norm rose from {number(norms[0])} to {number(norms[-1])} over {len(both)} samples, and the loss with it, "
        f"from {number(losses[0])} to {number(losses[-1])}"
    )
    return incident("grad_norm_drift", both[1][0], both[-1][0], evidence)
