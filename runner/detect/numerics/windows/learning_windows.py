"""What else losses of a short log that is over show: one at chance, and a validation loss that leaves the training loss."""

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from runner.detect.numerics.findings import NumericFinding, incident, number
from runner.detect.numerics.slow_trends import (
    INCIDENT_RISE,
    NOTE_RISE,
    VARIANCE_OF_SECOND_DIFFERENCES,
)
from runner.detect.numerics.windows.constant_loss import MIN_DIGITS, has_digits
from runner.detect.numerics.windows.samples import Samples

# A classifier that knows nothing has a cross entropy of ln N of its N classes. Numbers of classes that are usual, since any loss is
# near the logarithm of some number; chosen.
CLASSES = (*range(2, 11), 20, 50, 100, 200, 1000)
# Samples at it, and how near: of the training loss, and of the validation loss or an accuracy of 1/N (by a share of it) as well; of
# the training loss alone, where it is exact, and not ln 2, with which preference losses and balanced discriminators begin or stay.
# Chosen.
MIN_AT_CHANCE, NEAR_CHANCE, EXACT_CHANCE, NEAR_ACCURACY = 5, 1e-3, 1e-4, 0.1
# Samples at the end that are all equal, and how far from chance another was before. Chosen: preference losses begin there.
MIN_EQUAL, AWAY_FROM_CHANCE = 6, 0.2
# A step by which a run has begun to learn; chosen.
LATE_STEP = 1000
# A loss that does not move from there on, beside an accuracy of exactly 0: samples, the range of the loss, its least value. Chosen.
MIN_WITHOUT_SUCCESS, FLAT_RATIO, LEAST_FLAT_LOSS = 6, 5e-3, 1.0
# Evaluations in a row whose validation loss rises, and training loss falls, since the best one, and the rise in times of the noise
# that second differences show. Chosen.
MIN_RISING, RISE_OVER_NOISE = 5, 25.0
# The same with fewer evaluations in a row, among so many, and a rise as for an incident of long curves. Chosen.
MIN_MARKED, MIN_WITH_MARKED, MARKED_OVER_NOISE = 3, 6, 10.0
# Evaluations at the start, while the curve is steep, which are no noise; left out where as many as above remain. Chosen.
NUM_STEEP = 3
# The same where some rises are interrupted: evaluations since the best one, the rise in all, also in times of the noise, and the
# share of their pairs that are in order, less that of those that are not. Chosen: of orders of nine, noise alone reaches it in one
# of ten thousand, and rises then by five times itself.
MIN_ORDERED, ORDERED_RISE, ORDERED_OVER_NOISE, LEAST_ORDER = 9, 0.05, 8.0, 0.8
# Fewer of them, and a clearer order, where the rise is as far above the noise as above. Chosen.
MIN_CLEAR, CLEAR_ORDER = 6, 0.85
# A validation loss so many times the training loss, that rises (as for a note of long curves) while the training loss falls to that
# share of what it was at the best evaluation; its rise in times of the noise, where there are three evaluations or more. Chosen.
APART_RATIO, FALLEN_SHARE, APART_OVER_NOISE = 3.0, 0.8, 8.0
# The same in a few evaluations, whose noise is not known: rises in a row, their sum, the validation loss in times of the training
# loss, and what is left of that since the best evaluation. All chosen: what was learned since then is the training data by heart.
MIN_MEMORISED, MEMORISED_RISE, MEMORISED_RATIO, MEMORISED_SHARE = 2, 0.1, 10.0, 0.5
# Evaluations in all, each with a validation loss so many times the training loss, and how much higher its mean of the later half is
# than that of the earlier one, while the training loss falls as above: noise hides the rise, but not the distance. Chosen.
MIN_FAR_APART, FAR_APART_RATIO, FAR_APART_RISE = 6, 5.0, 0.05
# Losses that come again in the same order with every epoch: samples in a row that are equal to those one period before, different
# ones among them, and their digits. No update leaves so many losses as they were. Chosen.
MIN_REPEATED, MIN_DIFFERENT, MIN_REPEATED_DIGITS = 5, 4, 3
# Evaluations that show their noise, or else how many intervals between two of them the run is old. Chosen.
MIN_KNOWN, BEGIN_INTERVALS = 4, 2


