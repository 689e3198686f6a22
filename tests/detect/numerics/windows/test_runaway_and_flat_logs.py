"""Short logs whose loss runs away at the end, or never moves from its first pass on; and healthy ones that resemble them."""

import math
import random

import pytest

from runner.detect.numerics.windows.short_log import ShortLog
from runner.facts.messages.signals import StepRecord
from tests.detect.numerics.windows.curves import Records
from tests.detect.numerics.windows.test_short_logs import fault_of, of

NUM_DRAWN = 200
TURNED = [1.26, 1.17, 1.1, 0.77, 0.64, 0.55, 0.53, 0.73, 2.57]


def fault_of_passes(window: Records) -> str:
    """Judge a log whose steps are passes over the data."""
    log = ShortLog()
    for record in window:
        log.add(record)
    log.count_passes()
    found = log.finding()
    return "" if found is None else found.fault


def passes(losses: list[float], validation: list[float], first: int = 0) -> Records:
    """Make one record for each pass."""
    both = zip(losses, validation, strict=True)
    return [
        StepRecord(step=first + n, loss=one, validation_loss=other)
        for n, (one, other) in enumerate(both)
    ]


def test_drawn_losses_that_turn_are_seen_and_their_noise_is_not() -> None:
    """A steady fall, then two rises or more to twice the highest; noise, a single last sample, or a small rise is healthy."""
    dice = random.Random(11)
    for _ in range(NUM_DRAWN):
        first, num = dice.uniform(1, 10), dice.randint(7, 12)
        falls = [first * 0.9**n * dice.uniform(0.97, 1.0) for n in range(num)]
        rises = [falls[-1] * 1.3, first * dice.uniform(2.1, 5)]
        assert fault_of(of(loss=falls + rises)) == "divergence"
        assert fault_of(of(loss=[*falls, falls[-1] * 1.3, first * 1.5])) == ""
        assert fault_of(of(loss=[*falls, rises[-1]])) == ""
        noise = [first * math.exp(dice.gauss(0, 0.3)) for _ in range(num)]
        assert fault_of(of(loss=noise)) == ""


@pytest.mark.parametrize(
    "losses",
    [
        # It falls in fewer samples, or not in each; it comes back; it is small.
        TURNED[1:],
        [*TURNED[:3], 1.2, *TURNED[3:]],
        [*TURNED[:-1], 1.9],
        [one / 100 for one in TURNED],
    ],
)
def test_what_resembles_a_turn_is_none(losses: list[float]) -> None:
    """Each condition counts."""
    assert fault_of(of(loss=TURNED)) == "divergence"
    assert fault_of(of(loss=losses)) == ""


def test_a_search_for_a_learning_rate_ends_in_a_turn() -> None:
    """It raises the rate from sample to sample until the loss turns; at a rate that stays, it is a divergence."""
    num = len(TURNED)
    assert fault_of(of(loss=TURNED, lr=[1e-6 * 2**n for n in range(num)])) == ""
    assert fault_of(of(loss=TURNED, lr=[1e-3] * num)) == "divergence"


def test_a_loss_without_a_lower_bound_is_seen_and_a_likelihood_is_not() -> None:
    """Its size grows faster and faster, beyond what log-likelihoods reach; those come to rest."""
    dice = random.Random(12)
    for _ in range(NUM_DRAWN):
        num, power = dice.randint(8, 60), dice.uniform(2.2, 3)
        scale = dice.uniform(2e5, 1e7) / num**power
        away = [-scale * (n + 1) ** power for n in range(num)]
        assert fault_of(of(loss=away)) == "divergence"
        rest, rate = dice.uniform(1e3, 1e6), dice.uniform(2, 20)
        likelihood = [-1.0 - rest * (1 - math.exp(-(n + 1) / rate)) for n in range(num)]
        assert fault_of(of(loss=likelihood)) == ""
        assert fault_of(of(loss=[one / 1e5 for one in away])) == ""
        turned = [*away[:-1], away[-3]]
        assert num > 24 or fault_of(of(loss=turned)) == ""


def test_losses_that_no_pass_moves_are_seen() -> None:
    """Four passes whose losses, of training and validation alike, differ by less than a thousandth, from the first one on."""
    dice = random.Random(13)
    for _ in range(NUM_DRAWN):
        level, num, first = dice.choice((0.5, 1.0, 2.1)), dice.randint(4, 12), dice.randint(0, 1)

        def near(share: float, num: int = num, level: float = level) -> list[float]:
            # Not at the logarithm of a number of classes, which another judge knows.
            return [round(1.2 * level * (1 + dice.uniform(-share, share)), 6) for _ in range(num)]

        flat = passes(near(4e-4), near(4e-4), first)
        assert fault_of_passes(flat) == "plateau"
        # Steps; a run that goes on; a validation loss of its own; a loss that moves; too few passes; too few digits.
        assert fault_of(flat) == ""
        assert fault_of_passes(passes(near(4e-4), near(4e-4), 5)) == ""
        other = [one * 1.02 for one in near(4e-4)]
        assert fault_of_passes(passes(near(4e-4), other, first)) == ""
        falling = [one * 0.997**n for n, one in enumerate(near(4e-4))]
        assert fault_of_passes(passes(falling, falling, first)) == ""
        assert fault_of_passes(flat[:3]) == ""
        assert fault_of_passes(passes([0.02] * num, [0.02] * num, first)) == ""


@pytest.mark.parametrize(
    ("losses", "validation", "fault"),
    [
        ([6.97, 2.85, 1.51, 0.22, 0.15], [7.0, 4.07, 3.93, 4.48, 4.72], "validation_divergence"),
        # A rise of less than a tenth; one evaluation since the best; losses that are nearer; and a training loss that stays.
        ([6.97, 2.85, 1.51, 0.22, 0.15], [7.0, 4.07, 3.93, 4.05, 4.2], ""),
        ([6.97, 2.85, 1.51, 0.6, 0.5], [7.0, 4.07, 3.93, 4.48, 4.72], ""),
        ([0.35, 0.30, 0.21, 0.20, 0.19], [4.5, 4.07, 3.93, 4.48, 4.72], ""),
    ],
)
def test_what_is_learned_by_heart_is_seen_in_few_evaluations(
    losses: list[float], validation: list[float], fault: str
) -> None:
    """A validation loss ten times the training loss, which is half of what it was at the best evaluation."""
    assert fault_of(of(loss=losses, validation_loss=validation)) == fault
