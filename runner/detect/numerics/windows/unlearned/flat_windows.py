"""Losses and scores of a short log that is over, and that do not move: from its first pass over the data on, or at its end."""

from collections.abc import Sequence
from statistics import fmean

from runner.detect.numerics.findings import NumericFinding, incident, number
from runner.detect.numerics.windows.samples import Samples, are_positive
from runner.detect.numerics.windows.unlearned.constant_loss import MIN_DIGITS, has_digits
from runner.detect.numerics.windows.unlearned.learning_windows import (
    CLASSES,
    FIRST_PASSES,
    LATE_STEP,
)
from runner.facts.faults import Fault

# Passes whose training and validation losses are all within this share of the first training loss, from the first pass of the run
# on. All chosen: a first pass changes most of all, the losses of two sets of data differ by more unless the model answers
# the same to all of both, and eight numbers agree by no chance.
MIN_FLAT_PASSES, FLAT_SHARE = 4, 1e-3

# Of scores: the least share of the first training loss that is left, from the start of the run on. Chosen: what lowers it by a
# fifth is learning, whatever the scores are.
LEFT_SHARE = 0.8
# Evaluations whose areas under the curve, of training and validation, are all so near one half, which is that of a guess. Chosen:
# of a model that learns a little they are beyond it in the first passes.
MIN_GUESSED, GUESSED_AUC, NEAR_GUESSED = 5, 0.5, 2e-3
# Samples, of all that a log has, in which no group has different rewards, and the loss, which is then the small penalty of the
# distance from the reference alone. Chosen: where rewards are rare single steps are so, but not all of a log.
MIN_EQUAL_REWARDS, NO_LOSS = 2, 1e-4
# Evaluations with the very same validation accuracy, the training accuracy beside them, and how much it rises from the earlier half
# of them to the later one. All chosen: a set that is answered alike has such an accuracy, and so has one whose answers are as good
# as they get, but the training accuracy beside that is high, or rises.
MIN_SAME, HIGH_ACCURACY, RISING_ACCURACY = 10, 0.75, 0.02

# Evaluations at the end whose losses, of training and validation, are each the very same number; the same where only those of the
# validation are, with so many digits, and the training losses lie so close together. Chosen: no update leaves either.
MIN_EQUAL_EVALUATIONS, MANY_DIGITS, RESTING_SHARE = 4, 7, 0.01
# Passes with the same loss, all digits of it, and the same accuracies; chosen.
MIN_EQUAL_PASSES = 5
# Samples with a gradient norm and a learning rate of 0. Chosen: some trainers print 0 for a norm that they do not measure.
MIN_WITHOUT_GRADIENTS = 4
# Passes after which the accuracies of two sets of data or more are all exactly 1/N, in so many digits, and what was more. Chosen.
MIN_GUESSED_PASSES, MIN_GUESSED_SETS, GUESS_DIGITS, LEARNED_RATIO = 5, 2, 4, 1.5


def flat_from_start(samples: Samples) -> NumericFinding | None:
    """Find losses that stay where the first pass left them, of the training and of the validation alike."""
    evaluations = samples.evaluations()
    if not samples.steps_are_passes or len(evaluations) < MIN_FLAT_PASSES:
        return None
    first_step, first, _ = evaluations[0]
    values = [value for _, *losses in evaluations for value in losses]
    if samples.records[0].step not in FIRST_PASSES or first_step not in FIRST_PASSES:
        return None
    if any(abs(value - first) > FLAT_SHARE * first for value in values):
        return None
    if not any(has_digits(value, MIN_DIGITS) for value in values):
        return None
    evidence = (
        f"training and validation loss are between {number(min(values))} and {number(max(values))} in all {len(evaluations)} "
        f"passes over the data, the first ones included (limit {FLAT_SHARE:.1%}): the model answers the same to all data"
    )
    return incident("plateau", first_step, samples.records[-1].step, evidence)


def equal_rewards(samples: Samples) -> NumericFinding | None:
    """Find reinforcement learning by groups whose completions all get the same reward: no step has an advantage to learn from."""
    rows = samples.scores("equal_rewards")
    if len(rows) < MIN_EQUAL_REWARDS:
        return None
    if any(share < 1.0 or abs(loss) > NO_LOSS for _, loss, share in rows):
        return None
    evidence = (
        f"all completions of each group got the same reward in all {len(rows)} samples from step {rows[0][0]} to step "
        f"{rows[-1][0]}, with a loss of 0: there is no advantage to learn from"
    )
    return incident("plateau", rows[0][0], rows[-1][0], evidence)


def auc_of_guesses(samples: Samples) -> NumericFinding | None:
    """Find areas under the curve of one half at each evaluation, which are those of a classifier that guesses."""
    rows = samples.evaluated_scores("auc")
    areas = [area for *_, training, validation in rows for area in (training, validation)]
    if len(rows) < MIN_GUESSED or not _are_from_start(rows):
        return None
    is_late = samples.steps_are_passes or rows[-1][0] >= LATE_STEP
    if not is_late or any(abs(area - GUESSED_AUC) > NEAR_GUESSED for area in areas):
        return None
    evidence = (
        f"the area under the curve, of training and validation, is between {min(areas):.4f} and {max(areas):.4f} at each of "
        f"{len(rows)} evaluations: that of a guess"
    )
    return incident("plateau", rows[0][0], rows[-1][0], evidence)


