"""Short logs that are over: each kind of sickness is seen in few samples, and what only resembles it is not."""

import math
import random
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from runner.detect.numerics.windows.losses.loss_windows import order_chance
from runner.detect.numerics.windows.short_log import ShortLog
from runner.facts.messages.signals import StepRecord
from tests.detect.numerics.windows.curves import Records, sums

NUM_DRAWN, NUM_SUMS = 200, 2000
LEAST_FOUND = 0.9


def fault_of(window: Records) -> str:
    """Judge a log; return its fault, "" for none."""
    log = ShortLog()
    for record in window:
        log.add(record)
    found = log.finding()
    return "" if found is None else found.fault


def of(**columns: Sequence[float]) -> Records:
    """Make records of columns of numbers, ten steps apart."""
    rows = zip(*columns.values(), strict=True)
    return [
        StepRecord(step=10 * n, **dict(zip(columns, row, strict=True)))
        for n, row in enumerate(rows, 1)
    ]


FALLING_RATE = [1e-4 * (1 - n / 20) for n in range(12)]
RISING = [1.42, 1.38, 1.39, 1.42, 1.41, 1.45, 1.48, 1.47, 1.52, 1.55, 1.58, 1.61]
LN_2, LN_10 = math.log(2), math.log(10)
TO_AND_FRO = [41.0, 2.0, 2.1, 37.0, 90.0, 2.0, 66.0, 2.2, 2.1, 52.0]


