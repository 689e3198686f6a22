"""Validation losses far above a training loss that has come to nothing, or that rise from the first evaluation on."""

import pytest

from runner.detect.numerics.windows.short_log import ShortLog
from runner.facts.messages.signals import StepRecord
from tests.detect.numerics.windows.test_short_logs import fault_of, of

SMALL = [0.0011, 0.0007, 0.0008, 0.0006]
LARGE = [1.66, 1.88, 1.75, 1.96]


def with_accuracies(own: float, held_out: float) -> str:
    """Judge a log with these losses, and such accuracies at each evaluation."""
    log = ShortLog()
    for n, (loss, validation) in enumerate(zip(SMALL, LARGE, strict=True), 160):
        record = StepRecord(step=n, loss=loss, validation_loss=validation)
        log.add(record, scores={"accuracy": own, "validation_accuracy": held_out})
    found = log.finding()
    return "" if found is None else found.fault


def test_training_data_that_are_known_by_heart_are_found() -> None:
    """Noise hides whether the validation loss rises, but not how far it is."""
    assert fault_of(of(loss=SMALL, validation_loss=LARGE)) == "validation_divergence"
    assert with_accuracies(1.0, 0.85) == "validation_divergence"


@pytest.mark.parametrize(
    ("loss", "validation"),
    [
        # Of a model that is right: small, whatever the ratio; too few evaluations; near the training loss; one that still falls.
        (SMALL, [0.031, 0.029, 0.033, 0.03]),
        (SMALL[:3], LARGE[:3]),
        ([0.4, 0.39, 0.38, 0.41], LARGE),
        (SMALL, [1.96, 1.88, 1.75, 1.66]),
    ],
)
def test_what_is_not_known_by_heart_is_none(loss: list[float], validation: list[float]) -> None:
    """Each lacks one of the signs."""
    assert fault_of(of(loss=loss, validation_loss=validation)) == ""


def test_accuracies_that_agree_show_that_nothing_is_lost() -> None:
    """A loss of another scale does not matter."""
    assert with_accuracies(1.0, 0.97) == ""


@pytest.mark.parametrize(
    ("loss", "validation", "fault"),
    [
        ([0.62, 0.52, 0.47, 0.43, 0.38], [0.574, 0.575, 0.596, 0.597, 0.647], "yes"),
        ([0.62, 0.52, 0.47, 0.43, 0.38], [0.574, 0.575, 0.596, 0.597, 0.601], ""),
        ([0.62, 0.61, 0.60, 0.59, 0.58], [0.574, 0.575, 0.596, 0.597, 0.647], ""),
        ([0.62, 0.52, 0.47, 0.49, 0.38], [0.574, 0.575, 0.596, 0.597, 0.647], ""),
    ],
)
def test_a_validation_loss_that_rises_from_the_first_evaluation_on_diverges(
    loss: list[float], validation: list[float], fault: str
) -> None:
    """By a tenth and more, while the training loss falls by a quarter and more, each time."""
    expected = "validation_divergence" if fault else ""
    assert fault_of(of(loss=loss, validation_loss=validation)) == expected
