"""Before ranks that hang are killed it is written down where they stand, and that never takes longer than it may."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.agent import stacks
from tests.agent.node import is_alive, state_of, wait_until

pytestmark = pytest.mark.e2e

SLEEPING = (
    "def wait_for_ever():\n    import time; print(flush=True); time.sleep(1000)\nwait_for_ever()"
)
SPINNING = "def turn_and_turn():\n    print(flush=True)\n    while True: pass\nturn_and_turn()"
BUDGET_SECONDS = 20.0  # far above what it takes, for a loaded machine


@pytest.fixture
def start() -> Iterator[Callable[[str], int]]:
    """Start Python processes that have said a line; afterwards they are ended."""
    children: list[subprocess.Popen[bytes]] = []

    def begin(script: str) -> int:
        children.append(
            subprocess.Popen([sys.executable, "-S", "-c", script], stdout=subprocess.PIPE)
        )
        stream = children[-1].stdout
        assert stream is not None
        stream.readline()
        return children[-1].pid

    yield begin
    for child in children:
        child.kill()
        child.communicate()


def stop(pid: int) -> None:
    """SIGSTOP, and wait until it took effect."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: state_of(pid) == "T", "state T")


def test_stopped_spinning_and_sleeping_ranks_each_show_where_they_stand(
    tmp_path: Path, start: Callable[[str], int]
) -> None:
    """Each file names the state it was found in, threads and the Python function; the ranks stand still from then on."""
    pids = {0: start(SLEEPING), 1: start(SPINNING), 2: start(SLEEPING)}
    stop(pids[2])
    folder = tmp_path / "stacks"
    began = time.monotonic()
    found = stacks.dump(
        pids, folder=folder, budget_seconds=BUDGET_SECONDS, program=stacks.find_program()
    )
    print(f"3 ranks: {time.monotonic() - began:.3f} s")
    said = {rank: (folder / f"rank{rank}.txt").read_text() for rank in pids}
    assert found == 3, said
    assert "wait_for_ever" in said[0]
    assert "turn_and_turn" in said[1]
    assert "wait_for_ever" in said[2]
    assert f"rank 2, pid {pids[2]}, state T" in said[2]
    assert f"thread {pids[1]} " in said[1]
    assert f"rank 1, pid {pids[1]}, state R" in said[1]
    assert [state_of(pid) for pid in pids.values()] == ["T", "T", "T"]


def test_what_takes_too_long_is_left_and_said_so(
    tmp_path: Path, start: Callable[[str], int]
) -> None:
    """A reader that hangs is killed at the end of the budget; the file keeps what /proc knows."""
    slow = tmp_path / "py-spy"
    slow.write_text("#!/bin/sh\nexec sleep 1000\n")
    slow.chmod(0o755)
    pid = start(SLEEPING)
    found = stacks.dump({4: pid}, folder=tmp_path, budget_seconds=0.1, program=str(slow))
    said = (tmp_path / "rank4.txt").read_text()
    assert found == 0
    assert said.endswith("no stack within 0.1 s\n")
    assert f"rank 4, pid {pid}, state " in said
    marks = [line for line in children_of(os.getpid()) if "sleep 1000" in line]
    assert marks == []


def children_of(pid: int) -> list[str]:
    """Return the command lines of a process's children that are no zombies."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            if is_alive(int(child)):
                line = Path(f"/proc/{child}/cmdline").read_bytes()
                found.append(line.replace(b"\0", b" ").decode())
    return found


def test_stopped_ranks_come_first_when_time_is_short(
    tmp_path: Path, start: Callable[[str], int]
) -> None:
    """With more ranks than time, the one that was stopped is read, and what others were not is said."""
    spy = tmp_path / "py-spy"
    spy.write_text("#!/bin/sh\necho Thread of $3\nexec sleep 1000\n")
    spy.chmod(0o755)
    pids = {rank: start(SLEEPING) for rank in range(len(os.sched_getaffinity(0)) + 1)}
    last = max(pids)
    stop(pids[last])
    stacks.dump(pids, folder=tmp_path, budget_seconds=2.0, program=str(spy))
    said = {rank: (tmp_path / f"rank{rank}.txt").read_text() for rank in pids}
    assert f"Thread of {pids[last]}" in said[last]
    assert said[last - 1].endswith("no stack within 2 s: others were read first\n")


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (None, "no stack: py-spy is not installed"),
        ("/nonexistent/py-spy", "no stack: cannot start /nonexistent/py-spy"),
        ("#!/bin/sh\necho 'Error: Permission denied (os error 13)' >&2\nexit 1\n", "SYS_PTRACE"),
        ("#!/bin/sh\nexit 3\n", "no stack: py-spy ended with 3"),
    ],
)
def test_why_there_is_no_stack_is_in_the_file(
    tmp_path: Path, start: Callable[[str], int], program: str | None, reason: str
) -> None:
    """Missing, unstartable, forbidden or failing: nothing raises, and the reader of the file learns why."""
    if program is not None and program.startswith("#!"):
        path = tmp_path / "spy"
        path.write_text(program)
        path.chmod(0o755)
        program = str(path)
    found = stacks.dump(
        {0: start(SLEEPING)}, folder=tmp_path, budget_seconds=BUDGET_SECONDS, program=program
    )
    assert found == 0
    assert reason in (tmp_path / "rank0.txt").read_text()


def test_a_rank_that_is_gone_already_is_told_as_such(tmp_path: Path) -> None:
    """A rank that ended before it could be looked at has a file that says so."""
    child = subprocess.Popen([sys.executable, "-S", "-c", "pass"])
    child.wait()
    program = stacks.find_program()
    assert stacks.dump({0: child.pid}, folder=tmp_path, budget_seconds=1.0, program=program) == 0
    assert "the process is gone" in (tmp_path / "rank0.txt").read_text()


def test_a_file_is_bounded(tmp_path: Path, start: Callable[[str], int]) -> None:
    """However much a reader writes, the file keeps its first part."""
    spy = tmp_path / "py-spy"
    spy.write_text("#!/bin/sh\necho Thread\nhead -c 2000000 /dev/zero\n")
    spy.chmod(0o755)
    pid = start(SLEEPING)
    stacks.dump({0: pid}, folder=tmp_path, budget_seconds=BUDGET_SECONDS, program=str(spy))
    assert (tmp_path / "rank0.txt").stat().st_size < stacks.MAX_FILE_BYTES + 100