def loss_at_chance(samples: Samples) -> NumericFinding | None:
    """Find a classifier whose loss stays at ln N: its weights or its labels say nothing."""
    records = [one for one in samples.records if one.loss is not None]
    # The first one may still come from its initial weights.
    later = [one.loss for one in records[1:] if one.loss is not None]
    validation = [value for _, _, value in samples.evaluations()]
    accuracies = samples.accuracies()
    # Weights of 0 in the last layer begin exactly there.
    is_late = samples.steps_are_passes or (bool(records) and records[-1].step >= LATE_STEP)
    for classes in CLASSES:
        chance = math.log(classes)
        num_equal = _num_fallen_to(later, chance)
        is_exact = is_late and classes > 2 and _are_near(later, chance, EXACT_CHANCE)
        is_near = _are_near(later, chance, NEAR_CHANCE)
        is_valid = is_near and _are_near(validation, chance, NEAR_CHANCE)
        is_guessed = (
            is_late
            and is_near
            and any(_are_near(one, 1 / classes, NEAR_ACCURACY) for one in accuracies)
        )
        is_guessed |= is_late and _are_all_at_chance(samples, classes)
        if is_exact or is_valid or is_guessed or num_equal:
            beside = " and the validation loss" if is_valid else ""
            num = num_equal or len(records)
            beside += f" and an accuracy of 1 in {classes}" if is_guessed else ""
            evidence = (
                f"a loss{beside} at {chance:.4f} in {num} samples: the logarithm of {classes}, which is the cross "
                f"entropy of a model of {classes} classes that has learned nothing"
            )
            return incident("plateau", records[0].step, records[-1].step, evidence)
    return None


def _are_all_at_chance(samples: Samples, classes: int) -> bool:
    """Whether both losses of each evaluation, and an accuracy of each line, are those of a guess."""
    evaluations, chance = samples.evaluations(), math.log(classes)
    values = [value for _, *losses in evaluations for value in losses]
    are_losses = all(abs(value - chance) <= NEAR_CHANCE * chance for value in values)
    return (
        bool(values)
        and are_losses
        and any(
            all(abs(value - 1 / classes) <= NEAR_ACCURACY / classes for value in one)
            for one in samples.accuracies()
        )
    )


def _num_fallen_to(losses: Sequence[float], chance: float) -> int:
    """Return how many losses at the end are all equal, and at chance, after others that were not; 0 if they are too few."""
    num = next((n for n, one in enumerate(reversed(losses)) if one != losses[-1]), 0)
    if num < MIN_EQUAL or not has_digits(losses[-1], MIN_DIGITS):
        return 0
    was_away = any(abs(one - chance) > AWAY_FROM_CHANCE * chance for one in losses[:-num])
    return num if was_away and _are_near(losses[-num:], chance, NEAR_CHANCE) else 0


def _are_near(values: Sequence[float], chance: float, share: float) -> bool:
    """Whether there are enough values, the first one left out or not, all within this share of chance."""
    is_enough = len(values) >= MIN_AT_CHANCE - 1
    return is_enough and all(abs(value - chance) <= share * chance for value in values)


def loss_without_success(samples: Samples) -> NumericFinding | None:
    """Find a loss that stays where it is beside an accuracy of exactly 0, long after a warm-up began."""
    points = samples.losses()
    values = [value for _, value in points]
    if len(values) < MIN_WITHOUT_SUCCESS or points[0][0] < LATE_STEP:
        return None
    is_flat = min(values) >= LEAST_FLAT_LOSS and max(values) <= (1 + FLAT_RATIO) * min(values)
    if not is_flat or not any(set(one) == {0.0} for one in samples.accuracies()):
        return None
    evidence = (
        f"the loss stays between {number(min(values))} and {number(max(values))} in {len(values)} samples from step {points[0][0]} "
        f"to step {points[-1][0]}, with an accuracy of 0 in all of them"
    )
    return incident("plateau", points[0][0], points[-1][0], evidence)


