"""Accuracies beside the losses of a short log: they show whether a loss at chance is one that learns."""

import math

import pytest

from runner.detect.numerics.windows.short_log import ShortLog
from runner.facts.messages.signals import StepRecord

LN_2, LN_10 = math.log(2), math.log(10)


@pytest.mark.parametrize(
    ("step", "accuracy", "validation", "fault"),
    [
        (15_000, 0.1007, 2.3027, "plateau"),
        (15_000, 0.5, 2.3027, ""),
        (15_000, 0.1007, 2.2, ""),
        (100, 0.1007, 2.3027, ""),
    ],
)
def test_one_evaluation_at_chance_is_enough_if_all_its_numbers_are(
    step: int, accuracy: float, validation: float, fault: str
) -> None:
    """Both losses and the accuracy, after a thousand steps."""
    log = ShortLog()
    log.add(StepRecord(step=step, loss=2.3028, validation_loss=validation), [accuracy])
    found = log.finding()
    assert ("" if found is None else found.fault) == fault


@pytest.mark.parametrize(
    ("loss", "accuracies", "first", "fault"),
    [
        (LN_2, (0.51,), 1010, "plateau"),
        (LN_2, (0.9, 0.49), 1010, "plateau"),
        # The first steps; more right than by chance at the same loss; and half of ten classes.
        (LN_2, (0.51,), 10, ""),
        (LN_2, (0.6,), 1010, ""),
        (LN_10, (0.5,), 1010, ""),
        # An accuracy of 0 after a thousand steps, and in a warm-up.
        (11.17, (0.0, 0.5), 1010, "plateau"),
        (11.17, (0.0, 0.5), 10, ""),
        (11.17, (0.1, 0.5), 1010, ""),
        (11.17, (), 1010, ""),
    ],
)
def test_an_accuracy_beside_the_loss_shows_that_nothing_is_learned(
    loss: float, accuracies: tuple[float, ...], first: int, fault: str
) -> None:
    """A loss near ln N with one right answer in N, or a loss that does not move with none at all."""
    log = ShortLog()
    for n in range(8):
        moved = loss * (1 + 5e-4 * (-1) ** n)
        log.add(StepRecord(step=first + 10 * n, loss=moved), accuracies)
    found = log.finding()
    assert ("" if found is None else found.fault) == fault


@pytest.mark.parametrize(
    ("training", "validation", "fault"),
    [
        ([2.47, 2.37, 2.33, 2.32, 2.314, 2.311], [LN_10] * 6, "plateau"),
        # The training loss is below chance; the validation loss is not at it in one pass; too few passes.
        ([2.47, 2.37, 2.33, 2.29, 2.28, 2.27], [LN_10] * 6, ""),
        ([2.47, 2.37, 2.33, 2.32, 2.314, 2.311], [*[LN_10] * 5, 2.29], ""),
        ([2.47, 2.37, 2.33, 2.32], [LN_10] * 4, ""),
    ],
)
def test_validation_losses_at_chance_from_the_first_pass_on_are_a_plateau(
    training: list[float], validation: list[float], fault: str
) -> None:
    """Beside a training loss that comes down to chance, no further."""
    log = ShortLog()
    for n, (loss, held_out) in enumerate(zip(training, validation, strict=True), 1):
        log.add(StepRecord(step=n, loss=loss, validation_loss=held_out + 1e-3 * (-1) ** n))
    found = log.finding()
    assert ("" if found is None else found.fault) == fault
