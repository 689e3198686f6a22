"""`stoker run` with real supervisors, agents and ranks: plain scripts, interrupted and killed by signals."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.cli.clusters import find_cluster
from runner.cli.foreground.leftovers import kill_all, processes_of

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
STOKER = [sys.executable, "-m", "runner.cli.main"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}


@pytest.fixture
def place(folder: Path) -> Iterator[Path]:
    """An empty working directory; the fixture kills all clusters in it at the end."""
    yield folder
    for spec in sorted((folder / ".stoker").glob("*")):
        kill_all(find_cluster(str(spec)))


def write_run(folder: Path, command: list[str], **more: object) -> None:
    """Write run.yaml; JSON is YAML."""
    (folder / "run.yaml").write_text(json.dumps({"name": "plain", "command": command, **more}))


def start(*arguments: str) -> subprocess.Popen[str]:
    """Start the command line as a process of its own."""
    return subprocess.Popen(
        [*STOKER, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )


def stoker(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line to its end."""
    return subprocess.run(
        [*STOKER, *arguments], capture_output=True, text=True, env=ENVIRONMENT, check=False
    )


def wait_for(what: Callable[[], bool], *, seconds: float = 30.0) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.05)


def has_no_process() -> bool:
    """Whether the run's cluster has no process."""
    return processes_of(find_cluster("local")) == []


def test_a_run_that_finishes_ends_with_0_and_leaves_nothing(place: Path) -> None:
    """Two nodes with two ranks each, to the end: summary, exit code 0, no process."""
    write_run(place, ["sleep", "1"], nodes=2, ranks_per_node=2)
    done = stoker("run", "run.yaml")
    assert done.returncode == 0, done.stderr
    assert "run 1 plain finished: all 4 ranks ended with 0" in done.stdout
    assert has_no_process()
    assert "shut down in order" in stoker("status").stdout


def test_a_second_run_in_the_same_folder_starts_again(place: Path) -> None:
    """A cluster that was shut down is led again by the next run, under the next number."""
    write_run(place, ["true"])
    assert stoker("run", "run.yaml").returncode == 0
    again = stoker("run", "run.yaml", "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["run"]["run"] == 2


def test_a_run_that_cannot_work_ends_with_1_and_its_reason(place: Path) -> None:
    """A crash loop stops, and the summary has the incident and the script's last output."""
    script = "import sys; sys.exit('out of cheese')"
    write_run(place, [sys.executable, "-c", script])
    done = stoker("run", "run.yaml")
    assert done.returncode == 1, done.stderr
    assert "out of cheese" in done.stdout
    assert "gave_up" in done.stdout
    summary = done.stdout.partition("\nrun 1 ")[2]
    assert "out of cheese (more: stoker story i1)" in summary
    assert has_no_process()


def test_ctrl_c_stops_in_order_and_leaves_nothing(place: Path) -> None:
    """The first Ctrl-C ends ranks by SIGTERM, then agents and supervisor; exit code 130."""
    script = "import signal,sys,time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); open('up', 'w'); time.sleep(100)"
    write_run(place, [sys.executable, "-c", script], ranks_per_node=2)
    with start("run", "run.yaml") as process:
        wait_for(lambda: (place / "up").exists())
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "stopping the run" in output
    assert "run 1 plain stopped" in output
    assert has_no_process()


def test_a_second_ctrl_c_kills_at_once(place: Path) -> None:
    """Ranks that ignore SIGTERM do not delay an operator who insists."""
    script = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); open('up', 'w'); time.sleep(100)"
    write_run(place, [sys.executable, "-c", script], stop_grace_seconds=90)
    with start("run", "run.yaml") as process:
        wait_for(lambda: (place / "up").exists())
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        insisted = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert time.monotonic() - insisted < 10
    assert "killed; nothing is left" in errors
    assert has_no_process()


def test_a_dead_supervisor_is_restarted_and_the_run_goes_on(place: Path) -> None:
    """kill-supervisor under a foreground run: the same rank continues, and the next supervisor records its end."""
    script = (
        "import os,time\n"
        "open('pid-' + str(os.getpid()), 'w')\n"
        "while not os.path.exists('enough'): time.sleep(0.1)"
    )
    write_run(place, [sys.executable, "-c", script])
    with start("run", "run.yaml") as process:
        wait_for(lambda: bool(list(place.glob("pid-*"))))
        drilled = stoker("drill", "kill-supervisor")
        (place / "enough").touch()
        assert drilled.returncode == 0, drilled
        output, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "no supervisor holds the lease (exit code -9): starting one" in output
    assert len(list(place.glob("pid-*"))) == 1
    assert has_no_process()


