"""Training data that a model knows by heart: its validation loss is far above a training loss that has come to nothing."""

from itertools import pairwise

from runner.detect.numerics.findings import NumericFinding, incident, number
from runner.detect.numerics.windows.samples import Samples

# Evaluations, each with a validation loss so many times the training loss, and so large: that of a model that is right and sure in
# nearly all cases is smaller, whatever the ratio. By how much the validation accuracy is below the training's, where both are
# printed, and what is left of the validation loss: one that still falls is only of another scale. All chosen.
MIN_EVALUATIONS, LEAST_RATIO, LEAST_LOSS, LEAST_GAP, LEAST_LEFT = 4, 15.0, 0.5, 0.1, 0.95
# Rises of the validation loss from the first evaluation on, at each of which the training loss falls, and the sum of
# both; chosen.
MIN_RISES, RISE, FALL = 4, 0.12, 0.25


def known_by_heart(samples: Samples) -> NumericFinding | None:
    """Find a validation loss that is large, and many times the training loss, at each of some evaluations."""
    evaluations = samples.evaluations()
    if len(evaluations) < MIN_EVALUATIONS:
        return None
    if any(
        validation < max(LEAST_LOSS, LEAST_RATIO * train) for _, train, validation in evaluations
    ):
        return None
    if evaluations[-1][2] < LEAST_LEFT * evaluations[0][2]:
        return None
    accuracies = samples.evaluated_scores("accuracy")
    if accuracies and accuracies[-1][2] - accuracies[-1][3] < LEAST_GAP:
        return None
    (first, _, _), (last, train, validation) = evaluations[0], evaluations[-1]
    evidence = (
        f"the validation loss is {LEAST_RATIO:g} times the training loss and more at each of {len(evaluations)} evaluations, at "
        f"last {number(validation)} beside {number(train)}: the training data are known by heart"
    )
    return incident("validation_divergence", first, last, evidence)


def rises_from_the_first(samples: Samples) -> NumericFinding | None:
    """Find a validation loss that rises at every evaluation after the first, while the training loss falls at each."""
    evaluations = samples.evaluations()
    if len(evaluations) <= MIN_RISES:
        return None
    parts = pairwise(evaluations)
    if not all(now[2] > before[2] and now[1] < before[1] for before, now in parts):
        return None
    (_, train, best), (last, last_train, worst) = evaluations[0], evaluations[-1]
    if worst < (1 + RISE) * best or last_train > (1 - FALL) * train:
        return None
    evidence = (
        f"the validation loss rose at each of {len(evaluations) - 1} evaluations, from {number(best)} to {number(worst)}, while "
        f"the training loss fell from {number(train)} to {number(last_train)}"
    )
    return incident("validation_divergence", evaluations[1][0], last, evidence)
