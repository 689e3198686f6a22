"""Printed steps: what counts as a step of ranks that report none, and what changes nothing."""

import pytest

from runner.agent.ranks.printed_steps import MAX_STEP, PrintedSteps
from runner.facts.messages.signals import StepRecord


def printed(*steps: int, rank: int = 0) -> PrintedSteps:
    """Add steps, one report each."""
    progress = PrintedSteps()
    for step in steps:
        progress.add([StepRecord(step=step)], rank)
    return progress


def test_each_step_that_differs_from_the_one_before_is_a_mark() -> None:
    """The first shows where ranks resumed, the furthest how far they are."""
    progress = printed(31, 32, 40)
    assert (progress.first, progress.furthest, progress.num_marks) == (31, 40, 3)


def test_the_same_step_printed_again_is_no_progress() -> None:
    """A watchdog may repeat it while all ranks hang."""
    progress = printed(7, 7, 7)
    assert progress.num_marks == 1
    assert not progress.add([StepRecord(step=7)], 0)


def test_steps_that_go_back_are_marks_and_never_lower_the_furthest() -> None:
    """Some trainers count from 1 in each epoch."""
    progress = printed(98, 99, 100, 1, 2)
    assert (progress.furthest, progress.num_marks) == (100, 5)


@pytest.mark.parametrize("number", [0, -5, MAX_STEP + 1, 10**18])
def test_a_number_that_cannot_be_a_step_changes_nothing(number: int) -> None:
    """Such as a count of tokens, or a hash."""
    progress = printed(5, number, 6)
    assert (progress.furthest, progress.num_marks) == (6, 2)


def test_a_second_counter_far_ahead_is_not_believed() -> None:
    """One that goes on from there is: a script may count samples."""
    progress = printed(5, 4_000_000, 6, 4_100_000, 7)
    assert progress.furthest == 7
    assert printed(5, 40_000, 40_010, 40_020).furthest == 40_020


def test_the_lowest_rank_that_prints_decides() -> None:
    """Whatever the others printed before, or print later."""
    progress = printed(500, rank=3)
    assert progress.add([StepRecord(step=7)], 0)
    assert (progress.first, progress.furthest, progress.rank) == (7, 7, 0)
    assert not progress.add([StepRecord(step=501)], 3)
    assert progress.furthest == 7


def test_the_loss_of_the_first_step_is_kept_beside_that_of_the_furthest() -> None:
    """A run begins with it, however many steps are read at once; a lower rank that prints begins afresh."""
    progress = PrintedSteps()
    progress.add([StepRecord(step=1, loss=9.0), StepRecord(step=2, loss=8.0)], 1)
    assert (progress.first, progress.first_loss, progress.loss) == (1, 9.0, 8.0)
    progress.add([StepRecord(step=5), StepRecord(step=6, loss=7.0)], 0)
    assert (progress.first, progress.first_loss, progress.loss) == (5, None, 7.0)
