"""Faults of a supervisor's machine: its clock jumps, its disk is full. Healthy ranks go on, and no decision is lost."""

import time

import pytest

from runner.facts.messages.requests import StopRun
from tests.clock import JumpingClock
from tests.e2e.cluster_harness import ClusterHarness, incidents_of, kill, run_of
from tests.e2e.minimal_run import finish, led_run
from tests.e2e.scripts import steps_of
from tests.small_disk import fill, small_disk

pytestmark = pytest.mark.timeout(900)

# Of the disk that the store is on.
DISK_BYTES = 8 * 1024 * 1024


def await_steps(harness: ClusterHarness, more: int) -> None:
    """Wait until rank 0 has made so many more steps, with or without a supervisor."""
    goal = len(steps_of(harness.folder, 0)) + more
    harness.until(lambda: len(steps_of(harness.folder, 0)) >= goal or None, f"step {goal}")


def test_a_wall_clock_that_jumps_by_hours_changes_nothing(harness: ClusterHarness) -> None:
    """A supervisor takes over by a clock two hours ahead, which jumps back, then is right: no incident, the same ranks.

    Requests of commands whose clock is right are refused with the difference meanwhile, and answered afterwards, also by the next
    supervisor.
    """
    first = led_run(harness, checks=[], heartbeat_timeout_seconds=2.0)
    before = harness.training(past_step=1)
    first.kill()
    # Its agents keep the machine's own clock.
    first.wait()
    clock = JumpingClock(harness.folder / "clock")
    clock.set("supervisors", 7200)
    supervisor = harness.start("supervise", environment=clock.environment)
    harness.wait(lambda view: f":{supervisor.pid}:" in view.holder or None, "a View")
    for jump in ("+7200", "-7200", "+0"):
        clock.set("supervisors", int(jump))
        await_steps(harness, 150)
        harness.wait(
            lambda view, jump=jump: (  # type: ignore[misc]
                abs(view.wall - time.time() - int(jump)) < 600 or None
            ),
            f"a View by a clock that is {jump} s off",
        )
        view = harness.view()
        assert view is not None
        assert [node.state for node in view.nodes] == ["active", "active"], jump
        answer = harness.ask(StopRun(id=f"q{jump}", by="ann", run="none"))
        assert answer.state == "refused"
        expected = (
            "no live run" if jump == "+0" else "at most 300 s may lie between: set the clocks"
        )
        assert expected in answer.message
    supervisor.kill()
    supervisor.wait()
    supervisor = harness.start("supervise")
    harness.wait(lambda view: f":{supervisor.pid}:" in view.holder or None, "a View of the next")
    assert "no live run" in harness.ask(StopRun(id="q-next", run="none")).message
    story = harness.stoker("story").stdout
    assert story.count("this supervisor's clock") == 2
    harness.training(past_step=run_of(harness.view()).step + 5)
    assert harness.observer.starts() == {str(before.attempt): 2}
    assert supervisor.poll() is None
    assert incidents_of(harness.view()) == ()
    finish(harness, supervisor)


def test_the_supervisor_waits_while_the_disk_of_the_store_is_full(harness: ClusterHarness) -> None:
    """Ranks go on meanwhile; the supervisor recovers a rank's death once there is room, and no entry is lost."""
    with small_disk(harness.state / "store", size_bytes=DISK_BYTES) as disk:
        supervisor = led_run(harness, checks=[], heartbeat_timeout_seconds=4.0)
        before = harness.training(past_step=1)
        filled = fill(
            disk
            # The store's log has preallocated room: it is full when the store reports it.
        )
        harness.until(lambda: "disk is full" in harness.output() or None, "a word of the full disk")
        await_steps(harness, 150)
        assert harness.observer.gang() == before.pids
        assert supervisor.poll() is None
        kill(before.pids[1])
        harness.until(lambda: not harness.observer.gang() or None, "a broken gang")
        assert len(harness.observer.starts()) == 1
        filled.unlink()
        after = harness.training(past_step=1, after=before.attempt)
        assert harness.observer.starts() == {str(before.attempt): 2, str(after.attempt): 2}
        finish(harness, supervisor)
        found = [(i.fault, i.state) for i in incidents_of(harness.view())]
        assert found == [("rank_crash", "resolved")]
        harness.store.close()
