"""A check runs in a process group of its own, under a deadline: however it ends, there is a verdict and nothing is left."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from healthchecks.__main__ import _side_by_side
from healthchecks.check import NodeFacts, Outcome
from healthchecks.child import run
from healthchecks.commands import Ending, as_they_end, run_until
from healthchecks.deadline import run_check
from tests.healthchecks.check_harness import ROOT, child_command
from tests.interpreter import shebang

SLOW_CLOCK = NodeFacts(folders=(), clock_seconds=600.0)


def is_alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(pid: int, *, within_seconds: float = 60.0) -> bool:
    """Wait until a process is gone."""
    deadline = time.monotonic() + within_seconds
    while is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_alive(pid)


def test_a_check_that_hangs_is_unknown_and_killed() -> None:
    """A check past its deadline is killed, and that it hung is what is found."""
    began = time.monotonic()
    verdict = run_check("clock", SLOW_CLOCK, limits={}, deadline_seconds=0.5)
    assert verdict.outcome is Outcome.UNKNOWN
    assert verdict.reason == "hung: no verdict within 0.5 s; killed"
    assert 0.5 <= verdict.seconds <= time.monotonic() - began < 10


def test_the_verdict_of_a_check_that_ends_in_time_arrives() -> None:
    """The verdict of the child arrives with its evidence."""
    node = NodeFacts(folders=(), clock_seconds=0.01)
    verdict = run_check("clock", node, limits={"clock.latest_year": 1999})
    assert verdict.outcome is Outcome.FAIL
    judged = [each for each in verdict.evidence if each.rule != "noted"]
    assert len(judged) == 5


def test_the_whole_group_is_killed() -> None:
    """What the child started is gone with it, at the deadline and after an orderly end, even while it holds the output."""
    for last, hung in (("wait", True), ("true", False)):
        ending = run_until(["sh", "-c", f"sleep 600 & echo $!; {last}"], 1.0)
        assert ending.hung is hung
        assert gone(int(ending.output))
        assert gone(ending.pid)


@pytest.mark.costly
def test_commands_run_side_by_side_each_until_its_own_deadline(tmp_path: Path) -> None:
    """Two that wait for each other both end; a third that hangs is killed at its own deadline."""
    meet = "touch {0}; until test -e {1}; do sleep 0.01; done"
    here = ["env", "-C", str(tmp_path), "sh", "-c"]
    commands = {
        "hangs": ["sleep", "600"],
        "first": [*here, meet.format("first", "second")],
        "second": [*here, meet.format("second", "first")],
        "missing": ["/nowhere/program"],
    }
    deadlines = {"hangs": 3.0, "first": 60.0, "second": 60.0, "missing": 60.0}
    endings = list(as_they_end(commands, deadlines))
    assert endings[0][0] == "missing"
    assert isinstance(endings[0][1], FileNotFoundError)
    found = {name: (one.hung, one.code) for name, one in endings if isinstance(one, Ending)}
    assert found == {"first": (False, 0), "second": (False, 0), "hangs": (True, -9)}


def test_only_neighbours_that_put_no_load_on_the_node_run_side_by_side() -> None:
    """What measures a rate or the clock runs alone."""
    groups = list(_side_by_side(["clock", "processes", "disk_space", "shared_memory", "loopback"]))
    assert groups == [["clock"], ["processes", "disk_space", "shared_memory"], ["loopback"]]


def test_a_child_that_ignores_signals_is_killed() -> None:
    """Nothing a child can catch keeps it alive."""
    ending = run_until(["sh", "-c", "trap '' TERM INT HUP; while :; do sleep 0.1; done"], 0.3)
    assert (ending.hung, ending.code) == (True, -9)


@pytest.mark.parametrize(
    ("script", "word"),
    [
        ("import os; os.abort()", "code -6"),
        ("raise SystemExit('no luck')", "no luck"),
        ("print('PASS')", "without a verdict"),
        ('print(\'{"check": "memory"}\')', "without a verdict"),
        ("print('x' * (3 << 20))", "without a verdict"),
        ("", "without a verdict"),
    ],
)
def test_a_child_without_a_verdict_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, word: str
) -> None:
    """A crash, unknown words, a verdict on another check, a flood and silence are all UNKNOWN, with the last words."""
    interpreter = tmp_path / "python"
    interpreter.write_text(f"{shebang(tmp_path)}\n{script}\n")
    interpreter.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(interpreter))
    verdict = run_check("clock", SLOW_CLOCK, limits={})
    assert verdict.outcome is Outcome.UNKNOWN
    assert word in verdict.reason


def test_a_check_that_cannot_be_started_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """No interpreter, no verdict."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    verdict = run_check("clock", SLOW_CLOCK, limits={})
    assert verdict.outcome is Outcome.UNKNOWN
    assert "could not be started" in verdict.reason


def test_a_check_that_raises_is_unknown() -> None:
    """An exception in a check ends in a finding that names it."""
    asked = {"node": {"folders": [], "clock_seconds": -1.0}, "limits": {}}
    verdict = run("clock", asked)
    assert verdict.outcome is Outcome.UNKNOWN
    assert verdict.reason.startswith("raised ValueError: ")
    assert run("no such check", asked).outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("pause_seconds", [0.0, 0.5])
def test_a_check_dies_with_its_parent(pause_seconds: float) -> None:
    """A check ends with its parent, which would have killed it had it hung; also while it still starts."""
    command = child_command("PARENT", "clock", clock_seconds=600.0)
    script = (
        "import os, subprocess, sys, time\n"
        f"command = [str(os.getpid()) if word == 'PARENT' else word for word in {command!r}]\n"
        "print(subprocess.Popen(command).pid, flush=True)\n"
        "time.sleep(600)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as watcher:
        assert watcher.stdout is not None
        pid = int(watcher.stdout.readline())
        time.sleep(pause_seconds)
        assert is_alive(pid)
        os.kill(watcher.pid, 9)
    assert gone(pid)
