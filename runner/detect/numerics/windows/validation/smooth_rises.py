"""Validation losses of a few evaluations that turn upwards along a smooth line, while the training loss falls each time."""

from itertools import pairwise

from runner.detect.numerics.findings import NumericFinding, incident, number
from runner.detect.numerics.windows.orders import second_differences
from runner.detect.numerics.windows.samples import Samples

# Evaluations in all, rises in a row to the last one, the rise in all, and what is left of the training loss since the best one;
# the same of fewer evaluations. All chosen: noise alone is a curve that bends upwards everywhere in one of two hundred orders of
# six, whose last three rise in a part of these.
MIN_BENT, MIN_RISES, BENT_RISE, LEFT_SHARE = 6, 3, 0.08, 0.9
FEW_BENT, FEW_BENT_RISE, FEW_LEFT_SHARE = 5, 0.12, 0.75


def bent_upwards(samples: Samples) -> NumericFinding | None:
    """Find a validation loss that falls ever less and then rises ever more, at evaluations whose training losses all fall."""
    evaluations = samples.evaluations()
    num = len(evaluations)
    if num < FEW_BENT:
        return None
    training = [value for _, value, _ in evaluations]
    validation = [value for _, _, value in evaluations]
    if training != sorted(set(training), reverse=True) or min(second_differences(validation)) <= 0:
        return None
    best = validation.index(min(validation))
    since = validation[best:]
    rises = all(before < after for before, after in pairwise(since))
    is_few = num < MIN_BENT
    least, left = (FEW_BENT_RISE, FEW_LEFT_SHARE) if is_few else (BENT_RISE, LEFT_SHARE)
    if training[-1] > left * training[best]:
        return None
    if not rises or len(since) <= MIN_RISES or since[-1] < (1 + least) * since[0]:
        return None
    evidence = (
        f"the validation loss rises ever faster at each of the last {len(since) - 1} evaluations, from {number(since[0])}, its "
        f"best, to {number(since[-1])}, while the training loss fell from {number(training[best])} to {number(training[-1])}"
    )
    return incident("validation_divergence", evaluations[best + 1][0], evaluations[-1][0], evidence)
