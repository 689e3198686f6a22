"""Several `stoker run` of one folder: they share a cluster, and none ends what another needs."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.cli.clusters import find_cluster
from runner.cli.foreground.leftovers import kill_all, processes_of
from tests.cli.foreground.test_foreground import start, stoker, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]
# Far above the usual time, for a loaded machine.
WAIT_SECONDS = 120.0
# It runs until its file `end` appears; a first Ctrl-C ends it, unless `stays` is given.
SCRIPT = """
import os, pathlib, signal, sys, time
name, stays = sys.argv[1], len(sys.argv) > 2
signal.signal(signal.SIGTERM, signal.SIG_IGN if stays else lambda *_: sys.exit(0))
pathlib.Path(f"up-{name}").touch()
while not os.path.exists(f"end-{name}"):
    time.sleep(0.05)
"""


class Place:
    """A working directory with a blank in its name, and the commands that a test starts there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "my runs"
        self.folder.mkdir()
        (self.folder / "train.py").write_text(SCRIPT)
        self.started: list[subprocess.Popen[str]] = []

    def write(self, name: str, *more: str, **fields: object) -> str:
        """Write a run of the script and return its file; JSON is YAML."""
        command = [sys.executable, "train.py", name, *more]
        spec = {"name": name, "command": command, "stop_grace_seconds": 60, **fields}
        (self.folder / f"{name}.yaml").write_text(json.dumps(spec))
        return f"{name}.yaml"

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command."""
        self.started.append(start(*words))
        return self.started[-1]

    def begin(self, name: str, *options: str, more: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        """Start a run in the foreground, and wait until its rank is there."""
        process = self.start("run", self.write(name, *more), *options)
        self.wait_for_rank(name)
        return process

    def wait_for_rank(self, name: str) -> None:
        """Wait until the rank of a run is there."""
        wait_for(lambda: (self.folder / f"up-{name}").exists(), seconds=WAIT_SECONDS)

    def end(self, name: str) -> None:
        """Let the rank of a run end by itself."""
        (self.folder / f"end-{name}").touch()

    def runs(self) -> dict[str, str]:
        """Return the state of each run of the one cluster here."""
        assert [path.name for path in (self.folder / ".stoker").iterdir()] == ["local"]
        return {run["name"]: run["state"] for run in json.loads(stoker("runs", "--json").stdout)}

    def kill(self) -> None:
        """Kill what is left."""
        for process in self.started:
            process.kill()
            process.communicate()
        for spec in (self.folder / ".stoker").glob("*"):
            kill_all(find_cluster(str(spec)))


@pytest.fixture
def place(folder: Path) -> Iterator[Place]:
    """An empty place, in which the test is; what is left there is killed at the end."""
    place = Place(folder)
    os.chdir(place.folder)
    yield place
    place.kill()


def finish(process: subprocess.Popen[str], code: int) -> tuple[str, str]:
    """Wait for a command to end with `code`; return its output and errors."""
    output, errors = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == code, output + errors
    return output, errors


def supervisors() -> list[str]:
    """Return the supervisors of the cluster here."""
    return [str(each) for each in processes_of(find_cluster(None)) if each.what == "supervisor"]


@pytest.mark.parametrize("first_out", ["one", "two"])
def test_whoever_ends_first_leaves_the_other_alone(place: Place, first_out: str) -> None:
    """One cluster, one supervisor: Ctrl-C of either run ends that run alone, and the last command ends the supervisor."""
    commands = {"one": place.begin("one", "--spares", "1"), "two": place.begin("two")}
    leaving = commands.pop(first_out)
    ((other, staying),) = commands.items()
    before = supervisors()
    assert len(before) == 1
    # What a command says goes by the status, which is published now and then.
    wait_for(lambda: len(place.runs()) == 2, seconds=WAIT_SECONDS)
    leaving.send_signal(signal.SIGINT)
    output, errors = finish(leaving, 130)
    assert "Ctrl-C again kills its ranks at once" in output
    assert f"the supervisor stays for {other}, and ends with the last of them" in errors
    assert place.runs() == {first_out: "stopped", other: "active"}
    assert supervisors() == before
    place.end(other)
    finish(staying, 0)
    assert processes_of(find_cluster(None)) == []
    assert "shut down in order" in stoker("status").stdout


def test_a_second_ctrl_c_kills_the_ranks_of_its_own_run_alone(place: Place) -> None:
    """The operator insists where the supervisor was started; the other run notices nothing."""
    one, two = place.begin("one", "--spares", "1", more=("stays",)), place.begin("two")
    before = supervisors()
    one.send_signal(signal.SIGINT)
    assert one.stdout is not None
    while "stopping the run" not in (line := one.stdout.readline()):
        assert line
    one.send_signal(signal.SIGINT)
    _, errors = finish(one, 130)
    assert "its ranks were killed" in errors
    wait_for(lambda: place.runs()["one"] == "stopped", seconds=WAIT_SECONDS)
    assert supervisors() == before
    place.end("two")
    finish(two, 0)
    (run,) = (each for each in json.loads(stoker("runs", "--json").stdout) if each["run"] == 2)
    assert (run["name"], run["num_attempts"]) == ("two", 1)
    assert processes_of(find_cluster(None)) == []


def test_a_run_waits_for_nodes_and_a_larger_one_for_the_end_of_the_cluster(place: Place) -> None:
    """The same size waits in the cluster, and says who has the nodes; the cluster is made again for the larger one."""
    one = place.begin("one")
    same = place.start("run", place.write("same"))
    wait_for(lambda: place.runs().get("same") == "waiting", seconds=WAIT_SECONDS)
    refused = stoker("run", place.write("large", nodes=2), "--detach")
    assert refused.returncode == 2
    lack = "'large' needs 2 x 1, and the cluster of its folder was made with 1 x 1 for runs"
    assert lack in refused.stderr
    large = place.start("run", "large.yaml")
    assert large.stderr is not None
    line = large.stderr.readline()
    assert lack in line
    assert "it starts when those have ended" in line
    for name in ("one", "same"):
        place.end(name)
    finish(one, 0)
    assert "run 1 one (priority 0) has n1" in finish(same, 0)[0]
    place.wait_for_rank("large")
    place.end("large")
    finish(large, 0)
    assert place.runs() == dict.fromkeys(("one", "same", "large"), "finished")
    assert processes_of(find_cluster(None)) == []


def test_a_detached_run_keeps_the_supervisor_of_a_command_that_ends(place: Place) -> None:
    """It has a restarter from then on, which starts another supervisor when it is killed."""
    one = place.begin("one", "--spares", "1")
    admitted = stoker("run", place.write("two"), "--detach")
    assert admitted.returncode == 0, admitted.stderr
    place.wait_for_rank("two")
    place.end("one")
    _, errors = finish(one, 0)
    assert "the supervisor stays for two; end all with `stoker shutdown`" in errors
    before = supervisors()
    assert stoker("drill", "kill-supervisor").returncode == 0
    wait_for(lambda: supervisors() not in ([], before), seconds=WAIT_SECONDS)
    done = stoker("shutdown")
    assert done.returncode == 0, done.stderr
    assert place.runs() == {"one": "finished", "two": "stopped"}
    assert processes_of(find_cluster(None)) == []
