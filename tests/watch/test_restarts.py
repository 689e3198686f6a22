"""Steps that go back: a restart, or none."""

from runner.facts.messages.signals import StepRecord
from runner.watch.restarts import Restarts


def divided(
    *batches: list[int], fault_before: int | None = None, pause: float = 0.5
) -> list[list[int]]:
    """Return the steps of each start. `fault_before`: the batch that a line about a fault came before."""
    restarts, now = Restarts(), 100.0
    starts: list[list[int]] = [[]]
    for number, steps in enumerate(batches):
        now += pause
        has_fault = number == fault_before
        found = restarts.divide([StepRecord(step=step) for step in steps], now, has_fault=has_fault)
        starts[-1] += [record.step for record in found[0]]
        starts += [[record.step for record in start] for start in found[1:]]
    return starts


def test_steps_that_go_back_and_on_are_another_start() -> None:
    """Within one batch, or over several."""
    assert divided([1, 2, 3, 4, 5, 6], [4, 5, 6, 7]) == [[1, 2, 3, 4, 5, 6], [4, 5, 6, 7]]
    assert divided([8, 9], [3], [4], [5], [6]) == [[8, 9], [3, 4, 5, 6]]
    assert divided([10, 20, 30], [20, 30, 40]) == [[10, 20, 30], [20, 30, 40]]


def test_two_counters_in_turn_are_no_restart() -> None:
    """The second one goes back with every line."""
    assert divided([100, 3, 101, 4, 102]) == [[100, 3, 101, 4, 102]]


def test_a_counter_that_begins_again_with_each_epoch_is_no_restart() -> None:
    """Without a fault, and without a pause."""
    assert divided([1, 2, 3], [1, 2, 3], [1, 2, 3]) == [[1, 2, 3, 1, 2, 3, 1, 2, 3]]


def test_from_the_first_step_after_a_fault_is_a_restart() -> None:
    """The script has saved nothing."""
    assert divided([1, 2, 3], [1, 2, 3, 4], fault_before=1) == [[1, 2, 3], [1, 2, 3, 4]]


def test_a_step_that_is_printed_twice_changes_nothing() -> None:
    """As a bar is drawn."""
    assert divided([1, 1, 2, 2, 3, 3]) == [[1, 1, 2, 2, 3, 3]]
