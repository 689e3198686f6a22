"""Tokens and skipped steps between two marks of progress, as ranks report or print them."""

import pytest

from runner.agent.ranks.step_sums import StepSums
from runner.facts.messages.signals import Progress, StepRecord
from runner.watch.core import WatchCore
from tests.watch.test_proposals import begun


def sums_of(*records: StepRecord, seconds: float = 1.0) -> dict[str, int]:
    """Add records, one after so many seconds, to sums that began at 0."""
    sums = StepSums(0.0)
    for number, record in enumerate(records, 1):
        sums.add(record, number * seconds)
    return sums.take()


def test_tokens_are_throughput_times_the_seconds_of_each_step() -> None:
    """Of a trainer that prints every tenth step, a line stands for ten; the first for itself."""
    each = [
        StepRecord(step=step, tokens_per_second=1000.0, step_seconds_max=2.0) for step in (1, 2, 3)
    ]
    assert sums_of(*each)["tokens"] == 6_000
    tenth = [
        StepRecord(step=step, tokens_per_second=1000.0, step_seconds_max=2.0) for step in (10, 20)
    ]
    assert sums_of(*tenth)["tokens"] == 2_000 + 20_000


def test_without_seconds_of_a_step_the_clock_counts() -> None:
    """From the step before; of the first nothing is known."""
    each = [StepRecord(step=step, tokens_per_second=100.0) for step in (1, 2, 3)]
    assert sums_of(*each, seconds=5.0)["tokens"] == 1_000


def test_a_number_far_ahead_stands_for_one_step() -> None:
    """It may be a count of tokens, or a hash."""
    each = [
        StepRecord(step=step, tokens_per_second=1000.0, step_seconds_max=2.0)
        for step in (1, 10**18)
    ]
    assert sums_of(*each)["tokens"] == 4_000


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e300, -5.0, None])
def test_a_throughput_that_is_none_counts_nothing(bad: float | None) -> None:
    """Ranks may report anything."""
    one = StepRecord(step=1, tokens_per_second=bad, step_seconds_max=1.0)
    assert sums_of(one) == {"tokens": 0, "num_skipped": 0}


def test_sums_begin_again_with_each_mark_and_lose_no_token() -> None:
    """What is less than a token is part of the next sum; a step that is repeated counts once."""
    sums = StepSums(0.0)
    for step in (1, 2, 2):
        sums.add(
            StepRecord(step=step, tokens_per_second=0.75, step_seconds_max=1.0, skipped=True), step
        )
    assert sums.take() == {"tokens": 1, "num_skipped": 2}
    sums.add(StepRecord(step=3, tokens_per_second=0.5, step_seconds_max=1.0), 3.0)
    assert sums.take() == {"tokens": 1, "num_skipped": 0}


def test_printed_throughput_reaches_the_counters_of_the_run() -> None:
    """The lines of a foreign trainer become a mark, the mark a record, and the record a sum in the ledger."""
    core: WatchCore = begun()
    gang = core.gang
    assert gang is not None
    records = [
        StepRecord(step=step, tokens_per_second=500.0, step_seconds_max=2.0) for step in (4, 5)
    ]
    gang.add_log_steps(records, 0, 100.0)
    marks = gang.poll_progress(1e9, every_seconds=0.0)
    assert [mark.tokens for mark in marks if isinstance(mark, Progress)] == [2_000]
    for fact in marks:
        core.signal(fact)
    assert core.status().runs[0].totals.tokens == 2_000
