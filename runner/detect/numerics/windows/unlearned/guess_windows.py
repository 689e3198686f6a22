"""Losses of a short log of a run that is late, and that are still those of a guess, or of gradients that are 0."""

import math
from statistics import fmean

from runner.detect.numerics.findings import NumericFinding, incident, number
from runner.detect.numerics.windows.samples import Samples, are_positive
from runner.detect.numerics.windows.unlearned.constant_loss import MIN_DIGITS, has_digits
from runner.detect.numerics.windows.unlearned.learning_windows import CLASSES, LATE_STEP
from runner.detect.numerics.windows.unlearned.perplexity_windows import (
    FALL_OF_FREQUENCIES,
    MIN_OF_FREQUENCIES,
)

# Losses of a language model: how near together they are, the first step from which on they are late, and the least that is no
# learning, in nats: of a line with a perplexity, that of frequencies alone; of one with a rate of tokens, of which the loss may be
# a sum, that of a guess among all words. All chosen: a model is below the one after some hundred steps, below the other after ten.
FLAT_WORDS, LATE_WORDS, LOSS_OF_FREQUENCIES, LATE_GUESS, LOSS_OF_GUESS = (
    1.01,
    10_000,
    7.0,
    2000,
    9.5,
)
FLAT_GUESS = 1.003
# Classes of which a batch shows few, so that its accuracy says little: their least number, and the mean accuracy in times of that
# of a guess; of fewer classes, how near the mean is; and samples, and how near their losses are. Chosen.
MANY_CLASSES, MOST_RIGHT, NEAR_MEAN, MIN_GUESSED, NEAR_LOSS = 50, 4.0, 0.2, 6, 1.5e-3
# Passes whose loss stays within this share, beside an accuracy that is so small and moves so little. Chosen.
MIN_RESTING, RESTING_SHARE, SMALL_ACCURACY, ACCURACY_RANGE = 8, 1e-3, 0.05, 2e-3
# Samples of one loss, to all digits, with a gradient norm of 0. Chosen.
MIN_WITHOUT_NORM = 6


def guessed_classes(samples: Samples) -> NumericFinding | None:
    """Find a loss at ln N of a run that is late, beside an accuracy whose mean is that of a guess among N classes."""
    records = [one for one in samples.records if one.loss is not None]
    losses = [one.loss for one in records if one.loss is not None]
    if len(losses) < MIN_GUESSED or not (records[-1].step >= LATE_STEP or samples.is_past_passes):
        return None
    for classes in CLASSES:
        chance = math.log(classes)
        if classes == 2 or any(abs(value - chance) > NEAR_LOSS * chance for value in losses):
            continue
        means = [classes * fmean(column) for column in samples.accuracies()]
        if classes >= MANY_CLASSES:
            is_guess = any(mean <= MOST_RIGHT for mean in means)
        else:
            is_guess = any(abs(mean - 1) <= NEAR_MEAN for mean in means)
        if is_guess:
            evidence = (
                f"the loss is between {number(min(losses))} and {number(max(losses))} in {len(losses)} samples, with an accuracy "
                f"of one in {classes}: the cross entropy of a model of {classes} classes that has learned nothing is {chance:.4f}"
            )
            return incident("plateau", records[0].step, records[-1].step, evidence)
    return None


def guessed_words(samples: Samples) -> NumericFinding | None:
    """Find a language model that is late in its training, and whose loss stays where the first steps leave it."""
    points = samples.losses()
    if len(points) < MIN_OF_FREQUENCIES or not are_positive(value for _, value in points):
        return None
    values, half = [value for _, value in points], len(points) // 2
    first, lowest, highest = points[0][0], min(values), max(values)
    has_tokens = all(
        one.tokens_per_second is not None for one in samples.records if one.loss is not None
    )
    perplexities = samples.scores("perplexity")
    in_bits = bool(perplexities) and all(_is_in_bits(loss, one) for _, loss, one in perplexities)
    nats = lowest * (math.log(2) if in_bits else 1)
    is_known = in_bits and first >= LATE_WORDS and nats >= LOSS_OF_FREQUENCIES
    is_known &= highest <= FLAT_WORDS * lowest
    is_guess = has_tokens and first >= LATE_GUESS and nats >= LOSS_OF_GUESS
    is_guess &= highest <= FLAT_GUESS * lowest
    has_fallen = fmean(values[-half:]) < (1 - FALL_OF_FREQUENCIES) * fmean(values[:half])
    if has_fallen or not (is_known or is_guess):
        return None
    evidence = (
        f"the loss is {number(lowest)} to {number(highest)} in all {len(values)} samples from step {first} to step "
        f"{points[-1][0]}: a language model that has learned next to nothing"
    )
    return incident("plateau", first, points[-1][0], evidence)


def _is_in_bits(loss: float, perplexity: float) -> bool:
    """Whether a perplexity is 2 to the power of a loss."""
    is_size = 0 < perplexity < math.inf
    return is_size and abs(math.log2(perplexity) - loss) <= NEAR_LOSS * max(1.0, loss)


def resting_at_small_accuracy(samples: Samples) -> NumericFinding | None:
    """Find passes over the data that change neither the loss nor an accuracy next to 0."""
    points = samples.losses()
    if not samples.steps_are_passes or len(points) < MIN_RESTING:
        return None
    values = [value for _, value in points]
    if not are_positive(values) or max(values) > (1 + RESTING_SHARE) * min(values):
        return None
    small = [
        column
        for column in samples.accuracies()
        if max(column) <= SMALL_ACCURACY and max(column) - min(column) <= ACCURACY_RANGE
    ]
    if not small or not has_digits(values[0], MIN_DIGITS):
        return None
    evidence = (
        f"the loss is between {number(min(values))} and {number(max(values))} after each of {len(points)} passes over the data, "
        f"with an accuracy of {number(max(small[0]))} at most"
    )
    return incident("plateau", points[0][0], points[-1][0], evidence)


def no_norms(samples: Samples) -> NumericFinding | None:
    """Find one loss in all samples, to its last digit, beside gradient norms of 0: nothing is learned."""
    both = samples.losses_and_norms()
    if len(both) < MIN_WITHOUT_NORM or len({loss for _, loss, _ in both}) > 1:
        return None
    loss = both[0][1]
    if not has_digits(loss, MIN_DIGITS) or any(norm != 0 for *_, norm in both):
        return None
    evidence = f"the loss is {loss:.12g}, and the gradient norm 0, in all {len(both)} samples"
    return incident("plateau", both[0][0], both[-1][0], evidence)
