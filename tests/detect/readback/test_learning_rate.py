"""The learning rate in a trainer's lines: one observation an attempt, beside what the schedule had there."""

import pytest

from runner.detect.readback.learning_rate import LEAST_WITHOUT, LearningRateReader
from runner.facts.faults import LrObserved
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat, StepRecord
from runner.facts.watch import WatchedAttempt, WatchList

ONE, TWO = AttemptId(1, 1, 0), AttemptId(1, 2, 0)


def observe(
    reader: LearningRateReader, attempt: AttemptId, rates: dict[int, float | None]
) -> list[LrObserved]:
    """Let a node report the steps of its lines."""
    watched = WatchedAttempt(
        attempt=attempt,
        nodes=("n1",),
        since=0.0,
        start_seconds=9.0,
        progress_seconds=9.0,
        reads_rate=True,
    )
    lines = tuple(StepRecord(step=step, loss=1.0, lr=lr) for step, lr in rates.items())
    heartbeat = Heartbeat(node="n1", incarnation=1, attempt=attempt, logged_steps=lines)
    return list(reader.on_heartbeat(heartbeat, WatchList(attempts=(watched,)), 1.0))


def test_the_first_rate_of_an_attempt_comes_with_the_schedule_s() -> None:
    """The same step's rate of before, or the schedule drawn on by a straight line; and once an attempt."""
    reader = LearningRateReader()
    (first,) = observe(reader, ONE, {step: step * 1e-5 for step in range(1, 11)})
    assert first == LrObserved(attempt=ONE, step=1, lr=1e-5)
    assert observe(reader, ONE, {11: 1.1e-4}) == []
    (second,) = observe(reader, TWO, {9: 4.5e-5, 10: 5e-5})
    assert (second.lr, second.before) == (4.5e-5, 9e-5)
    (third,) = observe(reader, AttemptId(1, 3, 0), {20: 6e-5})
    assert third.before == pytest.approx(1e-4)


def test_lines_without_a_rate_are_told_once() -> None:
    """After some steps, so that a first line without it counts for nothing."""
    reader = LearningRateReader()
    assert observe(reader, ONE, dict.fromkeys(range(1, LEAST_WITHOUT))) == []
    assert observe(reader, ONE, {30: None, 31: None}) == [LrObserved(attempt=ONE, step=30)]
    assert observe(reader, ONE, {32: None}) == []
