"""Stack dumps: writes the stacks of hanging ranks before they are killed, within a time budget.

One file a rank, `stacks/rank<N>.txt` in the attempt's folder: its threads from /proc, then its
Python frames from py-spy, or why there are none.

Ranks are stopped first (SIGSTOP), since they are about to be killed: the dump of a stopped process is consistent, and ranks that
spin leave the processors to the readers. Ranks that were stopped already come first. As many ranks are read at a time as there
are processors, so that a short budget gives some stacks rather than none. py-spy must not pause the process itself: it would wait
for ever for one that cannot be paused. It takes 8 ms of CPU for a rank with torch (measured).

A slow folder may answer after the ranks are gone and their pids reused: start times are compared.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import BinaryIO

from runner.agent.event_loop import is_ready
from runner.keeper.procfs import Process, read_bytes, read_process, send_signal

FOLDER = "stacks"
# Chosen, not measured. The first three are of one rank.
MAX_FILE_BYTES = 256 * 1024
MAX_THREADS = 64
MAX_REASON_LINES = 6
# Chosen, not measured. A killed reader that is stuck in the kernel is left behind.
REAP_SECONDS = 0.05


_IS_GONE = "no stack: the process is gone"
_NO_PROGRAM = "no stack: py-spy is not installed where Stoker is (pip install py-spy)"
_NOT_ALLOWED = (
    "\n(reading other processes is not allowed: set kernel.yama.ptrace_scope to 0, "
    "or give a container SYS_PTRACE)"
)


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
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as readers:
        has_stack = readers.map(
            partial(_dump_rank, program=program, deadline=deadline, budget_seconds=budget_seconds),
            [ranks[rank] for rank in order],
            paths.values(),
        )
        return sum(has_stack)


def _dump_rank(
    process: Process | None,
    path: Path,
    *,
    program: str | None,
    deadline: float,
    budget_seconds: float,
) -> bool:
    """Append a rank's Python frames to its file, or why there are none; return whether there are."""
    if process is None or program is None:
        _append(path, _IS_GONE if process is None else _NO_PROGRAM)
        return False
    with path.open("ab") as file:
        begins_at = file.tell()
        reason, child = "", None
        if time.monotonic() >= deadline:
            reason = f"no stack within {budget_seconds:g} s: others were read first"
        elif not _is_same_process(process):
            reason = _IS_GONE
        else:
            try:
                child = _start(program, interpreter(process.pid), file)
            except OSError as error:
                reason = f"no stack: cannot start {program}: {error}"
    if child is not None:
        has_ended = _wait(child, deadline)
        if path.stat().st_size > MAX_FILE_BYTES:
            os.truncate(path, MAX_FILE_BYTES)
            _append(path, f"\n(cut at {MAX_FILE_BYTES} bytes)")
        if has_ended:
            reason = _failure(child, path, begins_at)
        else:
            reason = f"no stack within {budget_seconds:g} s"
    if reason:
        _append(path, reason)
    return not reason


def _start(program: str, pid: int, file: BinaryIO) -> "subprocess.Popen[bytes]":
    # An environment of its own: the keeper kills processes with an attempt's variables.
    return subprocess.Popen(
        [program, "dump", "--pid", str(pid), "--nonblocking"],
        stdin=subprocess.DEVNULL,
        stdout=file,
        stderr=file,
        env={"PATH": os.defpath, "RUST_BACKTRACE": "0"},
        start_new_session=True,
    )


def _wait(child: "subprocess.Popen[bytes]", deadline: float) -> bool:
    """Wait for a py-spy to end; False: it was killed at the deadline."""
    descriptor = os.pidfd_open(child.pid)
    has_ended = is_ready(descriptor, max(0.0, deadline - time.monotonic()))
    os.close(descriptor)
    if not has_ended:
        child.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(REAP_SECONDS)
    return has_ended


def _failure(child: "subprocess.Popen[bytes]", path: Path, begins_at: int) -> str:
    """Return why a py-spy that ended has written no stack, and remove what it wrote instead; "" if it has."""
    with path.open("rb") as file:
        file.seek(begins_at)
        output = file.read(MAX_FILE_BYTES).decode(errors="replace")
    if child.returncode == 0 and "Thread" in output:
        return ""
    os.truncate(path, begins_at)
    lines = "\n".join(output.strip().splitlines()[:MAX_REASON_LINES])
    hint = _NOT_ALLOWED if "perm" in output.lower() else ""
    return f"no stack: py-spy ended with {child.returncode}: {lines}{hint}"


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
            children = _text(f"/proc/{candidate}/task/{candidate}/children")
            candidates += [int(child) for child in children.split()]
    return pid


def _is_same_process(process: Process) -> bool:
    now = read_process(process.pid)
    return now is not None and now.start_ticks == process.start_ticks


def _state(process: Process | None) -> str:
    return process.state if process is not None else "gone"


def _head(rank: int, pid: int, process: Process | None) -> str:
    """Describe a rank's threads: state, kernel function they wait in, and the kernel's stack where it may be read."""
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    lines = [f"rank {rank}, pid {pid}, state {_state(process)}, {when}"]
    task = f"/proc/{pid}/task"
    threads: list[int] = []
    if process is not None and _is_same_process(process):
        # It may end just now.
        with contextlib.suppress(OSError):
            threads = sorted(map(int, os.listdir(task)), key=lambda tid: (tid != pid, tid))
    for tid in threads[:MAX_THREADS]:
        stat = _text(f"{task}/{tid}/stat")
        name = stat[stat.find("(") + 1 : stat.rfind(")")]
        letter = stat[stat.rfind(")") + 2 :][:1]
        wchan = _text(f"{task}/{tid}/wchan").strip().strip("0")
        lines.append(f"  thread {tid} {name!r} {letter}" + (f" in {wchan}" if wchan else ""))
        if tid == pid or letter == "D":
            stack = _text(f"{task}/{tid}/stack").strip()
            lines += [f"    {line}" for line in stack.splitlines()]
    if len(threads) > MAX_THREADS:
        lines.append(f"  and {len(threads) - MAX_THREADS} more threads")
    return "\n".join(lines) + "\n\n"


def _text(path: str) -> str:
    return read_bytes(path).decode(errors="replace")
