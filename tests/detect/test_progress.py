"""Progress: gangs that live and make no step are found, busy ones are not."""

from msgspec.structs import replace

from runner.detect.progress import GangProgress
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat
from runner.facts.watch import WatchedAttempt, WatchList
from runner.facts.wire import to_plain

ATTEMPT = AttemptId(1, 1, 0)
START, STEP = 60.0, 30.0


def watch(attempt: AttemptId = ATTEMPT) -> WatchList:
    """Watch one gang, launched at time 0."""
    watched = WatchedAttempt(
        attempt=attempt, nodes=("n1",), since=0.0, start_seconds=START, progress_seconds=STEP
    )
    return WatchList(nodes=("n1",), attempts=(watched,))


def heartbeat(step: int | None = None, *, stopped: tuple[int, ...] = ()) -> Heartbeat:
    """Make a heartbeat of a gang whose ranks report steps."""
    return Heartbeat(
        node="n1",
        incarnation=1,
        attempt=ATTEMPT,
        phases={"0": "step"},
        last_step=step,
        ranks_stopped=stopped,
    )


def gang() -> GangProgress:
    """Make a detector that knows the gang."""
    progress = GangProgress()
    progress.tick(watch(), 0.0)
    return progress


def test_steps_that_cease_are_found_once() -> None:
    """The limit runs from the last new step, however often heartbeats come."""
    progress = gang()
    progress.on_heartbeat(heartbeat(7), watch(), 10.0)
    for second in range(11, 40):
        progress.on_heartbeat(heartbeat(7), watch(), float(second))
        assert progress.tick(watch(), float(second)) == []
    (found,) = progress.tick(watch(), 10.0 + STEP)
    assert (found.fault, found.attempt, found.silent_seconds) == ("no_progress", ATTEMPT, STEP)
    assert progress.tick(watch(), 10.0 + 2 * STEP) == []


def test_a_gang_that_advances_is_never_found() -> None:
    """Steps just inside the limit, for a long time, make no finding."""
    progress = gang()
    for step in range(1, 500):
        now = step * (STEP - 0.1)
        progress.on_heartbeat(heartbeat(step), watch(), now)
        assert progress.tick(watch(), now + STEP - 0.2) == []


def test_a_start_without_a_step_is_found_if_the_ranks_report_steps() -> None:
    """The start has its own limit."""
    progress = gang()
    progress.on_heartbeat(heartbeat(), watch(), 1.0)
    assert progress.tick(watch(), START - 0.1) == []
    assert [item.fault for item in progress.tick(watch(), START)] == ["no_progress"]


def test_ranks_that_never_report_are_held_to_no_limit() -> None:
    """A script without the contract reports no steps: its progress is unknown."""
    progress = gang()
    progress.on_heartbeat(Heartbeat(node="n1", incarnation=1, attempt=ATTEMPT), watch(), 1.0)
    assert progress.tick(watch(), 100 * START) == []
    assert progress.due_at(watch()) is None


def test_a_launch_that_is_not_over_has_no_limit() -> None:
    """Ranks that report on one node, while another has yet to start its own, are not stuck; a stopped one is found."""
    waiting = WatchList(nodes=("n1",), attempts=(replace(watch().attempts[0], since=None),))
    progress = GangProgress()
    progress.tick(waiting, 0.0)
    assert progress.on_heartbeat(heartbeat(), watch(), 1.0) == []
    assert progress.due_at(waiting) is None
    assert progress.tick(waiting, 100 * START) == []
    (found,) = progress.on_heartbeat(heartbeat(stopped=(2,)), watch(), 100 * START)
    assert found.fault == "rank_stopped"
    up = WatchList(nodes=("n1",), attempts=(replace(watch().attempts[0], since=100 * START),))
    progress.tick(up, 100 * START)
    assert progress.due_at(up) == 101 * START
    assert [item.fault for item in progress.tick(up, 101 * START)] == ["no_progress"]


def test_a_stopped_rank_is_found_once() -> None:
    """The finding names rank and node."""
    progress = gang()
    (found,) = progress.on_heartbeat(heartbeat(3, stopped=(2,)), watch(), 5.0)
    assert (found.fault, found.rank, found.node) == ("rank_stopped", 2, "n1")
    assert progress.on_heartbeat(heartbeat(3, stopped=(2,)), watch(), 6.0) == []
    assert progress.on_heartbeat(heartbeat(4), watch(), 7.0) == []