@pytest.mark.parametrize(
    ("fault", "window"),
    [
        # One sample that stands out and comes back, after two samples only.
        ("loss_spike", of(loss=[0.71, 0.66, 5.9, 0.74, 0.69, 0.63, 0.7])),
        # Two metrics of one line that agree, after one sample.
        ("divergence", of(loss=[2.1, 5.3], validation_loss=[2.2, 5.1])),
        ("grad_norm_spike", of(loss=[1.4, 40.0], grad_norm=[2.5, 2.5e6])),
        # A rise in each sample.
        ("divergence", of(loss=[1.0, 1.3, 1.8, 2.9, 5.0])),
        ("grad_norm_spike", of(grad_norm=[0.8 * 2.2**n for n in range(8)], loss=[2.0] * 8)),
        # A level that is risen after two samples, or after one in the middle of a run.
        ("divergence", of(loss=[2.1, 2.3, 7.5, 9.8])),
        (
            "loss_spike",
            [replace(one, step=one.step + 500) for one in of(loss=[1.9, 8.9, 7.5, 7.3])],
        ),
        # A slow rise at a learning rate that falls.
        ("divergence", of(loss=RISING, lr=FALLING_RATE)),
        # A log that ends with NaN, from its first line on or later.
        ("nan_loss", of(loss=[math.nan] * 3, validation_loss=[math.nan] * 3)),
        ("nan_loss", of(loss=[2.3, math.inf])),
        ("nan_loss", [StepRecord(step=50_200, loss=math.nan)]),
        # A loss that a trainer prints for NaN.
        ("nan_loss", of(loss=[1.9, 1.7, 0.0, 0.0, 0.0])),
        ("nan_loss", of(loss=[0.0] * 4, grad_norm=[math.nan] * 4)),
        # A classifier at chance.
        ("plateau", of(loss=[0.71, *[LN_2 + 1e-4] * 5], validation_loss=[LN_2] * 6)),
        ("plateau", of(loss=[2.3026] * 5, validation_loss=[2.3026] * 5)),
        ("plateau", [replace(one, step=100 * one.step) for one in of(loss=[2.31, *[2.3026] * 6])]),
        # Overflow whatever the scale.
        ("loss_scale_floor", of(loss=[2.0] * 6, loss_scale=[1.0, 1.0, 0.5, 0.25, 0.125, 0.0625])),
        # Fitted to the training data alone: steadily, or far above it.
        (
            "validation_divergence",
            of(
                loss=[9.0, 8.8, 8.6, 8.4, 8.2, 8.1],
                validation_loss=[10.0, 10.08, 10.2, 10.36, 10.56, 10.8],
            ),
        ),
        (
            "validation_divergence",
            of(
                loss=[0.6, 0.5, 0.45, 0.41, 0.37, 0.34],
                validation_loss=[0.52, 0.48, 0.47, 0.50, 0.55, 0.60],
            ),
        ),
        ("validation_divergence", of(loss=[1.1, 0.9, 0.6], validation_loss=[3.2, 3.1, 3.3])),
        # Several spikes, each of which comes back; one among losses below 0; a level that is left after it rested.
        ("loss_spike", of(loss=[71.5, 0.74, 0.83, 0.89, 618.0, 1.03, 1.03, 0.85, 71.7, 0.97])),
        ("loss_spike", of(loss=[-4.07, -4.49, -4.45, -4.32, 4191.0, -2.41, -2.91])),
        (
            "loss_spike",
            of(loss=[0.0475, 0.0474, 0.0473, 0.0471, 0.0472, 0.0612, 0.0958, 0.0877]),
        ),
        # Gradient norms that are not finite at the end, or wherever the log shows them; that rose, or rise.
        ("nan_loss", of(loss=[2.7] * 6, grad_norm=[3.0, 2.8, 2.8, 2.5, math.nan, math.nan])),
        (
            "nan_loss",
            [replace(one, step=one.step + 500) for one in of(grad_norm=[math.inf] * 3)],
        ),
        (
            "grad_norm_spike",
            of(
                loss=[0.48, 0.47, 0.58, 0.70, 0.66, 1.03, 0.67, 0.69, 0.86],
                grad_norm=[0.24, 0.27, 1.3, 1.2, 17.2, 7.1, 21.8, 23.0, 3.8],
            ),
        ),
        ("grad_norm_spike", of(loss=[11.3] * 10, grad_norm=[4e12 * 1.5**n for n in range(10)])),
        # One norm, beside a loss that stays.
        (
            "grad_norm_spike",
            of(loss=[1.5] * 8, grad_norm=[15.0, 9.8, 7.6, 92.0, 29.0, 5.2, 7.8, 2e4]),
        ),
        # Losses of one epoch that are those of the one before; a loss that fell to chance, and stays there to the last digit.
        ("plateau", of(loss=[0.9741, 1.3742, 1.239, 0.967, 1.0386] * 2)),
        ("plateau", of(loss=[0.677, 2.4587, 5.3353, 1.0234, *[0.6931] * 8])),
        # A validation loss far from the training loss, whose rise is as large as its noise.
        (
            "validation_divergence",
            of(
                loss=[0.17, 0.16, 0.14, 0.14, 0.12, 0.13, 0.12, 0.11],
                validation_loss=[2.23, 2.12, 2.40, 2.26, 2.55, 2.28, 2.45, 2.50],
            ),
        ),
        # Steps that take three times as long from one on.
        ("throughput_drop", of(step_seconds_max=[32.7, 32.4, 32.8, 31.7, 30.5, *[102.0] * 5])),
        # Few steps as fast as can be, and slow ones of every length.
        (
            "throughput_drop",
            of(step_seconds_max=[3.1, 9.2, 94.6, 43.0, 98.1, 6.3, 3.3, 35.2, 7.0, 79.6]),
        ),
        # Steps that go to and fro between two times at unchanged settings, and a throughput that falls and stays low.
        ("throughput_drop", of(loss=[1.0] * 10, step_seconds_max=TO_AND_FRO)),
        (
            "throughput_drop",
            of(tokens_per_second=[*[9100.0, 9000.0, 9050.0, 9080.0] * 2, *[5200.0] * 8]),
        ),
        (
            "throughput_drop",
            of(tokens_per_second=[9100.0, 9000.0, 9050.0, 9080.0, *[4200.0] * 4]),
        ),
    ],
)
def test_sickness_in_few_samples_is_seen(fault: str, window: Records) -> None:
    """Each judge fires on a series of its kind."""
    assert fault_of(window) == fault