def leaving_validation(samples: Samples) -> NumericFinding | None:
    """Find a validation loss that rises while the training loss falls: steadily, or far above it."""
    evaluations = samples.evaluations()
    if len(evaluations) < 2:
        return None
    best = min(range(len(evaluations)), key=lambda at: (evaluations[at][2], -at))
    since = evaluations[best:]
    (_, best_train, best_validation), (step, train, validation) = since[0], since[-1]
    if validation < (1 + NOTE_RISE) * best_validation:
        return None
    rise = validation - best_validation
    has_steep = len(evaluations) >= NUM_STEEP + MIN_WITH_MARKED
    noise = _noise(evaluations[NUM_STEEP:] if has_steep else evaluations)
    is_clear = rise >= MARKED_OVER_NOISE * noise
    order = min(_order([value for _, _, value in since]), _order([-value for _, value, _ in since]))
    is_ordered = len(since) >= MIN_ORDERED and order >= LEAST_ORDER
    is_ordered &= rise >= ORDERED_OVER_NOISE * noise
    is_ordered |= is_clear and len(since) >= MIN_CLEAR and order >= CLEAR_ORDER
    is_ordered &= rise >= ORDERED_RISE * best_validation
    is_broken = any(now[2] <= before[2] or now[1] >= before[1] for before, now in pairwise(since))
    if is_broken and not is_ordered:
        return None
    is_steady = len(since) > MIN_RISING and rise >= RISE_OVER_NOISE * _noise(since)
    is_apart = validation >= APART_RATIO * train and train <= FALLEN_SHARE * best_train
    if len(evaluations) >= MIN_KNOWN:
        is_apart &= rise >= APART_OVER_NOISE * _noise(evaluations)
    else:
        # The first evaluations of a run may rise before the weights are worth anything.
        is_apart &= since[0][0] >= BEGIN_INTERVALS * (since[1][0] - since[0][0])
    is_marked = len(since) > MIN_MARKED and len(evaluations) >= MIN_WITH_MARKED
    is_marked &= rise >= INCIDENT_RISE * best_validation
    is_marked &= is_clear
    is_memorised = len(since) > MIN_MEMORISED and rise >= MEMORISED_RISE * best_validation
    is_memorised &= validation >= MEMORISED_RATIO * train and train <= MEMORISED_SHARE * best_train
    if not (is_ordered or is_steady or is_marked or is_apart or is_memorised):
        return None
    evidence = (
        f"the validation loss rose from {number(best_validation)}, its best, to {number(validation)} at step {step}, while the "
        f"training loss fell from {number(best_train)} to {number(train)}"
    )
    return incident("validation_divergence", since[1][0], step, evidence)


def fitted_far_apart(samples: Samples) -> NumericFinding | None:
    """Find a validation loss that is always far above the training loss, and higher in the later half than in the earlier one."""
    evaluations = samples.evaluations()
    if len(evaluations) < MIN_FAR_APART:
        return None
    if any(validation < FAR_APART_RATIO * train for _, train, validation in evaluations):
        return None
    half = len(evaluations) // 2
    earlier = fmean(validation for _, _, validation in evaluations[:half])
    later = fmean(validation for _, _, validation in evaluations[-half:])
    has_fallen = evaluations[-1][1] <= FALLEN_SHARE * evaluations[0][1]
    if not has_fallen or later < (1 + FAR_APART_RISE) * earlier:
        return None
    evidence = (
        f"the validation loss is {FAR_APART_RATIO:g} times the training loss and more at each of {len(evaluations)} evaluations, "
        f"and rose from {number(earlier)} on average in the earlier half to {number(later)} in the later one"
    )
    return incident("validation_divergence", evaluations[half][0], evaluations[-1][0], evidence)


def repeated_losses(samples: Samples) -> NumericFinding | None:
    """Find losses that are those of the epoch before, to the last digit: nothing is learned."""
    points = samples.losses()
    values = [value for _, value in points]
    for period in range(MIN_DIFFERENT, len(values) - MIN_REPEATED + 1):
        again = values[period:]
        if again != values[: len(again)] or len(set(again)) < MIN_DIFFERENT:
            continue
        if all(has_digits(value, MIN_REPEATED_DIGITS) for value in again):
            evidence = (
                f"the losses of the last {len(again)} samples are exactly those of {period} samples before: the weights do not "
                "change"
            )
            return incident("plateau", points[period][0], points[-1][0], evidence)
    return None


def _order(values: Sequence[float]) -> float:
    """Return how far values rise from each to each later one: 1 if all do, -1 if none does."""
    signs = [
        (later > earlier) - (later < earlier)
        for index, earlier in enumerate(values)
        for later in values[index + 1 :]
    ]
    return fmean(signs)


def _noise(evaluations: Sequence[tuple[int, float, float]]) -> float:
    """Return the spread of validation losses around a smooth line, by their second differences; 0 of fewer than three."""
    values = [value for _, _, value in evaluations]
    seconds = [
        after - 2 * value + before
        for before, value, after in zip(values, values[1:], values[2:], strict=False)
    ]
    if not seconds:
        return 0.0
    square = sum(one * one for one in seconds) / len(seconds)
    return math.sqrt(square / VARIANCE_OF_SECOND_DIFFERENCES)
