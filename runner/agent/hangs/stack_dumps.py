"""Stacks: where ranks that hang stand, written down before they are killed. Never waits longer than it was given.

One file a rank, `stacks/rank<N>.txt` in the attempt's folder: what /proc knows of its threads, then what py-spy (a child of
its own for each rank) reads of its Python frames. What is not known in time, or may not be read, says why.

Ranks that are not stopped yet are stopped (SIGSTOP), since they are about to be killed: a picture of a process that stands
still is whole, and ranks that wait by spinning leave the processors to the readers. Those that were stopped come first; at
any time as many are read as there are processors, so that when time runs out some stacks are there rather than none.
py-spy itself is told to pause nothing: it would wait for ever for a process that cannot be paused. It takes 8 ms of CPU
for a rank with torch (measured).

A folder may answer after the ranks have been killed, and their pids are others' by then: each is told by its start, too.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from runner.keeper.procfs import Process, read_process, send_signal

FOLDER = "stacks"
# of one rank's file; chosen
MAX_FILE_BYTES = 256 * 1024
# of one rank that are looked up in /proc; chosen
MAX_THREADS = 64
# of what py-spy says when it cannot; chosen
MAX_REASON_LINES = 6
# for a py-spy that was killed to be gone; one stuck in the kernel is left; chosen
REAP_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """A py-spy at work on one rank. `begins_at`: what the file held before it wrote."""

    child: subprocess.Popen[bytes]
    path: Path
    begins_at: int


def find_program() -> str | None:
    """Return py-spy: the one beside our interpreter, else on PATH."""
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if os.access(beside, os.X_OK) else shutil.which("py-spy")


def dump(
    pids: Mapping[int, int], *, folder: Path, budget_seconds: float, program: str | None
) -> int:
    """Write the stacks of ranks (rank -> pid) into `folder`; return of how many there is one. The ranks are left stopped.

    Blocks for `budget_seconds` and REAP_SECONDS at most, unless the folder does. Raises OSError when nothing can be written,
    or not in time.
    """
    deadline = time.monotonic() + budget_seconds
    # before anything that may take long
    ranks = {rank: read_process(pid) for rank, pid in pids.items()}
    folder.mkdir(parents=True, exist_ok=True)
    order = sorted(pids, key=lambda rank: (_state(ranks[rank]) != "T", rank))
    paths = {rank: folder / f"rank{rank}.txt" for rank in order}
    for rank in order:
        paths[rank].write_text(_head(rank, pids[rank], ranks[rank]))
    if time.monotonic() >= deadline:
        for path in paths.values():
            _append(path, f"no stack: the folder did not answer within {budget_seconds:g} s")
        raise TimeoutError(f"{folder} did not answer within {budget_seconds:g} s")
    send_signal([seen.pid for seen in ranks.values() if seen and _is_still(seen)], signal.SIGSTOP)
    readings = _Readings(program, deadline)
    for rank in order:
        seen = ranks[rank]
        if seen is None:
            _append(paths[rank], _IS_GONE)
        elif program is None:
            _append(paths[rank], f"no stack: {_NO_PROGRAM}")
        elif not readings.begin(seen, paths[rank]):
            _append(paths[rank], f"no stack within {budget_seconds:g} s: others were read first")
    late = readings.finish()
    return sum(_conclude(reader, reader in late, budget_seconds) for reader in readings.readers)


_IS_GONE = "no stack: the process is gone"
_NO_PROGRAM = "py-spy is not installed where Stoker is (pip install py-spy)"


class _Readings:
    """Runs readers, as many at a time as there are processors, until the deadline (monotonic seconds)."""

    def __init__(self, program: str | None, deadline: float) -> None:
        self.readers: list[_Reader] = []
        self._program = program
        self._deadline = deadline
        # by descriptor of the process
        self._running: dict[int, _Reader] = {}
        self._poll = select.poll()

    def begin(self, rank: Process, path: Path) -> bool:
        """Start a reader once there is room for it; False when time ran out before."""
        while len(self._running) >= len(os.sched_getaffinity(0)):
            if not self._wait():
                return False
        with path.open("ab") as file:
            begins_at = file.tell()
            if time.monotonic() >= self._deadline:
                return False
            if not _is_still(rank):
                file.write(f"{_IS_GONE}\n".encode())
                return True
            try:
                child = self._start(interpreter(rank.pid), file)
            except OSError as error:
                file.write(f"no stack: cannot start {self._program}: {error}\n".encode())
                return True
        reader = _Reader(child=child, path=path, begins_at=begins_at)
        self.readers.append(reader)
        descriptor = os.pidfd_open(child.pid)
        self._running[descriptor] = reader
        self._poll.register(descriptor, select.POLLIN)
        return True

    def _start(self, pid: int, file: BinaryIO) -> subprocess.Popen[bytes]:
        # Nothing of our environment: the keeper takes what carries an attempt's marks for a stray of that attempt.
        return subprocess.Popen(
            [str(self._program), "dump", "--pid", str(pid), "--nonblocking"],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env={"PATH": os.defpath, "RUST_BACKTRACE": "0"},
            start_new_session=True,
        )

    def finish(self) -> list[_Reader]:
        """Wait for all of them; return those that had to be killed at the deadline."""
        while self._running and self._wait():
            pass
        late = list(self._running.values())
        for reader in late:
            reader.child.kill()
        for descriptor in self._running:
            os.close(descriptor)
        until = time.monotonic() + REAP_SECONDS
        for reader in late:
            try:
                reader.child.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                # stuck in the kernel as its rank is; reaped when it comes back
                pass
        return late

    def _wait(self) -> bool:
        """Wait for one to end; False at the deadline."""
        left_seconds = self._deadline - time.monotonic()
        ended = self._poll.poll(left_seconds * 1000) if left_seconds > 0 else []
        for descriptor, _ in ended:
            self._poll.unregister(descriptor)
            self._running.pop(descriptor).child.wait()
            os.close(descriptor)
        return bool(ended)


def _conclude(reader: _Reader, is_late: bool, budget_seconds: float) -> bool:
    """Bound the file and say in it why there is no stack, if so; return whether there is one."""
    if reader.path.stat().st_size > MAX_FILE_BYTES:
        os.truncate(reader.path, MAX_FILE_BYTES)
        _append(reader.path, f"\n(cut at {MAX_FILE_BYTES} bytes)")
    if is_late:
        _append(reader.path, f"no stack within {budget_seconds:g} s")
        return False
    with reader.path.open("rb") as file:
        file.seek(reader.begins_at)
        said = file.read(MAX_FILE_BYTES).decode(errors="replace")
    if reader.child.returncode == 0 and "Thread" in said:
        return True
    os.truncate(reader.path, reader.begins_at)
    reason = "\n".join(said.strip().splitlines()[:MAX_REASON_LINES])
    hint = ""
    if "ermission" in said or "perm" in said.lower():
        hint = "\n(reading other processes is not allowed: kernel.yama.ptrace_scope, or SYS_PTRACE in a container)"
    _append(reader.path, f"no stack: py-spy ended with {reader.child.returncode}: {reason}{hint}")
    return False


def _append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(f"{text}\n")


def interpreter(pid: int) -> int:
    """Return the Python process of a rank: itself, or what a shell script that started it runs; itself if none is found."""
    found = [pid]
    # grows as we go down
    for candidate in found:
        try:
            if "python" in os.path.basename(os.readlink(f"/proc/{candidate}/exe")):
                return candidate
        except OSError:
            continue
        if len(found) < MAX_THREADS:
            children = _text(Path(f"/proc/{candidate}/task/{candidate}/children"))
            found += [int(child) for child in children.split()]
    return pid


# ---- what /proc knows -----------------------------------------------------------------------------------------------


def _is_still(seen: Process) -> bool:
    """Whether a pid still belongs to the process that was seen."""
    now = read_process(seen.pid)
    return now is not None and now.start_ticks == seen.start_ticks


def _state(seen: Process | None) -> str:
    return seen.state if seen is not None else "gone"


def _head(rank: int, pid: int, seen: Process | None) -> str:
    """Describe a rank's threads: state, where in the kernel they wait, and the kernel's stack where we may read it."""
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    lines = [f"rank {rank}, pid {pid}, state {_state(seen)}, {when}"]
    task = Path(f"/proc/{pid}/task")
    threads: list[int] = []
    if seen is not None and _is_still(seen):
        try:
            found = map(int, os.listdir(task))
            threads = sorted(found, key=lambda tid: (tid != pid, tid))
        except OSError:
            # it ends just now
            pass
    for tid in threads[:MAX_THREADS]:
        stat = _text(task / str(tid) / "stat")
        name = stat[stat.find("(") + 1 : stat.rfind(")")]
        letter = stat[stat.rfind(")") + 2 :][:1]
        waits_in = _text(task / str(tid) / "wchan").strip().strip("0")
        lines.append(f"  thread {tid} {name!r} {letter}" + (f" in {waits_in}" if waits_in else ""))
        if tid == pid or letter == "D":
            stack = _text(task / str(tid) / "stack").strip()
            lines += [f"    {line}" for line in stack.splitlines()]
    if len(threads) > MAX_THREADS:
        lines.append(f"  and {len(threads) - MAX_THREADS} more threads")
    return "\n".join(lines) + "\n\n"


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