@pytest.mark.parametrize(
    "window",
    [
        # A batch that is twice as hard, a noisy run of single small batches, a spike at the very end.
        of(loss=[0.71, 0.66, 1.6, 0.74, 0.69, 0.63, 0.7]),
        of(loss=[1.2, 0.3, 2.4, 0.6, 1.0, 0.28, 1.9, 0.34]),
        of(loss=[0.71, 0.66, 0.7, 0.74, 0.69, 0.63, 1.2]),
        # The first steps: a loss that falls steeply, norms of a warm-up that fall.
        of(loss=[11.0, 10.2, 9.1, 8.0, 7.4, 7.0], grad_norm=[120.0, 80.0, 31.0, 9.0, 4.0, 2.0]),
        # One metric alone, and a norm that jumps while the loss stays.
        of(loss=[2.1, 5.3], validation_loss=[2.2, 2.3]),
        of(loss=[1.4, 1.5], grad_norm=[2.5, 2.5e6]),
        of(loss=[1.5] * 8, grad_norm=[15.0, 9.8, 7.6, 92.0, 29.0, 5.2, 7.8, 3e3]),
        # From near 0 on.
        of(loss=[1e-4 * 2.0**n for n in range(9)]),
        # The same slow rise while the learning rate warms up, where it is not known, and a wander without an order.
        of(loss=RISING, lr=[1e-5 * n for n in range(12)]),
        of(loss=RISING),
        of(loss=[RISING[(5 * n) % 12] for n in range(12)], lr=FALLING_RATE),
        # NaN of what was not measured, of a mean of nothing, and of a skipped step.
        of(loss=[math.nan] * 3, validation_loss=[2.0, 1.9, 1.8]),
        of(loss=[2.0, math.nan, 1.9, math.nan]),
        [StepRecord(step=1, loss=math.nan)],
        [StepRecord(step=7, loss=2.0), StepRecord(step=8, loss=math.nan, skipped=True)],
        # Zeros that a loss comes near to first, that it leaves, or beside gradients.
        of(loss=[0.9, 0.08, 0.003, 0.0, 0.0, 0.0]),
        of(loss=[1.9, 0.0, 0.0, 0.0, 1.2]),
        of(loss=[1.9, 1.7, 0.0, 0.0, 0.0], grad_norm=[1.0, 1.0, 0.4, 0.2, 0.3]),
        of(loss=[0.0] * 6),
        # Preference losses begin at ln 2; a converged loss is no chance of any usual number of classes.
        of(loss=[LN_2, 0.6931, 0.6931, 0.693, 0.6929, 0.6927, 0.6925]),
        of(loss=[2.36] * 7, validation_loss=[2.36] * 7),
        # Weights of 0 in a last layer, at first; a scale that falls to less than 1 and rises again, and one in a search.
        of(loss=[round(math.log(1000), 4)] * 7),
        of(loss=[2.0] * 6, loss_scale=[1.0, 0.5, 0.25, 0.5, 0.25, 0.125]),
        of(loss=[2.0] * 6, loss_scale=[65536.0 / 2**n for n in range(6)]),
        # The first evaluations of a run, far from the training loss and from what they will be.
        of(loss=[0.9, 0.6], validation_loss=[3.1, 3.3]),
        # A first mean of fewer losses; a level that is risen by a factor of two, or beside a range as wide.
        of(loss=[0.021, 2.2, 2.1, 2.0]),
        of(loss=[0.4, 2.2, 2.1, 2.0]),
        of(loss=[2.1, 2.3, 4.6, 4.7]),
        of(loss=[1.0, 2.0, 7.0, 8.0]),
        # A validation loss that rises three times by noise.
        of(
            loss=[0.6, 0.5, 0.45, 0.41, 0.37, 0.34],
            validation_loss=[0.58, 0.50, 0.47, 0.49, 0.55, 0.56],
        ),
        # Sums of losses since the begin of an epoch, from there on or later, and the time since then.
        of(loss=[2.3, 4.5, 6.9, 9.0, 11.4, 13.5, 15.8, 18.0, 20.1, 22.3, 24.6]),
        of(
            loss=[20.1, 22.3, 24.6, 26.6, 28.9, 31.0, 33.3, 35.4, 37.8, 39.9, 42.0],
            lr=FALLING_RATE[:11],
        ),
        of(step_seconds_max=[1.0, 12.0, 25.0, 38.0, 1.1, 13.0, 26.0, 1.0, 11.0, 24.0, 37.0]),
        # A gap that stays, a validation loss that follows the training loss up, one that rises by less than noise.
        of(loss=[0.9, 0.6], validation_loss=[3.1, 3.1]),
        of(loss=[0.9, 1.0], validation_loss=[3.1, 3.4]),
        of(
            loss=[9.0, 8.8, 8.6, 8.4, 8.2, 8.1],
            validation_loss=[10.0, 10.3, 10.31, 10.5, 10.52, 10.7],
        ),
        # Every other step gathers gradients, or one now and then that never follows another; times that vary by a factor of five;
        # one evaluation in between.
        of(loss=[1.0] * 10, step_seconds_max=[0.2, 2.4] * 5),
        of(step_seconds_max=[0.2, 3.4, 0.2, 0.2, 2.4, 0.2, 5.0, 0.21, 4.1, 0.2]),
        of(loss=[1.0] * 10, step_seconds_max=[1.0, 5.0, 1.1, 4.0, 1.0, 3.0, 5.0, 1.2, 2.0, 4.0]),
        of(loss=[1.0] * 10, step_seconds_max=[1.0, 1.0, 1.0, 60.0, *[1.0] * 6]),
        # Two levels of a loss below 0, a range of them, few that are high, and high ones that follow one another.
        of(loss=[-4.1, -4.2, -4.0, -4.3, 3.9, -4.1, -4.2]),
        of(loss=[-40.0, 30.0, -20.0, 10.0, 95.0, -30.0, 20.0]),
        of(loss=[7.1, 0.74, 0.83, 0.89, 6.1, 1.03, 1.03, 0.85, 7.1, 0.97]),
        of(loss=[0.74, 0.83, 0.89, 12.0, 14.0, 1.03, 0.85, 0.97]),
        # A level that is left by little, or for too few samples.
        of(loss=[0.475, 0.474, 0.473, 0.471, 0.472, 0.512, 0.558, 0.577]),
        of(loss=[0.475, 0.474, 0.473, 0.471, 0.472, 0.612, 0.958]),
        # Norms that are not finite during a search for the loss scale, with a scale that is printed, once, or now and then.
        of(grad_norm=[math.inf] * 3),
        of(loss=[2.7] * 5, grad_norm=[3.0, 2.8, 2.8, 2.5, math.nan]),
        of(
            grad_norm=[3.0, 2.8, 2.8, 2.5, math.inf, math.inf],
            loss_scale=[4096.0] * 4 + [2048.0, 1024.0],
        ),
        of(loss=[2.7] * 7, grad_norm=[3.0, math.nan, 2.8, 2.5, 2.4, math.nan, math.nan]),
        # Norms that rise in a warm-up, while the loss falls.
        of(
            loss=[9.0, 8.5, 8.0, 7.5, 7.0, 6.5, 6.0, 5.5],
            grad_norm=[0.1, 0.2, 0.1, 0.2, 2.0, 3.0, 4.0, 3.0],
        ),
        # Losses of few digits come again; a preference loss that stays where it began.
        of(loss=[0.5, 0.6, 0.7, 0.5, 0.6] * 2),
        of(loss=[LN_2, 0.6929, *[0.6931] * 8]),
        # A validation loss that is far, and falls or stays.
        of(
            loss=[0.17, 0.16, 0.14, 0.14, 0.12, 0.13, 0.12, 0.11],
            validation_loss=[2.23, 2.12, 2.40, 2.26, 2.15, 2.28, 2.25, 2.20],
        ),
        # Four that rise, as noise does once in 24 times.
        of(loss=[6.76, 6.23, 5.84, 5.59], validation_loss=[9.01, 9.77, 10.07, 10.43]),
        # Steps that take twice as long from one on.
        of(step_seconds_max=[*[32.0] * 5, *[64.0] * 5]),
        # Steps that take longer from one on: the batch may be larger. A throughput that falls for seven samples, or by little.
        of(step_seconds_max=[*[1.0] * 4, *[1.5] * 4]),
        of(tokens_per_second=[*[9000.0] * 9, *[5000.0] * 7]),
        of(tokens_per_second=[*[9000.0] * 9, *[8000.0] * 9]),
    ],
)
def test_what_resembles_it_is_not(window: Records) -> None:
    """Warm-up, single metrics, noise, small losses and regular patterns are healthy."""
    assert fault_of(window) == ""


