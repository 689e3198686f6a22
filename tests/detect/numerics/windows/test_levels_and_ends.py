"""Short logs that end on another level, in a rise, at the highest loss there is, or with steps that stall; and what is similar."""

import math
import random
from collections.abc import Sequence

import pytest

from runner.detect.numerics.windows.losses.runaway_windows import SATURATED_LOSS
from runner.detect.numerics.windows.short_log import ShortLog
from runner.facts.messages.signals import StepRecord
from tests.detect.numerics.windows.test_short_logs import fault_of, of

NUM_DRAWN = 200


def noisy(dice: random.Random, level: float, num: int, width: float = 0.03) -> list[float]:
    """Return losses around a level, at most this share away from it."""
    return [level * (1 + dice.uniform(-width, width)) for _ in range(num)]


def test_a_level_that_is_left_for_a_higher_one_is_a_divergence() -> None:
    """Through samples between the two; a rise by a fifth, and a level that is left again, are none."""
    dice = random.Random(21)
    for _ in range(NUM_DRAWN):
        low, num = dice.uniform(0.3, 6), dice.randint(5, 7)
        high = low * dice.uniform(1.65, 3)
        between = [low + (high - low) * share for share in (0.3, 0.2, 0.6)]
        start, end = noisy(dice, low, num), noisy(dice, high, 6)
        assert fault_of(of(loss=[*start, *between, *end])) == "divergence"
        assert fault_of(of(loss=[*start, *noisy(dice, 1.2 * low, 6)])) == ""
        assert fault_of(of(loss=[low] * 5 + [1.6 * low] * 5)) == ""
        assert fault_of(of(loss=[*start, *between, *end[:4], *noisy(dice, low, 2)])) == ""


@pytest.mark.parametrize(
    ("end", "fault"),
    [
        ([1.7, 2.1, 2.4], "divergence"),
        ([1.7, 2.1], ""),
        ([1.7, 2.4, 2.1], ""),
        ([1.5, 1.6, 1.7], ""),
    ],
)
def test_an_end_that_rises_three_times_far_above_the_rest_is_a_divergence(
    end: list[float], fault: str
) -> None:
    """Fewer rises, one that turns, and a smaller one may be noise."""
    assert fault_of(of(loss=[1.39, 1.21, 1.34, 1.36, 1.45, 1.2, *end])) == fault


def test_a_loss_that_doubles_in_each_of_four_samples_is_a_divergence() -> None:
    """A slower rise may be a warm-up."""
    assert fault_of(of(loss=[1.8, 4.3, 10.6, 31.7])) == "divergence"
    assert fault_of(of(loss=[1.8, 3.1, 5.0, 8.0])) == ""


def test_a_loss_of_a_probability_of_0_is_a_divergence() -> None:
    """Clamped to the smallest normal number of 32 bits; a first sample that comes down again, and a loss near it, are none."""
    top = round(SATURATED_LOSS, 4)
    assert top == pytest.approx(87.3365, abs=1e-4)
    assert fault_of(of(loss=[3.3, top])) == "divergence"
    assert fault_of(of(loss=[top, top, top])) == "divergence"
    assert fault_of(of(loss=[top, 8.2, 7.9, 7.5])) == ""
    assert fault_of(of(loss=[top])) == ""
    assert fault_of(of(loss=[88.1, 87.9, 87.6])) == ""


@pytest.mark.parametrize(
    ("losses", "fault"),
    [
        ([17.7, 18.3, 18.0, 18.1, 18.4, 19.0], "divergence"),
        # Weights that begin badly are learned; too few; and what a vocabulary may have.
        ([18.4, 18.1, 17.7, 16.9, 15.8, 14.9], ""),
        ([17.7, 18.3, 18.0, 18.1, 18.4], ""),
        ([13.2, 13.3, 13.1, 13.2, 13.3, 13.2], ""),
    ],
)
def test_a_perplexity_beyond_any_vocabulary_is_a_divergence(
    losses: list[float], fault: str
) -> None:
    """Beside another loss, whose logarithm it is not, it says nothing."""
    for offset, expected in ((0.0, fault), (1.0, "")):
        log = ShortLog()
        for n, loss in enumerate(losses):
            scores = {"perplexity": math.exp(loss)}
            log.add(StepRecord(step=200 * n, loss=loss + offset), scores=scores)
        found = log.finding()
        assert ("" if found is None else found.fault) == expected


