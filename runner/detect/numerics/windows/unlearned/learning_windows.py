"""Losses of a short log that is over and from which nothing was learned: at chance, without success, or the same again."""

import math
from collections.abc import Sequence

from runner.detect.numerics.findings import NumericFinding, incident, number
from runner.detect.numerics.windows.samples import Samples
from runner.detect.numerics.windows.unlearned.constant_loss import MIN_DIGITS, has_digits

# A classifier that knows nothing has a cross entropy of ln N of its N classes. Numbers of classes that are usual, since any loss is
# near the logarithm of some number; chosen.
CLASSES = (*range(2, 11), 20, 50, 100, 200, 1000)
# Samples at it, and how near: of the training loss, and of the validation loss or an accuracy of 1/N (by a share of it) as well; of
# the training loss alone, where it is exact, and not ln 2, with which preference losses and balanced discriminators begin or stay.
# Chosen.
MIN_AT_CHANCE, NEAR_CHANCE, EXACT_CHANCE, NEAR_ACCURACY = 5, 1e-3, 1e-4, 0.1
# Losses of evaluations, training and validation, that are as exact; the first evaluation is left out. Chosen.
MIN_EXACT = 6
# Samples at the end that are all equal, and how far from chance another was before. Chosen: preference losses begin there.
MIN_EQUAL, AWAY_FROM_CHANCE = 6, 0.2
# A step by which a run has begun to learn; chosen.
LATE_STEP = 1000
# Of a run that counts its passes from 0 or from 1; and evaluations of which no line says that each is of a pass. Chosen.
FIRST_PASSES, MIN_STAYING = (0, 1), 6
# A loss that does not move from there on, beside an accuracy of exactly 0: samples, the range of the loss, its least value. Chosen.
MIN_WITHOUT_SUCCESS, FLAT_RATIO, LEAST_FLAT_LOSS = 6, 5e-3, 1.0
# Losses that come again in the same order with every epoch: samples in a row that are equal to those one period before, different
# ones among them, and their digits. No update leaves so many losses as they were. Chosen.
MIN_REPEATED, MIN_DIFFERENT, MIN_REPEATED_DIGITS = 5, 4, 3


def loss_at_chance(samples: Samples) -> NumericFinding | None:
    """Find a classifier whose loss stays at ln N: its weights or its labels say nothing."""
    records = [one for one in samples.records if one.loss is not None]
    # The first one may still come from its initial weights.
    later = [one.loss for one in records[1:] if one.loss is not None]
    validation = [value for _, _, value in samples.evaluations()]
    accuracies = samples.accuracies()
    # Weights of 0 in the last layer begin exactly there.
    is_late = samples.steps_are_passes or samples.is_past_passes
    is_late |= bool(records) and records[-1].step >= LATE_STEP
    for classes in CLASSES:
        chance = math.log(classes)
        num_equal = _num_fallen_to(later, chance)
        is_exact = is_late and classes > 2 and _are_near(later, chance, EXACT_CHANCE)
        is_near = _are_near(later, chance, NEAR_CHANCE)
        is_valid = is_near and _are_near(validation, chance, NEAR_CHANCE)
        is_valid |= _stays_at_chance(samples, chance)
        is_guessed = (
            is_late
            and is_near
            and any(_are_near(one, 1 / classes, NEAR_ACCURACY) for one in accuracies)
        )
        is_guessed |= is_late and _are_all_at_chance(samples, classes)
        both = [value for _, *losses in samples.evaluations() for value in losses]
        is_valid |= (
            classes > 2
            and len(both) >= MIN_EXACT
            and all(abs(value - chance) <= EXACT_CHANCE * chance for value in both[2:])
        )
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


def _stays_at_chance(samples: Samples, chance: float) -> bool:
    """Whether each evaluation, from the first one on, has a validation loss at chance and a training loss that is no better."""
    evaluations = samples.evaluations()
    if len(evaluations) < (MIN_AT_CHANCE if samples.steps_are_passes else MIN_STAYING):
        return False
    return evaluations[0][0] in FIRST_PASSES and all(
        loss >= (1 - NEAR_CHANCE) * chance and abs(validation - chance) <= NEAR_CHANCE * chance
        for _, loss, validation in evaluations
    )


def fallen_to_chance(samples: Samples) -> NumericFinding | None:
    """Find a loss of a longer log that fell to ln N, and is exactly that to its end."""
    points = samples.losses()
    losses = [value for _, value in points]
    for classes in CLASSES:
        chance = math.log(classes)
        if num := _num_fallen_to(losses, chance):
            evidence = (
                f"the loss is {losses[-1]:.12g} in each of the last {num} of {len(losses)} samples: the logarithm of {classes}, "
                f"which is the cross entropy of a model of {classes} classes that has learned nothing"
            )
            return incident("plateau", points[-num][0], points[-1][0], evidence)
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
