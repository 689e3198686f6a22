"""Gradient norms of a short log that is over: at its end, risen to its end, and in a jump that the loss shows, too."""

import math
from statistics import median

from runner.detect.numerics.findings import NumericFinding, incident, number
from runner.detect.numerics.finite import FIRST_SAMPLES, LASTING_SAMPLES, SEARCH_SAMPLES
from runner.detect.numerics.windows.samples import Samples, are_positive

# Gradient norms at the end that are not finite, beside a finite loss; chosen.
MIN_BAD_NORMS = 2
# The same from the start on, in more steps than a search for the loss scale takes; steps may be counted by the batch. Chosen.
MIN_BAD_FROM_START = 10
# Fewer that are all NaN are enough of a run that is older than any search, by its steps; chosen.
LATE_STEP = 200
# Norms that are risen to the end: samples on both sides, how far both are apart, and the ratio of their medians, beside a loss that
# does not fall. Chosen: norms rise in a warm-up, and while a loss falls.
MIN_SIDE, APART_RATIO, RISEN_NORM_RATIO = 4, 2.0, 10.0
# A jump of the norm that the loss beside it shows, too, after one sample: single norms rise 200 times in healthy runs, but no loss
# jumps beside them. Chosen.
NORM_RATIO, LOSS_BESIDE_RATIO = 1000.0, 3.5
# A jump of the norm alone: samples before it, and the ratio to their median, and to their highest. Chosen: five times what single
# norms of healthy runs have.
MIN_BEFORE_JUMP, MEDIAN_RATIO, HIGHEST_RATIO = 6, 1000.0, 50.0

# Norms of such a size, so many times. Chosen: norms that are printed with their loss scale are a thousand times smaller.
ABSURD_NORM, MIN_ABSURD = 1e9, 2


def norm_not_finite(samples: Samples) -> NumericFinding | None:
    """Find a gradient norm with which the log ends that is not finite, beside a loss that is."""
    records = [one for one in samples.records if one.grad_norm is not None]
    norms = [one.grad_norm for one in records]
    num = next(
        (n for n, norm in enumerate(reversed(norms)) if norm is not None and math.isfinite(norm)),
        len(norms),
    )
    tail, before = records[len(records) - num :], norms[: len(norms) - num]
    if num < MIN_BAD_NORMS or any(one.skipped or (one.loss_scale or 0) > 1 for one in tail):
        return None
    # A search for the loss scale, which some do not print, ends within some dozens of steps.
    begin = len(tail) > 1 and tail[0].step <= SEARCH_SAMPLES + tail[1].step - tail[0].step
    is_over = num >= MIN_BAD_FROM_START and tail[-1].step - tail[0].step >= SEARCH_SAMPLES
    if begin and not before and not is_over and not samples.is_past_start:
        return None
    is_late = samples.is_past_start or tail[0].step >= LATE_STEP
    are_nan = all(one.grad_norm is not None and math.isnan(one.grad_norm) for one in tail)
    is_clear = len(before) >= FIRST_SAMPLES or (not before and num >= LASTING_SAMPLES)
    is_clear |= is_late and are_nan
    if not is_clear or any(norm is not None and not math.isfinite(norm) for norm in before):
        return None
    evidence = (
        f"the gradient norm is {tail[-1].grad_norm} in the last {num} of {len(records)} samples"
    )
    return incident("nan_loss", tail[0].step, tail[-1].step, evidence)


def risen_norms(samples: Samples) -> NumericFinding | None:
    """Find gradient norms that are all far above those before, to the end, while the loss does not fall."""
    both = samples.losses_and_norms()
    if not are_positive(value for _, loss, norm in both for value in (loss, norm)):
        return None
    for index in range(MIN_SIDE, len(both) - MIN_SIDE + 1):
        before, after = both[:index], both[index:]
        highest, lowest = max(norm for _, _, norm in before), min(norm for _, _, norm in after)
        ratio = median(norm for _, _, norm in after) / median(norm for _, _, norm in before)
        is_worse = median(loss for _, loss, _ in after) >= median(loss for _, loss, _ in before)
        if lowest >= APART_RATIO * highest and ratio >= RISEN_NORM_RATIO and is_worse:
            evidence = (
                f"the gradient norm is {number(lowest)} and more in all {len(after)} samples from step {after[0][0]} on, at most "
                f"{number(highest)} before, and the loss does not fall (limit {RISEN_NORM_RATIO:g} times between the medians)"
            )
            return incident("grad_norm_spike", after[0][0], after[-1][0], evidence)
    return None


def absurd_norms(samples: Samples) -> NumericFinding | None:
    """Find gradient norms of a size that no sum of losses, and no loss scale, gives them."""
    absurd = [
        (one.step, one.grad_norm)
        for one in samples.records
        if one.grad_norm is not None and ABSURD_NORM <= one.grad_norm < math.inf
    ]
    if len(absurd) < MIN_ABSURD:
        return None
    (step, norm), (last_step, last) = absurd[0], absurd[-1]
    evidence = (
        f"the gradient norm is {number(norm)} at step {step} and {number(last)} at step {last_step} (limit {ABSURD_NORM:g}, "
        f"{MIN_ABSURD} times)"
    )
    return incident("grad_norm_spike", step, samples.records[-1].step, evidence)


def single_norm(samples: Samples) -> NumericFinding | None:
    """Find one gradient norm that is a thousand times what is usual, and far above the highest before."""
    norms = [(step, norm) for step, _, norm in samples.losses_and_norms()]
    if not are_positive(norm for _, norm in norms):
        return None
    for index in range(MIN_BEFORE_JUMP, len(norms)):
        step, norm = norms[index]
        before = [one for _, one in norms[:index]]
        if norm >= MEDIAN_RATIO * median(before) and norm >= HIGHEST_RATIO * max(before):
            evidence = (
                f"gradient norm {number(norm)} at step {step}: the {len(before)} samples before have a median of "
                f"{number(median(before))} and a highest of {number(max(before))} (limits {MEDIAN_RATIO:g} and {HIGHEST_RATIO:g} "
                "times)"
            )
            return incident("grad_norm_spike", step, samples.records[-1].step, evidence)
    return None


def norm_and_loss(samples: Samples) -> NumericFinding | None:
    """Find a jump that gradient norm and loss of one line show together, after one sample or more."""
    both = samples.losses_and_norms()
    if not are_positive(value for _, loss, norm in both for value in (loss, norm)):
        return None
    for index in range(1, len(both)):
        step, loss, norm = both[index]
        highest_loss = max(one for _, one, _ in both[:index])
        highest_norm = max(one for _, _, one in both[:index])
        if norm >= NORM_RATIO * highest_norm and loss >= LOSS_BESIDE_RATIO * highest_loss:
            evidence = (
                f"gradient norm {number(norm)} at step {step}, at most {number(highest_norm)} before, and the loss rose with it, "
                f"from at most {number(highest_loss)} to {number(loss)} (limits {NORM_RATIO:g} and {LOSS_BESIDE_RATIO:g} times)"
            )
            return incident("grad_norm_spike", step, samples.records[-1].step, evidence)
    return None
