"""Processes as /proc shows them, and signals to them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from typing import NamedTuple


class Process(NamedTuple):
    """One line of /proc/PID/stat. `start_ticks` since boot: with the pid it names one process for ever."""

    pid: int
    parent: int
    state: str
    start_ticks: int


def read_process(pid: int, proc: str = "/proc") -> Process | None:
    """Read one process; None when there is none."""
    text = read_bytes(f"{proc}/{pid}/stat")
    if not text:
        return None
    # The name may hold blanks and brackets; what follows the last bracket is numbers.
    fields = text[text.rindex(b")") + 2 :].split()
    return Process(pid, int(fields[1]), fields[0].decode(), int(fields[19]))


def read_processes(proc: str = "/proc") -> dict[int, Process]:
    """Read all processes by pid, zombies too."""
    pids = [int(name) for name in os.listdir(proc) if name.isdecimal()]
    processes = [read_process(pid, proc) for pid in pids]
    return {process.pid: process for process in processes if process is not None}


def read_environment(pid: int, proc: str = "/proc") -> dict[str, str]:
    """Read the environment a process was started with; empty when it is gone, a zombie, or another user's."""
    data = read_bytes(f"{proc}/{pid}/environ")
    pairs = (item.partition(b"=") for item in data.split(b"\0") if item)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def rank_of(environment: dict[str, str]) -> int:
    """Return the rank that a process with this environment belongs to; -1 when the environment names none."""
    number = environment.get("RANK", "")
    return int(number) if number.isdecimal() else -1


def send_signal(pids: Iterable[int], number: int) -> None:
    """Send a signal to processes, of which some may be gone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def kill_group(leader: int) -> None:
    """Kill a child and its process group, both its own until it is reaped."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        # Between fork and exec it leads no group yet.
        send_signal([leader], signal.SIGKILL)


def read_bytes(path: str) -> bytes:
    """Read a file of /proc; empty when its process is gone.

    A tenth of what pathlib and a buffered file cost: agents do this every second, and a kill pass for every process.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        chunks = []
        while chunk := os.read(descriptor, 65536):
            chunks.append(chunk)
        return b"".join(chunks)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
