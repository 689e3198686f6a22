"""Times and throughputs of short logs whose steps are passes, or whose sizes change."""

import random

import pytest

from runner.detect.numerics.numerics import Numerics
from runner.detect.numerics.windows.short_log import ShortLog
from runner.facts.messages.signals import StepRecord
from tests.collect.diagnosed_logs import verdicts_of
from tests.detect.numerics.windows.test_short_logs import of


@pytest.mark.parametrize("field", ["step_seconds_max", "samples_per_second"])
def test_times_of_changing_sizes_are_not_judged(field: str) -> None:
    """Where no size is printed, the same times are a drop."""
    slow, fast = (62.0, 20.0) if field == "step_seconds_max" else (700.0, 2000.0)
    for doubts, fault in ((False, "throughput_drop"), (True, "")):
        log = ShortLog()
        if doubts:
            log.doubt_times()
        for record in of(**{field: [fast] * 8 + [slow] * 8}):
            log.add(record)
        found = log.finding()
        assert ("" if found is None else found.fault) == fault


def test_passes_that_take_three_times_as_long_train_more_layers() -> None:
    """A pass of hours is a stall all the same."""
    for seconds, fault in (
        ([20.0] * 8 + [62.0] * 8, ""),
        ([20.0] * 8 + [7200.0], "throughput_drop"),
    ):
        log = ShortLog()
        log.count_passes()
        for n, taken in enumerate(seconds, 1):
            log.add(StepRecord(step=n, step_seconds_max=taken))
        found = log.finding()
        assert ("" if found is None else found.fault) == fault


def test_images_that_grow_are_no_drop() -> None:
    """Their size is on each line."""
    lines = [
        f"step {n} size {128 if n < 9 else 224} speed {2000.5 if n < 9 else 700.3} img/s"
        for n in range(1, 17)
    ]
    assert verdicts_of("\n".join(lines)) == []
    without = [line.replace("size 128 ", "").replace("size 224 ", "") for line in lines]
    assert [one.cause.fault for one in verdicts_of("\n".join(without))] == ["throughput_drop"]


def test_losses_of_a_task_that_becomes_harder_are_not_judged() -> None:
    """Pruning raises both losses with each pass."""
    line = "Epoch {0}: {1}train_loss {2:.2f} val_loss {3:.2f}\n"
    for what, faults in (("sparsity 0.{}0 ", []), ("", ["divergence"])):
        text = "".join(
            line.format(n, what.format(n), 1.2 + 0.03 * n, 1.3 + 0.03 * n) for n in range(1, 9)
        )
        assert [one.cause.fault for one in verdicts_of(text)] == faults


def test_a_live_run_that_makes_fewer_samples_a_second_has_slowed_down() -> None:
    """Judged as tokens per second are, where its trainer counts none and prints no step time."""
    dice, numerics = random.Random(5), Numerics()
    rates = [dice.uniform(990, 1010) * (1.0 if n < 200 else 0.7) for n in range(300)]
    found = [
        (one.fault, one.onset_step)
        for n, rate in enumerate(rates)
        for one in numerics.judge(StepRecord(step=n, samples_per_second=rate))
        if one.severity == "incident"
    ]
    assert found == [("throughput_drop", 200)]