def test_a_detached_run_is_stopped_and_shut_down_by_hand(place: Path) -> None:
    """--detach leaves it to the supervisor; stop, status and shutdown work from elsewhere."""
    write_run(place, ["sleep", "100"], stop_grace_seconds=1)
    admitted = stoker("run", "run.yaml", "--detach", "--json")
    assert admitted.returncode == 0, admitted.stderr
    assert json.loads(admitted.stdout)["run"] == 1
    wait_for(lambda: "running" in stoker("status").stdout)
    write_run(place, ["sleep", "101"], stop_grace_seconds=1)
    twin = stoker("run", "run.yaml")
    assert twin.returncode == 2
    assert "stop it first" in twin.stderr
    second = stoker("supervise", "--cluster", "local")
    assert second.returncode == 2
    assert "led by another supervisor" in second.stderr
    stopped = stoker("stop")
    assert stopped.returncode == 0, stopped.stderr
    assert stoker("shutdown").returncode == 0
    assert has_no_process()


def test_a_supervisor_says_what_it_leads_and_another_one_who_leads(place: Path) -> None:
    """One line names cluster, store and metrics port; where another one leads, that is the reason, and not its port in use."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    state = place / ".stoker" / "plain"
    spec = {"name": "plain", "state": str(state), "metrics_port": port}
    (place / "cluster.yaml").write_text(json.dumps(spec))
    with start("supervise") as first:
        try:
            assert first.stderr is not None
            line = next(line for line in first.stderr if "leads cluster" in line)
            second = stoker("supervise")
        finally:
            first.terminate()
    assert f"leads cluster plain; store {state}" in line
    assert line.endswith(f"; metrics on port {port}\n")
    assert second.returncode == 2
    assert "led by another supervisor" in second.stderr
    assert f"serves metrics on port {port}" in second.stderr
    assert "in use" not in second.stderr


@pytest.mark.parametrize("what", ["no-such-program", "nope.py", "lacks.py"])
def test_what_is_missing_is_said_at_once(place: Path, what: str) -> None:
    """A program, a script or a module that is not there ends the run with its first attempt, and with the way out."""
    (place / "lacks.py").write_text("import no_such_module\n")
    command = ["{python}", what] if what.endswith(".py") else [what]
    write_run(place, command, python=sys.executable)
    done = stoker("run", "run.yaml", "--json")
    assert done.returncode == 1, done.stderr
    ended = json.loads(done.stdout)["run"]
    assert ended["num_attempts"] == 1
    way_out = {"lacks.py": "install no_such_module for the interpreter of the ranks"}
    assert (
        way_out.get(what, "correct `command` or `working_directory` in run.yaml") in ended["reason"]
    )
    assert has_no_process()


def leader_pid() -> int | None:
    """Return the process that leads; None: there is none."""
    leader = json.loads(stoker("status", "--json").stdout)["leader"]
    return int(leader["holder"].split(":")[1]) if leader["alive"] else None


@pytest.mark.parametrize("ending", ["shutdown", "SIGTERM"])
def test_a_supervisor_left_behind_is_started_again_until_it_ends_in_order(
    place: Path, ending: str
) -> None:
    """Each time it is killed another one leads, and the run goes on in its first attempt; then nothing is left."""
    write_run(place, ["sleep", "1000"], stop_grace_seconds=1)
    admitted = stoker("run", "run.yaml", "--detach")
    assert admitted.returncode == 0, admitted.stderr
    wait_for(lambda: "running" in stoker("status").stdout)
    restarters = [each for each in processes_of(find_cluster("local")) if each.what == "restarter"]
    assert len(restarters) == 1
    pids = [leader_pid()]
    for _ in range(2):
        assert pids[-1] is not None
        os.kill(pids[-1], signal.SIGKILL)
        wait_for(lambda: leader_pid() not in (None, pids[-1]), seconds=60)
        pids.append(leader_pid())
    assert restarters[0] in processes_of(find_cluster("local"))
    wait_for(lambda: "running" in stoker("status").stdout)
    (run,) = json.loads(stoker("runs", "--json").stdout)
    assert run["num_attempts"] == 1
    if ending == "SIGTERM":
        assert pids[-1] is not None
        os.kill(pids[-1], signal.SIGTERM)
        wait_for(lambda: restarters[0] not in processes_of(find_cluster("local")), seconds=60)
        assert leader_pid() is None
        return
    done = stoker("shutdown")
    assert done.returncode == 0, done.stderr
    assert has_no_process()


def test_a_supervisor_left_behind_that_refuses_says_why(place: Path) -> None:
    """The message is the supervisor's own, with the code for bad input; no process stays."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        fields = {"name": "plain", "state": str(place / ".stoker" / "local"), "metrics_port": port}
        (place / "cluster.yaml").write_text(json.dumps(fields))
        write_run(place, ["sleep", "1"])
        refused = stoker("run", "run.yaml", "--detach", "--cluster", "cluster.yaml")
    assert refused.returncode == 2, refused
    assert str(port) in refused.stderr
    assert has_no_process()