def drawn(kind: str, dice: random.Random) -> Records:
    """Draw a sick log of a kind, of 6 to 12 samples."""
    num, level = dice.randint(6, 12), dice.uniform(0.5, 8)
    spread = 10 ** dice.uniform(-3, -1.5)
    losses = [level * math.exp(dice.gauss(0, spread)) for _ in range(num)]
    if kind == "loss_spike":
        losses[dice.randint(2, num - 3)] *= dice.uniform(4.5, 20)
        return of(loss=losses)
    if kind == "divergence":
        begin = dice.randint(1, num - 4)
        rate = dice.uniform(1.6, 3)
        return of(loss=[one * rate ** max(0, n - begin + 1) for n, one in enumerate(losses)])
    if kind == "plateau":
        chance = math.log(dice.choice((2, 3, 10, 100, 1000)))
        near = [chance * (1 + dice.uniform(-4e-4, 4e-4)) for _ in range(2 * num)]
        return of(loss=near[:num], validation_loss=near[num:])
    if kind == "validation_divergence":
        fall, rise = dice.uniform(0.02, 0.2), dice.uniform(0.02, 0.2)
        return of(
            loss=[level * math.exp(-fall * n) for n in range(num)],
            validation_loss=[level * (1 + rise * n) for n in range(num)],
        )
    fast = dice.uniform(0.5, 5)
    times = [fast * dice.choice((1.0, dice.uniform(12, 40))) for _ in range(24)]
    return of(loss=[level] * 24, step_seconds_max=times)


