"""Bars of Keras below the epoch that a line announced: passes over the data, and the evaluation behind the last one."""

import random

import pytest

from runner.collect.scan import Scan
from tests.collect.diagnosed_logs import engine_of_all, verdicts_of

NUM_DRAWN = 20


def bars(losses: list[float], total: int, *, beside: str = "", num_passes: int = 20) -> str:
    """Write one full bar below each epoch."""
    return "".join(
        f"Epoch {n}/{num_passes}\n{total}/{total} [=====] - 3s 9ms/step - loss: {loss:.4f}{beside}\n"
        for n, loss in enumerate(losses, 1)
    )


def losses_of(text: str) -> list[float | None]:
    """Return the training loss of each record."""
    scan = Scan("log", engine=engine_of_all())
    found = [*scan.feed(text.encode()), *scan.finish()]
    return [one.record.loss for one in found if one.record is not None]


def faults_of(text: str) -> list[str]:
    """Return the faults of the verdicts."""
    return [one.cause.fault for one in verdicts_of(text)]


def test_an_evaluation_behind_the_last_epoch_is_no_step_of_it() -> None:
    """It is on other data, with as many batches or with others: its loss is none of the training."""
    dice = random.Random(5)
    for _ in range(NUM_DRAWN):
        total, num = dice.choice((1, 1, 8, 40)), dice.randint(8, 20)
        fitted = [3.0 - 0.1 * n for n in range(num)]
        text = bars(fitted, total, beside=" - val_loss: 2.5000", num_passes=num)
        batches = dice.choice((total, total, total + 3))
        text += f"{batches}/{batches} [=====] - 0s 9ms/step - loss: {dice.uniform(8, 20):.4f}\n"
        assert losses_of(text) == pytest.approx(fitted)
        assert faults_of(text) == []


def test_what_is_announced_again_is_trained_again() -> None:
    """A second call of `fit` begins with its own first epoch."""
    once = bars([2.5], 10, beside=" - val_loss: 2.6000", num_passes=1)
    assert losses_of(once * 3) == [2.5, 2.5, 2.5]


@pytest.mark.parametrize(
    ("total", "accuracy", "fault"),
    [
        (10, "0.1000", "plateau"),
        (400, "0.0983", "plateau"),
        # A pass of a single batch is one step; and an accuracy that is none of a guess.
        (1, "0.1000", ""),
        (400, "0.1500", ""),
    ],
)
def test_epochs_at_chance_are_passes(total: int, accuracy: str, fault: str) -> None:
    """A bar that is full shows the last update of a pass, so five of them are of many updates."""
    losses = [2.3023, 2.3035, 2.3025, 2.3026, 2.3026, 2.3026]
    text = bars(losses, total, beside=f" - acc: {accuracy}", num_passes=6)
    assert faults_of(text) == [fault] * bool(fault)