def test_a_validation_loss_far_above_those_that_lay_close_together_is_a_spike() -> None:
    """Evaluations of the same data have little noise; those that wander, or rise by half, show none."""
    settled = [0.152, 0.149, 0.15, 0.148]
    assert fault_of(validated([*settled, 0.61])) == "loss_spike"
    assert fault_of(validated([*settled, 0.25])) == ""
    assert fault_of(validated([0.15, 0.31, 0.2, 0.12, 0.61])) == ""
    assert fault_of(validated([*settled[1:], 0.61])) == ""


def validated(losses: Sequence[float]) -> list[StepRecord]:
    """Return records of evaluations without a training loss."""
    return [StepRecord(step=100 * n, validation_loss=one) for n, one in enumerate(losses, 1)]


def test_a_validation_loss_that_rises_through_noise_beside_a_training_loss_that_only_falls() -> (
    None
):
    """From the first evaluations on; one that only wanders, or whose training loss rests, is none."""
    dice = random.Random(22)
    num_found = 0
    for _ in range(NUM_DRAWN):
        num, level = dice.randint(8, 12), dice.uniform(0.5, 6)
        training = [level * (1 - 0.03 * n) for n in range(num)]
        risen = [level * (1 + 0.03 * n + dice.gauss(0, 0.012)) for n in range(1, num)]
        num_found += fault_of(of(loss=training, validation_loss=[level, *risen])) != ""
        wanders = [level * math.exp(dice.gauss(0, 0.04)) for _ in range(num)]
        assert fault_of(of(loss=training, validation_loss=wanders)) == ""
    assert num_found >= 0.9 * NUM_DRAWN


def test_the_last_steps_of_a_log_that_take_minutes_are_stalled() -> None:
    """One alone may save or validate; two that the log goes on after are no end."""
    assert fault_of(of(loss=[5.1, 5.0, 4.9, 4.8], step_seconds_max=[0.6, 0.6, 280.0, 70.0])) == (
        "throughput_drop"
    )
    assert fault_of(of(loss=[5.1, 5.0, 4.9], step_seconds_max=[0.6, 0.6, 280.0])) == ""
    fast = [0.6, 0.6, 280.0, 70.0, 0.6]
    assert fault_of(of(loss=[5.1, 5.0, 4.9, 4.8, 4.7], step_seconds_max=fast)) == ""
    assert fault_of(of(loss=[5.1, 5.0, 4.9, 4.8], step_seconds_max=[0.1, 0.1, 9.0, 8.0])) == ""


def test_the_first_wait_for_data_is_that_of_workers_which_start() -> None:
    """Those after it count."""
    assert fault_of_loading([60.0, *[0.01] * 8]) == ""
    assert fault_of_loading([60.0, *[0.9] * 8]) == "throughput_drop"


def fault_of_loading(data_seconds: Sequence[float]) -> str:
    """Judge a log whose steps compute for 0.2 s and wait so long."""
    log = ShortLog()
    for number, seconds in enumerate(data_seconds, 1):
        log.add(StepRecord(step=number, loss=5.0 - 0.01 * number), wait=(seconds + 0.2, seconds))
    found = log.finding()
    return "" if found is None else found.fault


def test_a_scale_that_a_search_brought_low_is_none_where_training_goes_on() -> None:
    """Apex prints no scale once one fits; without a step after it, nothing fits."""
    search = [
        StepRecord(step=n, loss_scale=2.0**power, skipped=True)
        for n, power in enumerate(range(4, -4, -1))
    ]
    assert fault_of(search) == "loss_scale_floor"
    assert fault_of([*search, StepRecord(step=20, loss=8.9)]) == ""


def test_a_longer_log_whose_loss_fell_to_chance_has_learned_nothing() -> None:
    """Exactly ln N to its end; near it, or at another number, is none."""
    dice = random.Random(23)
    before = [dice.uniform(1.0, 9.0) for _ in range(12)]
    for classes in (2, 10, 1000):
        chance = round(math.log(classes), 4)
        assert fault_of(of(loss=before + [chance] * 30)) == "plateau"
        near = [chance * (1 + dice.uniform(-0.01, 0.01)) for _ in range(30)]
        assert fault_of(of(loss=before + near)) == ""
    assert fault_of(of(loss=[*before, *[1.2345] * 30])) == ""