def test_a_pause_of_the_supervisor_does_not_count() -> None:
    """A pause of the supervisor moves the limit."""
    progress = gang()
    progress.on_heartbeat(heartbeat(1), watch(), 10.0)
    progress.shift(100.0)
    assert progress.tick(watch(), 10.0 + STEP + 99.0) == []
    assert progress.tick(watch(), 10.0 + STEP + 100.0) != []


def test_a_new_attempt_starts_afresh() -> None:
    """Steps of an attempt that is no longer watched do not count for the next."""
    progress = gang()
    progress.on_heartbeat(heartbeat(50), watch(), 10.0)
    after = watch(AttemptId(1, 1, 1))
    progress.tick(after, 11.0)
    assert progress.tick(after, 11.0 + STEP) == []


# ---- ranks that print their steps, and report none


def printing(step: int, num: int, *, writes: int = 0) -> Heartbeat:
    """Make a heartbeat of a gang whose output shows its steps."""
    return Heartbeat(
        node="n1",
        incarnation=1,
        attempt=ATTEMPT,
        printed_step=step,
        num_printed=num,
        num_writes=writes,
    )


def test_printed_steps_that_cease_are_found_at_the_limit_of_steps() -> None:
    """Three steps are enough: the limit runs from the last one."""
    progress = gang()
    for step in (1, 2, 3):
        progress.on_heartbeat(printing(step, step), watch(), float(step))
    assert progress.tick(watch(), 2.9 + STEP) == []
    (found,) = progress.tick(watch(), 3.0 + STEP)
    assert (found.fault, found.silent_seconds) == ("no_progress", STEP)


def test_ranks_that_print_a_step_seldom_get_a_multiple_of_their_longest_gap() -> None:
    """A script that prints every thousandth step is no hang after ten minutes."""
    progress = gang()
    for number in range(1, 4):
        progress.on_heartbeat(printing(1000 * number, number), watch(), 100.0 * number)
        assert progress.tick(watch(), 100.0 * number) == []
    assert progress.tick(watch(), 300.0 + 299.0) == []
    (found,) = progress.tick(watch(), 300.0 + 300.0)
    assert "3 times the longest" in found.evidence


def test_ranks_that_write_without_a_step_get_three_times_as_long() -> None:
    """They may evaluate; a watchdog that repeats its complaint does not keep a gang for ever."""
    progress = gang()
    for step in (1, 2, 3):
        progress.on_heartbeat(printing(step, step, writes=step), watch(), float(step))
    for second in range(4, 3 + 3 * int(STEP)):
        progress.on_heartbeat(printing(3, 3, writes=second), watch(), float(second))
        assert progress.tick(watch(), float(second)) == []
    assert len(progress.tick(watch(), 3.0 + 3 * STEP)) == 1


def test_steps_that_ranks_report_count_alone() -> None:
    """A channel that opens later takes over from what was printed before."""
    progress = gang()
    progress.on_heartbeat(printing(900, 1), watch(), 1.0)
    progress.on_heartbeat(heartbeat(7), watch(), 5.0)
    progress.on_heartbeat(heartbeat(8), watch(), 6.0)
    assert progress.tick(watch(), 5.9 + STEP) == []
    assert len(progress.tick(watch(), 6.0 + STEP)) == 1


def test_that_a_run_prints_its_steps_outlives_the_supervisor() -> None:
    """Its next start is held to a limit by its own starts."""
    progress = gang()
    for step in (1, 2, 3):
        progress.on_heartbeat(printing(step, step), watch(), 50.0 + step)
    later = GangProgress()
    later.load(ATTEMPT.run, to_plain(progress.dump(ATTEMPT.run, 60.0)), 60.0)
    again = AttemptId(1, 1, 1)
    watched = replace(watch(again).attempts[0], since=60.0)
    new = WatchList(nodes=("n1",), attempts=(watched,))
    later.tick(new, 60.0)
    later.on_heartbeat(Heartbeat(node="n1", incarnation=1, attempt=again), new, 61.0)
    assert later.tick(new, 60.0 + 3 * 51.0 - 1.0) == []
    assert len(later.tick(new, 60.0 + 3 * 51.0)) == 1
