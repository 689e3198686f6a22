"""Before hanging ranks are killed the agent writes down their stacks, within a time limit."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from runner.agent.hangs import stack_dumps
from tests.agent.node import state_of, wait_until

pytestmark = pytest.mark.e2e

SLEEPING = (
    "def wait_for_ever():\n    import time; print(flush=True); time.sleep(1000)\nwait_for_ever()"
)
SPINNING = "def turn_and_turn():\n    print(flush=True)\n    while True: pass\nturn_and_turn()"
# far above what it takes, for a loaded machine
BUDGET_SECONDS = 20.0


@pytest.fixture
def start() -> Iterator[Callable[[str], int]]:
    """Start Python processes that have printed a line; end them afterwards."""
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


def test_stopped_spinning_and_sleeping_ranks_each_show_their_stack(
    tmp_path: Path, start: Callable[[str], int]
) -> None:
    """Each file names the process state, threads and the Python function; the ranks stay stopped from then on."""
    pids = {0: start(SLEEPING), 1: start(SPINNING), 2: start(SLEEPING)}
    stop(pids[2])
    folder = tmp_path / "stacks"
    began = time.monotonic()
    found = stack_dumps.dump(
        pids, folder=folder, budget_seconds=BUDGET_SECONDS, program=stack_dumps.find_program()
    )
    print(f"3 ranks: {time.monotonic() - began:.3f} s")
    output = {rank: (folder / f"rank{rank}.txt").read_text() for rank in pids}
    assert found == 3, output
    assert "wait_for_ever" in output[0]
    assert "turn_and_turn" in output[1]
    assert "wait_for_ever" in output[2]
    assert f"rank 2, pid {pids[2]}, state T" in output[2]
    assert f"thread {pids[1]} " in output[1]
    assert f"rank 1, pid {pids[1]}, state R" in output[1]
    assert [state_of(pid) for pid in pids.values()] == ["T", "T", "T"]


def test_the_dump_reports_and_skips_what_takes_too_long(
    tmp_path: Path, start: Callable[[str], int]
) -> None:
    """A reader that hangs is killed at the end of the budget; the file keeps what /proc knows."""
    slow = tmp_path / "py-spy"
    slow.write_text("#!/bin/sh\nexec sleep 1000\n")
    slow.chmod(0o755)
    pid = start(SLEEPING)
    found = stack_dumps.dump({4: pid}, folder=tmp_path, budget_seconds=0.1, program=str(slow))
    output = (tmp_path / "rank4.txt").read_text()
    assert found == 0
    assert output.endswith("no stack within 0.1 s\n")
    assert f"rank 4, pid {pid}, state " in output
    marks = [line for line in children_of(os.getpid()) if "sleep 1000" in line]
    assert marks == []


def children_of(pid: int) -> list[str]:
    """Return the command lines of a process's children that are no zombies."""
    found = []
    for child in psutil.Process(pid).children():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            found.append(" ".join(child.cmdline()))
    return found


def test_stopped_ranks_come_first_when_time_is_short(
    tmp_path: Path, start: Callable[[str], int]
) -> None:
    """With more ranks than time, the dump reads the stopped one and reports which others it did not read."""
    spy = tmp_path / "py-spy"
    spy.write_text("#!/bin/sh\necho Thread of $3\nexec sleep 1000\n")
    spy.chmod(0o755)
    pids = {rank: start(SLEEPING) for rank in range(len(os.sched_getaffinity(0)) + 1)}
    last = max(pids)
    stop(pids[last])
    stack_dumps.dump(pids, folder=tmp_path, budget_seconds=2.0, program=str(spy))
    output = {rank: (tmp_path / f"rank{rank}.txt").read_text() for rank in pids}
    assert f"Thread of {pids[last]}" in output[last]
    assert output[last - 1].endswith("no stack within 2 s: others were read first\n")


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
    found = stack_dumps.dump(
        {0: start(SLEEPING)}, folder=tmp_path, budget_seconds=BUDGET_SECONDS, program=program
    )
    assert found == 0
    assert reason in (tmp_path / "rank0.txt").read_text()


def test_the_dump_reports_a_rank_that_has_ended(tmp_path: Path) -> None:
    """A rank that ended before the dump has a file that reports so."""
    child = subprocess.Popen([sys.executable, "-S", "-c", "pass"])
    child.wait()
    program = stack_dumps.find_program()
    assert (
        stack_dumps.dump({0: child.pid}, folder=tmp_path, budget_seconds=1.0, program=program) == 0
    )
    assert "the process is gone" in (tmp_path / "rank0.txt").read_text()


