"""Starts: the slowest rank of each phase, from the reports of a gang's nodes."""

from runner.detect.start_times import GRACE_SECONDS, StartTimes
from runner.facts.faults import GangStartTimed
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat, StartPhase
from runner.facts.watch import WatchedAttempt, WatchList

ATTEMPT = AttemptId(1, 1, 0)


def watch(*, is_timed: bool = False) -> WatchList:
    """Watch one gang on two nodes."""
    watched = WatchedAttempt(
        attempt=ATTEMPT,
        nodes=("n1", "n2"),
        since=0.0,
        start_seconds=60.0,
        progress_seconds=30.0,
        is_timed=is_timed,
    )
    return WatchList(nodes=("n1", "n2"), attempts=(watched,))


def heartbeat(node: str, attempt: AttemptId = ATTEMPT, **phases: tuple[float, int]) -> Heartbeat:
    """Make a heartbeat that reports phases by (seconds, rank)."""
    start = {name: StartPhase(seconds=took, rank=rank) for name, (took, rank) in phases.items()}
    return Heartbeat(node=node, incarnation=1, attempt=attempt, start_phases=start)


def test_the_last_node_to_report_completes_the_start_times() -> None:
    """No report while a node is missing; then the slowest rank of each phase with its node, in any order of reports."""
    starts = StartTimes()
    assert starts.on_heartbeat(heartbeat("n2", load=(3.0, 2), build=(1.0, 3)), watch(), 10.0) == []
    assert starts.on_heartbeat(heartbeat("n2", load=(3.0, 2), build=(1.0, 3)), watch(), 11.0) == []
    (found,) = starts.on_heartbeat(heartbeat("n1", load=(2.0, 0), build=(4.0, 1)), watch(), 12.0)
    assert found == GangStartTimed(
        attempt=ATTEMPT,
        slowest={
            "load": StartPhase(seconds=3.0, rank=2, node="n2"),
            "build": StartPhase(seconds=4.0, rank=1, node="n1"),
        },
    )
    assert list(found.slowest) == ["load", "build"]


def test_a_node_that_never_reports_is_not_waited_for_for_ever() -> None:
    """After the grace the known times are reported, at the announced time."""
    starts = StartTimes()
    starts.on_heartbeat(heartbeat("n1", load=(2.0, 0)), watch(), 10.0)
    assert starts.due_at(watch()) == 10.0 + GRACE_SECONDS
    assert starts.tick(watch(), 10.0 + GRACE_SECONDS - 0.1) == []
    (found,) = starts.tick(watch(), 10.0 + GRACE_SECONDS)
    assert found.slowest["load"].node == "n1"


def test_a_pause_of_the_supervisor_does_not_count() -> None:
    """The grace starts over after a pause of the supervisor."""
    starts = StartTimes()
    starts.on_heartbeat(heartbeat("n1", load=(2.0, 0)), watch(), 10.0)
    starts.shift(100.0)
    assert starts.tick(watch(), 100.0) == []
    assert starts.due_at(watch()) == 110.0 + GRACE_SECONDS


def test_reported_times_are_not_reported_again() -> None:
    """Once the controller knows, and for gangs that are not watched, heartbeats lead to nothing and nothing is due."""
    starts = StartTimes()
    starts.on_heartbeat(heartbeat("n1", load=(2.0, 0)), watch(), 10.0)
    starts.on_heartbeat(heartbeat("n2", load=(2.0, 2)), watch(), 10.0)
    assert starts.on_heartbeat(heartbeat("n1", load=(2.0, 0)), watch(is_timed=True), 11.0) == []
    assert (
        starts.on_heartbeat(heartbeat("n1", AttemptId(1, 1, 1), load=(2.0, 0)), watch(), 12.0) == []
    )
    assert starts.tick(watch(is_timed=True), 100.0) == []
    assert starts.due_at(watch()) is None


def test_a_gang_that_reports_nothing_is_never_timed() -> None:
    """Ranks that know nothing of the contract leave no line."""
    starts = StartTimes()
    assert starts.on_heartbeat(heartbeat("n1"), watch(), 1.0) == []
    assert starts.due_at(watch()) is None
    assert starts.tick(watch(), 1000.0) == []
