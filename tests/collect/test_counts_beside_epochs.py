"""Counts without a name beside an epoch: "52/60 [ep 2]" is a place in an epoch, "acc 52/60" is none."""

import pytest

from runner.collect.diagnosis import Diagnosis
from runner.collect.step_formats.epoch_steps import Place, place_in


@pytest.mark.parametrize(
    "line",
    [
        "train: 52/60 [ep 2] | xent=0.4721 | gnorm 0.052",
        "train 52/60 (epoch 2) loss 0.4721",
        "ep 2 | 52/60 | loss=0.4721",
        "ep 2: 52/60 loss 0.4721",
        "2026-01-02 10:00:00 INFO epoch 2 - 52/60 - loss=0.4721",
        "Epoch 2, 52/60, loss: 0.4721",
    ],
)
def test_a_count_beside_an_epoch_is_the_place_in_it(line: str) -> None:
    """Behind the epoch, on its own between bars, or named as the training's."""
    assert place_in(line) == Place(index=52, total=60, epoch=2)


@pytest.mark.parametrize(
    "line",
    [
        "Epoch 2: loss=0.47 acc=52/60",
        "Epoch 2 | correct 52/60 | loss 0.4",
        "Epoch 2 loss 0.4 | 9800/10000 (98%)",
        "Epoch 2 2024/05/06 loss 0.2",
        "Epoch 2 | 60/52 | loss 0.3",
        "epoch: 2 | lr: 1/3 | loss: 0.2",
    ],
)
def test_other_counts_and_dates_leave_the_epoch_alone(line: str) -> None:
    """What is named otherwise counts something else, and an index is within its total."""
    assert place_in(line) == Place(epoch=2)


@pytest.mark.parametrize(
    "lines",
    [
        [f"train: {n}/60 [ep {n // 20}] | xent={3.2 / n:.4f}" for n in range(1, 61)],
        [f"ep {n // 20}: {n % 20 + 1}/20 loss {3.2 / (n + 1):.4f}" for n in range(60)],
        [f"ep {n // 20 + 1}: {n % 20 + 1}/20 loss {3.2 / (n + 1):.4f}" for n in range(60)],
    ],
    ids=["of all epochs", "of each, from 0", "of each, from 1"],
)
def test_steps_count_on_from_epoch_to_epoch(lines: list[str]) -> None:
    """Sixty steps in three epochs, whether the counter restarts with each or not, and whichever number the first has."""
    log = Diagnosis().log("log")
    log.feed("".join(f"{line}\n" for line in lines).encode())
    log.finish()
    assert log.steps.first is not None
    assert log.steps.furthest is not None
    assert (log.steps.first.step, log.steps.furthest.step) == (1, 60)
