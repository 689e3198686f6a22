"""Runs that cannot go on: they stop or wait with a reason, and keep all files."""

import signal
import sys
from pathlib import Path

import pytest

from tests.e2e.cluster_harness import ClusterHarness, incidents_of, kill, run_of
from tests.e2e.scripts import ENDING, STEPPING

pytestmark = pytest.mark.timeout(300)


def test_a_script_that_always_fails_is_started_four_times_and_then_stopped(
    harness: ClusterHarness,
) -> None:
    """The same error at every start: four attempts, longer and longer waits, exit code 1, the reason; all output is kept."""
    code, output = run_script(harness, exit_code=3, words="no such thing as luck")
    print(output)
    assert code == 1
    assert harness.observer.starts() == {f"1.1.{number}": 2 for number in range(4)}
    run = run_of(harness.view())
    assert run.state == "failed"
    assert "exit code 3" in output
    assert "no such thing as luck" in output
    assert run.reason
    assert run.reason in output
    (incident,) = incidents_of(harness.view())
    assert (incident.fault, incident.state) == ("rank_crash", "gave_up")
    assert incident.rungs == ("restart", "restart_elsewhere", "restart", "stop")
    for attempt in ("1.1.0", "1.1.1", "1.1.2", "1.1.3"):
        # Either rank may be first; the other may have been killed before it printed a line.
        errors = (Path(run.folder) / "attempts" / attempt).glob("rank*.err")
        assert any("no such thing as luck" in path.read_text() for path in errors)


def test_exit_code_78_stops_the_run_at_once(harness: ClusterHarness) -> None:
    """The supervisor does not retry settings that cannot work, and shows the script's own error."""
    code, output = run_script(harness, exit_code=78, words="width 7 is no multiple of heads 2")
    print(output)
    assert code == 1
    assert harness.observer.starts() == {"1.1.0": 2}
    assert "width 7 is no multiple of heads 2" in output
    assert [i.fault for i in incidents_of(harness.view())] == ["settings_refused"]


def test_without_a_spare_a_killed_node_is_started_again(harness: ClusterHarness) -> None:
    """A node is killed and there is no spare: the supervisor starts its agent again, once, and the run goes on."""
    harness.write_cluster(nodes=2, slots=1, limits={"heartbeat_timeout_seconds": 2.0})
    harness.write_script(STEPPING)
    harness.write_run(command="{python} train.py", nodes=2, python=sys.executable)
    run = harness.start("run", "run.yaml")
    before = harness.training(past_step=1)
    drilled = harness.stoker("drill", "kill-node", "--node", "n2")
    assert drilled.returncode == 0, drilled
    after = harness.training(past_step=before.step, after=before.attempt)
    (harness.folder / "enough").touch()
    code, output = harness.finish(run)
    assert code == 0, output
    print(output)
    story = harness.stoker("story").stdout
    assert "n2 is lost" in story
    assert "waits for nodes" in story
    assert harness.observer.starts() == {"1.1.0": 2, str(after.attempt): 2}


def test_a_second_interrupt_kills_everything_at_once(harness: ClusterHarness) -> None:
    """Ctrl-C asks for an orderly end; a second one does not wait for ranks that ignore it."""
    harness.write_script(
        "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "open('deaf-' + os.environ['RANK'], 'w').close()\ntime.sleep(600)\n"
    )
    harness.write_run(command="{python} train.py", ranks_per_node=2, stop_grace_seconds=300)
    run = harness.start("run", "run.yaml")
    deaf = [harness.folder / f"deaf-{rank}" for rank in range(2)]
    harness.until(lambda: all(path.exists() for path in deaf) or None, "ranks that ignore SIGTERM")
    harness.wait(
        lambda view: (view.runs and run_of(view).attempt_state == "running") or None, "a View"
    )
    kill(run.pid, signal.SIGINT)
    harness.wait(
        lambda view: run_of(view).attempt_state == "stopping" or None,
        "an orderly end that takes long",
    )
    kill(run.pid, signal.SIGINT)
    code, output = harness.finish(run, seconds=20)
    print(output)
    assert code == 130


@pytest.mark.parametrize("spares", [0, 1])
def test_after_a_power_cut_the_same_command_goes_on(harness: ClusterHarness, spares: int) -> None:
    """All processes end at once: the next `stoker run` starts the nodes, blames none of them, and the run reaches its goal."""
    harness.write_cluster(nodes=2, slots=1, spares=spares)
    harness.write_script(STEPPING)
    harness.write_run(command="{python} train.py", nodes=2, python=sys.executable)
    harness.start("run", "run.yaml")
    before = harness.training(past_step=1)
    cut_power(harness)
    run = harness.start("run", "run.yaml")
    after = harness.training(past_step=before.step, after=before.attempt)
    (harness.folder / "enough").touch()
    code, output = harness.finish(run)
    print(output)
    assert code == 0
    assert "run 1" in output
    assert harness.observer.starts() == {str(before.attempt): 2, str(after.attempt): 2}
    (incident,) = incidents_of(harness.view())
    assert (incident.fault, incident.state, incident.node) == ("nodes_down", "resolved", None)
    view = harness.view()
    assert view is not None
    assert not any(node.hardware_faults for node in view.nodes)


def test_after_a_second_interrupt_the_same_command_begins_again(harness: ClusterHarness) -> None:
    """The run that was being stopped ends as asked, and the next one begins with the same nodes."""
    harness.write_script(STEPPING)
    harness.write_run(command="{python} train.py", ranks_per_node=2, python=sys.executable)
    run = harness.start("run", "run.yaml")
    harness.training(past_step=1)
    for _ in range(2):
        kill(run.pid, signal.SIGINT)
    code, output = harness.finish(run, seconds=30)
    assert code == 130, output
    again = harness.start("run", "run.yaml")
    harness.wait(
        lambda view: any(each.run == 2 and each.step for each in view.runs) or None,
        "steps of run 2",
    )
    (harness.folder / "enough").touch()
    code, output = harness.finish(again)
    assert code == 0, output
    view = harness.view()
    assert view is not None
    states = {each.run: each.state for each in view.runs}
    assert states == {1: "stopped", 2: "finished"}


def cut_power(harness: ClusterHarness) -> None:
    """Kill every process of this cluster at once, as the end of its machine does."""
    mine = harness.processes()
    assert len(mine) > 5
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for process in mine:
            kill(process.pid, number)


def run_script(harness: ClusterHarness, *, exit_code: int, words: str) -> tuple[int, str]:
    """Run a script on two ranks that ends like this; return exit code and output of `stoker run`."""
    harness.write_script(ENDING)
    # Long enough for the observer to see it on a loaded machine.
    command = ["{python}", "train.py", str(exit_code), "1.5", words]
    harness.write_run(command=command, ranks_per_node=2, python=sys.executable)
    return harness.finish(harness.start("run", "run.yaml"))
