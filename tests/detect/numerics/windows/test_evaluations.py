"""Evaluations of short logs: validation losses that rise with interruptions or after a steep start, and noise that does not."""

import math
import random

from msgspec.structs import replace

from runner.detect.numerics.windows.short_log import ShortLog
from runner.facts.messages.signals import StepRecord
from tests.detect.numerics.windows.test_short_logs import fault_of, of

NUM_DRAWN = 300


def falling(num: int) -> list[float]:
    """Return a training loss that falls with each evaluation."""
    return [2.0 * 0.9**n for n in range(num)]


def test_a_rise_is_seen_behind_the_steep_start_of_a_curve() -> None:
    """The first falls are no noise; a smaller rise, or one that comes down again, is not told from noise."""
    steep = [1.385, 1.198, 1.132, 1.046, 1.024, 1.021]
    rise = [1.066, 1.099, 1.122, 1.182]
    assert fault_of(of(loss=falling(10), validation_loss=steep + rise)) == "validation_divergence"
    assert fault_of(of(loss=falling(9), validation_loss=steep + rise[:3])) == ""
    assert fault_of(of(loss=falling(10), validation_loss=[*steep, *rise[:3], 1.13])) == ""


def test_a_rise_that_is_interrupted_is_seen_in_many_evaluations() -> None:
    """Each drawn one rises by a tenth in ten evaluations, with noise of a tenth of that; noise alone never is one."""
    dice = random.Random(7)
    num_found = 0
    for _ in range(NUM_DRAWN):
        level, num = dice.uniform(0.2, 5), dice.randint(10, 14)
        risen = [level * (1 + 0.012 * n + dice.gauss(0, 0.01)) for n in range(num)]
        window = of(loss=falling(num), validation_loss=[level * 0.97, *risen[1:]])
        num_found += fault_of(window) == "validation_divergence"
        noise = [level * math.exp(dice.gauss(0, 0.05)) for _ in range(num)]
        assert fault_of(of(loss=[2.0 - 0.01 * n for n in range(num)], validation_loss=noise)) == ""
    assert num_found >= 0.9 * NUM_DRAWN


def test_noise_that_happens_to_rise_is_no_overfitting() -> None:
    """Of a healthy run of speech: in order, as nine evaluations of 100,000 windows once were, but by five times the noise."""
    noise = [5.85, 5.94, 6.80, 6.21, 5.56, 5.47, 5.91, 5.91]
    rise = [5.25, 5.51, 5.76, 5.94, 5.64, 6.07, 6.25, 6.22, 6.59]
    assert fault_of(of(loss=falling(17), validation_loss=noise + rise)) == ""


def test_a_clear_rise_may_be_interrupted_once_in_six_evaluations() -> None:
    """It is ten times as large as the noise; twice interrupted, or in noise of its own size, it is none."""
    fall = [4.22, 1.98, 1.63, 1.534, 1.509, 1.48]
    rise = [1.488, 1.486, 1.51, 1.54, 1.57]
    assert fault_of(of(loss=falling(11), validation_loss=fall + rise)) == "validation_divergence"
    twice = [1.488, 1.486, 1.485, 1.54, 1.57]
    assert fault_of(of(loss=falling(11), validation_loss=fall + twice)) == ""
    noisy = [4.22, 1.98, 1.63, 1.53, 1.6, 1.48]
    assert fault_of(of(loss=falling(11), validation_loss=noisy + rise)) == ""


def test_a_validation_loss_that_the_training_loss_follows_up_is_no_overfitting() -> None:
    """Both rise: something else is wrong, or another level of difficulty has begun."""
    risen = [1.0 + 0.02 * n for n in range(10)]
    assert fault_of(of(loss=[0.9 + 0.002 * n for n in range(10)], validation_loss=risen)) == ""


def test_gradient_norms_that_no_search_for_a_scale_explains() -> None:
    """More samples than one finds, in more steps than it takes; fewer of either are the search."""
    for num, interval, fault in ((14, 4, "nan_loss"), (14, 1, ""), (6, 10, "")):
        losses = [2.4 + 0.01 * (n % 3) for n in range(num)]
        records = of(loss=losses, grad_norm=[math.inf] * num)
        steps = [replace(one, step=3 + interval * n) for n, one in enumerate(records)]
        assert fault_of(steps) == fault


def fault_of_rewards(shares: list[float], losses: list[float]) -> str:
    """Judge a log of reinforcement learning by groups."""
    log = ShortLog()
    log.leave_out_losses()
    for n, (share, loss) in enumerate(zip(shares, losses, strict=True), 1):
        log.add(StepRecord(step=n, loss=loss), scores={"equal_rewards": share})
    found = log.finding()
    return "" if found is None else found.fault


def test_groups_whose_completions_all_get_the_same_reward_learn_nothing() -> None:
    """In each sample of the log, with a loss of 0; one group that differs is enough to learn from."""
    assert fault_of_rewards([1.0, 1.0, 1.0], [0.0, 1e-6, 0.0]) == "plateau"
    assert fault_of_rewards([1.0, 0.75, 1.0], [0.0, 1e-6, 0.0]) == ""
    assert fault_of_rewards([1.0, 1.0], [0.0, 0.02]) == ""
    assert fault_of_rewards([1.0], [0.0]) == ""
