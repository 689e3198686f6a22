"""Accuracies and areas under the curve beside losses: read by their names, and what they show of a log that is over."""

import random
from collections.abc import Sequence

import pytest

from runner.collect.step_formats.scores import score_of, scores_in
from tests.collect.diagnosed_logs import verdicts_of

NUM_DRAWN = 30
Rows = Sequence[Sequence[float]]


@pytest.mark.parametrize(
    ("name", "score"),
    [
        ("accuracy", "accuracy"),
        ("train_acc", "accuracy"),
        ("Training Accuracy", "accuracy"),
        ("sparse_categorical_accuracy", "accuracy"),
        ("val_acc", "validation_accuracy"),
        ("val_binary_accuracy", "validation_accuracy"),
        ("AUC", "auc"),
        ("valid/auroc", "validation_auc"),
        # The best so far rests in healthy runs; a part of the classes; and other words.
        ("best_val_acc", None),
        ("top_5_accuracy", None),
        ("val_acc_cat", None),
        ("gradient_accumulation", None),
        ("val_loss", None),
    ],
)
def test_names_of_scores(name: str, score: str | None) -> None:
    """Whole words count, and no others beside them."""
    assert score_of(name) == score


@pytest.mark.parametrize(
    ("line", "scores"),
    [
        (
            "loss: 0.69 - accuracy: 0.5123 - val_loss: 0.7 - val_accuracy: 0.5532",
            {"accuracy": 0.5123, "validation_accuracy": 0.5532},
        ),
        ("Train Acc: 50.5% | Val Acc: 25 %", {"accuracy": 0.505, "validation_accuracy": 0.25}),
        ("'auc': 0.5003, 'val_auc': 5e-1", {"auc": 0.5003, "validation_auc": 0.5}),
        ("best val acc: 0.55, best_acc=0.5 top5_acc: 0.9 acc: 0.4.1", {}),
        ("highest acc: 0.5 | previous best train acc = 0.5 | acc@1: 0.5", {}),
    ],
)
def test_scores_of_a_line(line: str, scores: dict[str, float]) -> None:
    """Percentages become shares, and the best so far is none."""
    assert scores_in(line) == pytest.approx(scores)


def faults_of(names: str, rows: Rows) -> list[str]:
    """Judge a CSV; return the faults of the verdicts."""
    text = names + "\n" + "".join(",".join(f"{one:.5f}" for one in row) + "\n" for row in rows)
    return [one.cause.fault for one in verdicts_of(text)]


WITH_ACCURACY = "accuracy,loss,val_accuracy,val_loss"
WITH_AUC = "epoch,loss,auc,val_loss,val_auc"


def of_one_answer(dice: random.Random, num: int, accuracy: float, rise: float = 0.0) -> Rows:
    """Draw evaluations whose validation accuracy rests, and whose training accuracy is about `accuracy`, and rises by `rise`."""
    answered, loss = round(dice.uniform(0.4, 0.9), 4) + 1e-5, dice.uniform(0.4, 2)
    return [
        (
            min(1.0, accuracy + dice.uniform(-0.004, 0.004) + rise * n / num),
            loss * (0.95 ** min(n, 2)) * dice.uniform(0.98, 1),
            answered,
            loss * dice.uniform(0.9, 1),
        )
        for n in range(num)
    ]


def test_a_validation_accuracy_that_rests_shows_one_answer_to_all() -> None:
    """Beside a training accuracy that is low and does not rise; else it is as good as it gets, or the set is small."""
    dice = random.Random(21)
    for _ in range(NUM_DRAWN):
        num, low = dice.randint(10, 60), dice.uniform(0.2, 0.7)
        rows = of_one_answer(dice, num, low)
        assert faults_of(WITH_ACCURACY, rows) == ["plateau"]
        # A high one, one that rises, one number that differs, too few evaluations, and a loss that falls by more.
        assert faults_of(WITH_ACCURACY, of_one_answer(dice, num, dice.uniform(0.76, 0.99))) == []
        assert faults_of(WITH_ACCURACY, of_one_answer(dice, num, low, rise=0.08)) == []
        other = [*rows[:-1], (*rows[-1][:2], rows[-1][2] + 0.001, rows[-1][3])]
        assert faults_of(WITH_ACCURACY, other) == []
        assert faults_of(WITH_ACCURACY, rows[:9]) == []
        learned = [(row[0], row[1] * 0.97**n, *row[2:]) for n, row in enumerate(rows)]
        assert faults_of(WITH_ACCURACY, learned) == []


def test_an_accuracy_of_few_digits_shows_nothing() -> None:
    """Half of a small set is answered right by many models."""
    rows = [(*row[:2], 0.5, row[3]) for row in of_one_answer(random.Random(22), 20, 0.4)]
    assert faults_of(WITH_ACCURACY, rows) == []


def of_auc(dice: random.Random, num: int, near: float, first: int = 0) -> Rows:
    """Draw epochs whose areas under the curve are so near one half."""

    def area() -> float:
        return 0.5 + dice.uniform(-near, near)

    return [
        (first + n, 0.69 * dice.uniform(0.99, 1.06), area(), 0.7 * dice.uniform(0.99, 1.06), area())
        for n in range(num)
    ]


def test_areas_under_the_curve_of_one_half_are_those_of_a_guess() -> None:
    """In five epochs and more, of training and validation, from the start of the run on."""
    dice = random.Random(23)
    for _ in range(NUM_DRAWN):
        num, first = dice.randint(5, 60), dice.randint(0, 1)
        rows = of_auc(dice, num, 0.0019, first)
        assert faults_of(WITH_AUC, rows) == ["plateau"]
        # Beyond it once; too few; a run that goes on; no epochs; and only one set.
        other = [*rows[:-1], (*rows[-1][:2], 0.5031, *rows[-1][3:])]
        assert faults_of(WITH_AUC, other) == []
        assert faults_of(WITH_AUC, rows[:4]) == []
        assert faults_of(WITH_AUC, of_auc(dice, num, 0.0019, first=7)) == []
        assert faults_of(WITH_AUC.replace("epoch", "step"), rows) == []
        assert faults_of(WITH_AUC.replace("val_auc", "val_f1"), rows) == []


def test_lines_are_judged_like_rows() -> None:
    """Keras prints the same names on the lines of its epochs."""
    rows = of_one_answer(random.Random(24), 12, 0.45)
    text = "".join(
        f"Epoch {n}/12\n50/50 - 1s - loss: {loss:.4f} - accuracy: {accuracy:.4f} - val_loss: {other:.4f} - "
        f"val_accuracy: {answered:.4f}\n"
        for n, (accuracy, loss, answered, other) in enumerate(rows, 1)
    )
    assert [one.cause.fault for one in verdicts_of(text)] == ["plateau"]


def test_a_guess_in_a_table_is_seen() -> None:
    """A loss at ln 10 beside one right answer in ten, in each row of an epoch, and none of steps."""
    rows = [(n, 2.3023 + 0.0002 * (n % 4), 0.0983 + 0.001 * (n % 3)) for n in range(8)]
    assert faults_of("epoch,loss,accuracy", rows) == ["plateau"]
    assert faults_of("step,loss,accuracy", rows) == []
    assert faults_of("epoch,loss,accuracy", [(n, loss, 0.15) for n, loss, _ in rows]) == []