def test_a_file_is_bounded(tmp_path: Path, start: Callable[[str], int]) -> None:
    """However much a reader writes, the file keeps its first part."""
    spy = tmp_path / "py-spy"
    spy.write_text("#!/bin/sh\necho Thread\nhead -c 2000000 /dev/zero\n")
    spy.chmod(0o755)
    pid = start(SLEEPING)
    stack_dumps.dump({0: pid}, folder=tmp_path, budget_seconds=BUDGET_SECONDS, program=str(spy))
    assert (tmp_path / "rank0.txt").stat().st_size < stack_dumps.MAX_FILE_BYTES + 100


class Hanging:
    """A dump whose folder hangs at rank 1: its file is a pipe that blocks writing until the test opens it.

    Ranks 0 and 1 are gone already; `pids` are those of ranks 2 and up.
    """

    def __init__(self, folder: Path, pids: list[int], budget_seconds: float) -> None:
        self.found = -1
        self.error = ""
        self._pipe = folder / "rank1.txt"
        os.mkfifo(self._pipe)
        gone = subprocess.Popen(["true"])
        gone.wait()
        ranks = dict(enumerate([gone.pid, gone.pid, *pids]))
        spy = folder / "py-spy"
        spy.write_text("#!/bin/sh\necho Thread of $3\n")
        spy.chmod(0o755)

        def dump() -> None:
            try:
                self.found = stack_dumps.dump(
                    ranks, folder=folder, budget_seconds=budget_seconds, program=str(spy)
                )
            except OSError as error:
                self.error = str(error)

        self._dumping = threading.Thread(target=dump)
        self._dumping.start()
        wait_until((folder / "rank0.txt").exists, "the dump in its folder")

    def go_on(self) -> None:
        """Let the folder answer, and wait for the end of the dump."""
        descriptor = os.open(self._pipe, os.O_RDWR | os.O_NONBLOCK)
        self._dumping.join()
        os.close(descriptor)


def test_a_folder_that_answers_too_late_stops_no_process(
    tmp_path: Path, start: Callable[[str], int]
) -> None:
    """Past its time a dump stops nothing and reads nothing, since its ranks may be dead; it reports why it ends."""
    pid = start(SLEEPING)
    wait_until(lambda: state_of(pid) == "S", "rank asleep")
    hanging = Hanging(tmp_path, [pid], 0.05)
    time.sleep(0.1)
    hanging.go_on()
    reason = f"{tmp_path} did not answer within 0.05 s"
    assert (hanging.found, hanging.error) == (-1, reason)
    output = (tmp_path / "rank2.txt").read_text()
    assert f"rank 2, pid {pid}, state S" in output
    assert output.endswith("no stack: the folder did not answer within 0.05 s\n")
    assert state_of(pid) == "S"


def test_the_dump_spares_another_process_with_the_pid_of_a_rank(
    tmp_path: Path, start: Callable[[str], int]
) -> None:
    """A rank has ended and another process has its pid: the dump neither stops nor reads that process."""
    ended = subprocess.Popen(["sleep", "1000"])
    stays = start(SLEEPING)
    hanging = Hanging(tmp_path, [ended.pid, stays], BUDGET_SECONDS)
    ended.kill()
    ended.wait()
    pid_holder = take_pid(ended.pid)
    hanging.go_on()
    output = {rank: (tmp_path / f"rank{rank}.txt").read_text() for rank in (2, 3)}
    state = state_of(ended.pid)
    if pid_holder is not None:
        pid_holder.kill()
        pid_holder.wait()
    assert (hanging.found, hanging.error) == (1, "")
    assert output[2].endswith("no stack: the process is gone\n")
    assert "thread" not in output[2]
    assert f"Thread of {stays}" in output[3]
    assert state_of(stays) == "T"
    if pid_holder is None:
        pytest.skip("pids cannot be chosen here, so that it was unused")
    assert state in ("S", "R")


def take_pid(pid: int) -> subprocess.Popen[bytes] | None:
    """Start a process that has a pid which just became free; None where that does not succeed."""
    # others start processes, too
    for _ in range(50):
        try:
            Path("/proc/sys/kernel/ns_last_pid").write_text(str(pid - 1))
        except OSError:
            return None
        child = subprocess.Popen(["sleep", "1000"])
        if child.pid == pid:
            return child
        child.kill()
        child.wait()
    return None