def same_evaluations(samples: Samples) -> NumericFinding | None:
    """Find a validation loss that is the very same number at each of the last evaluations, and a training loss that rests, too."""
    evaluations = samples.evaluations()
    num = 0
    while num < len(evaluations) and evaluations[-1 - num][2] == evaluations[-1][2]:
        num += 1
    # What has been learned before may be all there is.
    if num < MIN_EQUAL_EVALUATIONS or evaluations[-1][1] < LEFT_SHARE * evaluations[0][1]:
        return None
    step, _, validation = evaluations[-num]
    losses = [loss for _, loss, _ in evaluations[-num:]]
    are_equal = len(set(losses)) == 1 and has_digits(losses[0], MIN_DIGITS)
    are_flat = max(losses) <= (1 + RESTING_SHARE) * min(losses) and has_digits(
        validation, MANY_DIGITS
    )
    if not has_digits(validation, MIN_DIGITS) or not (are_equal or are_flat):
        return None
    evidence = (
        f"the validation loss is {validation:.12g} at each of the last {num} of {len(evaluations)} evaluations, and the training "
        f"loss between {number(min(losses))} and {number(max(losses))}: the model answers the same to all data"
    )
    return incident("plateau", step, evaluations[-1][0], evidence)


def same_passes(samples: Samples) -> NumericFinding | None:
    """Find a loss that is the very same number after each of the last passes over the data, as its accuracies are."""
    points, columns = samples.losses(), samples.accuracies()
    num = 0
    while num < len(points) and points[-1 - num][1] == points[-1][1]:
        num += 1
    if not samples.steps_are_passes or num < MIN_EQUAL_PASSES:
        return None
    has_learned = abs(points[-1][1]) < LEFT_SHARE * abs(points[0][1])
    if has_learned or not has_digits(points[-1][1], MIN_DIGITS):
        return None
    if not columns or any(len(set(column[-num:])) > 1 for column in columns):
        return None
    evidence = (
        f"the loss is {points[-1][1]:.12g} after each of the last {num} of {len(points)} passes over the data, and each accuracy "
        "is the same, too: the weights do not change"
    )
    return incident("plateau", points[-num][0], points[-1][0], evidence)


def no_gradients(samples: Samples) -> NumericFinding | None:
    """Find gradients and a learning rate of exactly 0 in all samples, beside a loss that does not fall: nothing is learned."""
    records = [one for one in samples.records if one.loss is not None]
    losses = [one.loss for one in records if one.loss is not None]
    if len(records) < MIN_WITHOUT_GRADIENTS or not are_positive(losses):
        return None
    half = len(losses) // 2
    has_fallen = fmean(losses[-half:]) < (1 - RESTING_SHARE) * fmean(losses[:half])
    if has_fallen or any(one.grad_norm != 0 or one.lr != 0 for one in records):
        return None
    evidence = (
        f"the gradient norm and the learning rate are 0 in all {len(records)} samples, and the loss stays between "
        f"{number(min(losses))} and {number(max(losses))}"
    )
    return incident("plateau", records[0].step, records[-1].step, evidence)


def guessed_accuracies(samples: Samples) -> NumericFinding | None:
    """Find accuracies, of two sets of data or more, that are exactly those of a guess after each pass over the data."""
    columns = samples.accuracies()
    if not samples.steps_are_passes or not columns or len(columns[0]) < MIN_GUESSED_PASSES:
        return None
    constant = [column[0] for column in columns if len(set(column)) == 1]
    for classes in CLASSES:
        guess = round(1 / classes, GUESS_DIGITS)
        num = sum(value == guess for value in constant)
        if num < MIN_GUESSED_SETS:
            continue
        best = max(constant)
        has_learned = best >= LEARNED_RATIO * guess
        learned = f", after {number(best)} at best" if has_learned else ""
        steps = [one.step for one in samples.records if one.loss is not None]
        evidence = (
            f"{num} accuracies are {guess:g} after each of {len(steps)} passes over the data{learned}: those of a guess among "
            f"{classes} classes"
        )
        fault: Fault = "divergence" if has_learned else "plateau"
        return incident(fault, steps[0], steps[-1], evidence)
    return None


def one_answer(samples: Samples) -> NumericFinding | None:
    """Find a validation accuracy that is the very same number at each evaluation, beside a training accuracy that does not rise."""
    rows = samples.evaluated_scores("accuracy")
    if len(rows) < MIN_SAME or not _are_from_start(rows):
        return None
    training, validation = [one for _, _, one, _ in rows], [one for *_, one in rows]
    if len(set(validation)) > 1 or not has_digits(validation[0], MIN_DIGITS):
        return None
    half = len(rows) // 2
    rise = fmean(training[-half:]) - fmean(training[:half])
    if max(training) >= HIGH_ACCURACY or rise >= RISING_ACCURACY:
        return None
    evidence = (
        f"the validation accuracy is {validation[0]:.12g} at each of {len(rows)} evaluations, and the training accuracy stays "
        f"between {number(min(training))} and {number(max(training))}: the model answers the same to all data"
    )
    return incident("plateau", rows[0][0], rows[-1][0], evidence)


def _are_from_start(rows: Sequence[tuple[int, float, float, float]]) -> bool:
    """Whether evaluations begin with the run, and their training loss has not fallen by much since."""
    steps, losses = [one[0] for one in rows], [one[1] for one in rows]
    return steps[0] <= steps[1] - steps[0] and min(losses) >= LEFT_SHARE * losses[0]
