"""Windows of 3 to 24 samples: no false alarm on healthy ones, and most onsets found. A commit plays a part, `make soak` all."""

import os
import random
from collections import Counter

import pytest
from msgspec.structs import replace

from runner.detect.numerics.numerics import Numerics
from runner.detect.numerics.windows.samples import MAX_OF_TREND, MAX_SAMPLES
from runner.detect.numerics.windows.short_log import ShortLog
from runner.facts.messages.signals import StepRecord
from tests.detect.numerics.windows.curves import (
    Records,
    healthy_windows,
    real_onsets,
    sick_windows,
    slow_rise,
    with_other_metrics,
)
from tests.suite import share

NUM_HEALTHY, NUM_SICK, NUM_PARTS = 100_000, 2_000, 10
NUM_LONGER, NUM_RISES = 20_000, 200
LEAST_FOUND, LEAST_RISES_FOUND = 0.8, 0.85


def incidents(window: Records) -> list[str]:
    """Judge a window; return the faults of its incidents."""
    numerics = Numerics()
    found = [finding for record in window for finding in numerics.judge(record)]
    return [one.fault for one in found if one.severity == "incident"]


def fault_of_log(window: Records) -> str:
    """Judge a window as a log that is over; return its fault, "" for none."""
    log = ShortLog()
    for record in window:
        log.add(record)
    log.trust_times()
    found = log.finding()
    return "" if found is None else found.fault


@pytest.mark.costly
@pytest.mark.timeout(900)
def test_healthy_windows_have_no_incident() -> None:
    """Of 100,000 windows of real and synthetic healthy curves none is called sick; a commit judges 10,000 of them.

    Neither sample by sample nor as a log that is over, with a learning rate, a validation loss or step times beside.
    """
    part = share.current()
    is_soak = os.environ.get(share.VARIABLE) == share.ALL
    num = NUM_HEALTHY if is_soak else NUM_HEALTHY // NUM_PARTS
    seed = 0 if part.part is None else part.part
    dice = random.Random(seed)
    alarms: Counter[tuple[str, str]] = Counter()
    for name, window in healthy_windows(num, seed):
        alarms.update((name, fault) for fault in incidents(window))
        fault = fault_of_log(with_other_metrics(dice, window))
        alarms.update([(name, f"{fault} of a whole log")] if fault else [])
    assert alarms == {}


@pytest.mark.costly
def test_longer_healthy_logs_show_no_rise() -> None:
    """Of 20,000 logs of 25 to 160 samples none is called sick, with a constant or a falling learning rate, or none."""
    part = share.current()
    is_soak = os.environ.get(share.VARIABLE) == share.ALL
    num = NUM_LONGER if is_soak else NUM_LONGER // NUM_PARTS
    seed = 0 if part.part is None else part.part
    dice = random.Random(seed)
    alarms: Counter[tuple[str, str]] = Counter()
    for name, window in healthy_windows(num, seed, MAX_SAMPLES + 1, MAX_OF_TREND):
        fall = dice.choice((None, 0.0, 0.5))
        rated = [
            one if fall is None else replace(one, lr=1e-3 * (1 - fall * n / len(window)))
            for n, one in enumerate(window)
        ]
        fault = fault_of_log(rated)
        alarms.update([(name, fault)] if fault else [])
    assert alarms == {}


@pytest.mark.costly
def test_most_slow_rises_of_longer_logs_are_found() -> None:
    """A loss that falls, and then rises by a fifth and more to the end: at least 0.85."""
    dice = random.Random(4)
    drawn = [slow_rise(dice, dice.randint(MAX_SAMPLES + 1, MAX_OF_TREND)) for _ in range(NUM_RISES)]
    found = [fault_of_log(window) for window in drawn]
    print("slow rises found:", found.count("divergence"), "of", NUM_RISES)
    assert found.count("divergence") >= LEAST_RISES_FOUND * NUM_RISES


@pytest.mark.costly
def test_most_onsets_in_short_windows_are_found() -> None:
    """Spikes, divergence, NaN, a loss scale that collapses and exploding gradients: at least 0.8 in windows of 4 to 12 samples."""
    found: Counter[tuple[str, bool]] = Counter(
        (name, bool(incidents(window))) for name, window in sick_windows(NUM_SICK, 1)
    )
    total, right = sum(found.values()), sum(num for (_, is_found), num in found.items() if is_found)
    print(f"onsets found: {right} of {total}", dict(sorted(found.items())))
    assert right >= LEAST_FOUND * total


def test_most_onsets_of_real_curves_are_found() -> None:
    """The same at the events of real curves, from one sample after their onset on."""
    windows = list(real_onsets())
    if not windows:
        pytest.skip("the real curves are not here")
    found = Counter((name, bool(incidents(window))) for name, window in windows)
    right = sum(num for (_, is_found), num in found.items() if is_found)
    print(f"real onsets found: {right} of {len(windows)}", dict(found))
    assert right >= LEAST_FOUND * len(windows)


def test_a_jump_that_comes_back_is_over() -> None:
    """An incident of a short window ends when the loss is back for three samples."""
    losses = [2.0, 2.01, 1.99, 2.0, 9.0, 8.0, 2.0, 2.0, 2.0, 2.0]
    numerics = Numerics()
    records = [StepRecord(step=step, loss=loss) for step, loss in enumerate(losses)]
    found = [one for record in records for one in numerics.judge(record)]
    ends = [one.recovered for one in found if one.severity == "incident" or one.recovered]
    assert {(one.fault, one.onset_step) for one in found} == {("loss_spike", 4)}
    assert ends[0] is False
    assert ends[-1] is True


def test_another_attempt_begins_another_window() -> None:
    """A loss that is higher after a resume from earlier steps is no jump; one that jumps after it is."""
    numerics = Numerics()
    first = [StepRecord(step=10 * n, loss=8.0 / (n + 1)) for n in range(8)]
    assert not [
        one for record in first for one in numerics.judge(record) if one.severity == "incident"
    ]
    numerics.begin_attempt()
    again = [*first[:4], *(StepRecord(step=40 + n, loss=1.99 + 0.01 * n) for n in range(4))]
    again.append(StepRecord(step=50, loss=30.0))
    faults = [
        one.fault
        for record in again
        for one in numerics.judge(record)
        if one.severity == "incident"
    ]
    assert faults == ["loss_spike"]


@pytest.mark.parametrize(
    ("losses", "faults"),
    [
        ((0.14, 25237.0, 75835.0, 28575.0), ["loss_spike"]),
        # As of policies, which begin at 0; a first sample of the sum of a batch; and one of another sign.
        ((1e-8, 0.002, 0.003, 0.004), []),
        ((2.1, 1900.0, 2.0, 1.9), []),
        ((-0.5, 25237.0, 75835.0), []),
    ],
)
def test_what_follows_the_first_sample_a_thousand_times_higher_is_a_jump(
    losses: tuple[float, ...], faults: list[str]
) -> None:
    """If three samples show it, and are high themselves."""
    window = [StepRecord(step=step, loss=loss) for step, loss in enumerate(losses, 1)]
    assert incidents(window) == faults
