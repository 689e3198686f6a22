"""Stack dumps: writes the stacks of hanging ranks before they are killed, within a time budget.

One file a rank, `stacks/rank<N>.txt` in the attempt's folder: its threads from /proc, then its
Python frames from py-spy, one child for each rank. The file states why a stack is missing: too
late, or not allowed.

Ranks are stopped first (SIGSTOP), since they are about to be killed: the dump of a stopped process
is consistent, and ranks that spin leave the processors to the readers. Ranks that were stopped
already come first. As many ranks are read at a time as there are processors, so that a short budget
gives some stacks rather than none. py-spy must not pause the process itself: it would wait for ever
for one that cannot be paused. It takes 8 ms of CPU for a rank with torch (measured).

A slow folder may answer after the ranks are gone and their pids reused, so start times are
compared.
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
# Of one rank's file; chosen.
MAX_FILE_BYTES = 256 * 1024
# Of one rank that are read from /proc; chosen.
MAX_THREADS = 64
# Of py-spy's error; chosen.
MAX_REASON_LINES = 6
# For a killed py-spy to end; one stuck in the kernel is left behind; chosen.
REAP_SECONDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reader:
    """A running py-spy of one rank. `begins_at`: the file's size before its output."""

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
    """Write the stacks of ranks (rank -> pid) into `folder`; return how many have one. The ranks stay stopped.

    Blocks for `budget_seconds` and REAP_SECONDS at most, unless the folder does. Raises OSError
    when the files cannot be written in time.
    """
    deadline = time.monotonic() + budget_seconds
    # Before any slow call.
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
    running = [rank.pid for rank in ranks.values() if rank and _is_same_process(rank)]
    send_signal(running, signal.SIGSTOP)
    readers = _Readers(program, deadline)
    for rank in order:
        process = ranks[rank]
        if process is None:
            _append(paths[rank], _IS_GONE)
        elif program is None:
            _append(paths[rank], f"no stack: {_NO_PROGRAM}")
        elif not readers.begin(process, paths[rank]):
            _append(paths[rank], f"no stack within {budget_seconds:g} s: others were read first")
    late = readers.finish()
    return sum(_conclude(reader, reader in late, budget_seconds) for reader in readers.readers)


_IS_GONE = "no stack: the process is gone"
_NO_PROGRAM = "py-spy is not installed where Stoker is (pip install py-spy)"


class _Readers:
    """Runs py-spy for each rank, as many at a time as there are processors, until the deadline (monotonic seconds)."""

    def __init__(self, program: str | None, deadline: float) -> None:
        self.readers: list[_Reader] = []
        self._program = program
        self._deadline = deadline
        # By pidfd.
        self._running: dict[int, _Reader] = {}
        self._poll = select.poll()

    def begin(self, rank: Process, path: Path) -> bool:
        """Start a reader once a processor is free; False: the deadline passed before."""
        while len(self._running) >= len(os.sched_getaffinity(0)):
            if not self._wait():
                return False
        with path.open("ab") as file:
            begins_at = file.tell()
            if time.monotonic() >= self._deadline:
                return False
            if not _is_same_process(rank):
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
        # An environment of its own: the keeper kills processes with an attempt's variables.
        return subprocess.Popen(
            [str(self._program), "dump", "--pid", str(pid), "--nonblocking"],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env={"PATH": os.defpath, "RUST_BACKTRACE": "0"},
            start_new_session=True,
        )

    def finish(self) -> list[_Reader]:
        """Wait for all readers; return those killed at the deadline."""
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
                # It is stuck in the kernel, as its rank is.
                pass
        return late

    def _wait(self) -> bool:
        """Wait for a reader to end; False at the deadline."""
        left_seconds = self._deadline - time.monotonic()
        ended = self._poll.poll(left_seconds * 1000) if left_seconds > 0 else []
        for descriptor, _ in ended:
            self._poll.unregister(descriptor)
            self._running.pop(descriptor).child.wait()
            os.close(descriptor)
        return bool(ended)


def _conclude(reader: _Reader, is_late: bool, budget_seconds: float) -> bool:
    """Bound the file, and write into it why there is no stack; return whether there is one."""
    if reader.path.stat().st_size > MAX_FILE_BYTES:
        os.truncate(reader.path, MAX_FILE_BYTES)
        _append(reader.path, f"\n(cut at {MAX_FILE_BYTES} bytes)")
    if is_late:
        _append(reader.path, f"no stack within {budget_seconds:g} s")
        return False
    with reader.path.open("rb") as file:
        file.seek(reader.begins_at)
        output = file.read(MAX_FILE_BYTES).decode(errors="replace")
    if reader.child.returncode == 0 and "Thread" in output:
        return True
    os.truncate(reader.path, reader.begins_at)
    reason = "\n".join(output.strip().splitlines()[:MAX_REASON_LINES])
    hint = ""
    if "perm" in output.lower():
        hint = (
            "\n(reading other processes is not allowed: set kernel.yama.ptrace_scope to 0, "
            "or give a container SYS_PTRACE)"
        )
    _append(reader.path, f"no stack: py-spy ended with {reader.child.returncode}: {reason}{hint}")
    return False


def _append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(f"{text}\n")


def interpreter(pid: int) -> int:
    """Return the Python process of a rank: itself, or a descendant of the shell script that it is; itself if there is none."""
    candidates = [pid]
    # The list grows with the children of its items.
    for candidate in candidates:
        try:
            if "python" in os.path.basename(os.readlink(f"/proc/{candidate}/exe")):
                return candidate
        except OSError:
            continue
        if len(candidates) < MAX_THREADS:
            children = _text(Path(f"/proc/{candidate}/task/{candidate}/children"))
            candidates += [int(child) for child in children.split()]
    return pid


def _is_same_process(process: Process) -> bool:
    """Whether the pid still belongs to this process."""
    now = read_process(process.pid)
    return now is not None and now.start_ticks == process.start_ticks


def _state(process: Process | None) -> str:
    return process.state if process is not None else "gone"


def _head(rank: int, pid: int, process: Process | None) -> str:
    """Describe a rank's threads: state, kernel function they wait in, and the kernel's stack where it may be read."""
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    lines = [f"rank {rank}, pid {pid}, state {_state(process)}, {when}"]
    task = Path(f"/proc/{pid}/task")
    threads: list[int] = []
    if process is not None and _is_same_process(process):
        try:
            threads = sorted(map(int, os.listdir(task)), key=lambda tid: (tid != pid, tid))
        except OSError:
            # It ends just now.
            pass
    for tid in threads[:MAX_THREADS]:
        stat = _text(task / str(tid) / "stat")
        name = stat[stat.find("(") + 1 : stat.rfind(")")]
        letter = stat[stat.rfind(")") + 2 :][:1]
        wchan = _text(task / str(tid) / "wchan").strip().strip("0")
        lines.append(f"  thread {tid} {name!r} {letter}" + (f" in {wchan}" if wchan else ""))
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