@pytest.mark.parametrize(
    "kind", ["loss_spike", "divergence", "plateau", "validation_divergence", "throughput_drop"]
)
def test_most_drawn_ones_are_seen(kind: str) -> None:
    """Sizes, levels, lengths and places are drawn: at least 0.9 of each kind are named."""
    dice = random.Random(7)
    found = [fault_of(drawn(kind, dice)) for _ in range(NUM_DRAWN)]
    print(kind, found.count(kind), "of", len(found))
    assert found.count(kind) >= LEAST_FOUND * NUM_DRAWN


def test_sums_of_losses_are_no_rise() -> None:
    """Some scripts print the sum since the begin of an epoch in place of the mean."""
    dice = random.Random(3)
    drawn_sums = [sums(dice, dice.randint(3, 24)) for _ in range(NUM_SUMS)]
    rates = [[replace(one, lr=1e-3) for one in window] for window in drawn_sums]
    assert {fault_of(window) for window in drawn_sums + rates} == {""}


def test_policies_and_adversaries_are_judged_by_their_times_alone() -> None:
    """A loss that rises in each sample is none of theirs; steps to and fro are."""
    log = ShortLog()
    for record in of(loss=[1.0 * 1.6**n for n in range(10)], step_seconds_max=TO_AND_FRO):
        log.add(record)
    log.leave_out_losses()
    found = log.finding()
    assert found is not None
    assert found.fault == "throughput_drop"


def test_steps_that_become_slower_are_seen_where_the_batch_size_is_known() -> None:
    """Without it a larger batch makes steps as much slower."""
    times = of(step_seconds_max=[86.0, 87.0, 88.0, 87.5, 126.0, 125.0, 127.0, 129.0])
    assert fault_of(times) == ""
    log = ShortLog()
    for record in times:
        log.add(record)
    log.trust_times()
    found = log.finding()
    assert found is not None
    assert (found.fault, found.onset_step) == ("throughput_drop", 50)


@pytest.mark.parametrize(("waited", "fault"), [(0.9, "throughput_drop"), (0.5, ""), (0.001, "")])
def test_steps_that_wait_for_data_are_seen(waited: float, fault: str) -> None:
    """Two thirds of their time and more; a part of it is usual where the loader is only as fast as the steps."""
    log = ShortLog()
    for step in range(8):
        log.add(StepRecord(step=step, loss=2.0), wait=(3.0, 3.0 * waited))
    found = log.finding()
    assert ("" if found is None else found.fault) == fault


def test_a_loss_of_an_adversary_that_is_no_number_counts() -> None:
    """Its rises are healthy; NaN is not."""
    log = ShortLog()
    for record in of(loss=[101.0, 135.0, 106.0, 6e7, 199.0, math.nan, math.nan]):
        log.add(record)
    log.leave_out_losses()
    found = log.finding()
    assert found is not None
    assert found.fault == "nan_loss"


def test_long_logs_and_steps_that_run_backwards_are_left_to_other_detectors() -> None:
    """From the 25th step on there is a level; a log of several attempts is no one series."""
    spike = [0.71, 0.66, 5.9, 0.74, 0.69, 0.63, 0.7]
    assert fault_of(of(loss=spike + [0.7] * 17)) == "loss_spike"
    assert fault_of(of(loss=spike + [0.7] * 18)) == ""
    assert fault_of([*of(loss=spike), StepRecord(step=10, loss=0.7)]) == ""


def test_lines_of_one_step_are_one_sample() -> None:
    """A bar and its last line, or a step and its validation, are told in several lines."""
    lines = of(loss=[9.0, 8.8, 8.6, 8.4, 8.2, 8.1])
    values = [10.0, 10.08, 10.2, 10.36, 10.56, 10.8]
    beside = [
        StepRecord(step=one.step, validation_loss=value)
        for one, value in zip(lines, values, strict=True)
    ]
    both = [one for pair in zip(lines, beside, strict=True) for one in pair]
    assert fault_of(both) == "validation_divergence"


def test_the_chance_of_an_order_is_exact() -> None:
    """Of three samples one order in six has no inversion, three have at most one; equal samples are out of order."""
    assert order_chance([1.0, 2.0, 3.0]) == pytest.approx(1 / 6)
    assert order_chance([2.0, 1.0, 3.0]) == pytest.approx(3 / 6)
    assert order_chance([3.0, 2.0, 1.0]) == 1.0
    assert order_chance([1.0, 1.0, 1.0]) == 1.0
