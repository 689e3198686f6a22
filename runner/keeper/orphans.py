"""Orphans: processes that ranks left behind. They are found by their environment or parent, and killed.

Resource trackers are processes that remove the shared memory of others once those are gone, and then end. Killed, one would
leave for ever in /dev/shm what its program had there, so they are killed last.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable

from runner.keeper.procfs import Process, read_bytes, read_environment, read_processes, send_signal
from runner.keeper.protocol import KEEPER_VARIABLE

# pid -> environment
Orphans = dict[int, dict[str, str]]

# Between kill passes; doubles up to the next. Both chosen.
FIRST_PAUSE_SECONDS = 0.005
LAST_PAUSE_SECONDS = 0.05
# How long trackers are spared, in times the time for a kill, and at most; both chosen. The ratio is below 2, after which a
# supervisor probes the node. Measured: a tracker needs 6 ms to end, one that is only starting 50 ms; on 2 cores with a load of 11,
# 50 and 190 ms.
_SPARED_RATIO = 1.5
_MAX_SPARED_SECONDS = 5.0
# Twice what torch_shm_manager waits for another client before it ends.
_MANAGER_SECONDS = 4.0
# `multiprocessing` of Python 3.9 to 3.13 and joblib 1.6 start theirs so.
_TRACKER = re.compile(
    rb"from (multiprocessing|[\w.]+\.backend)\.resource_tracker import main; ?main\("
)
_MANAGER = b"torch_shm_manager"
_SHARED_FOLDER = "/dev/shm"  # noqa: S108 - it is only read


def find_orphans(variables: dict[str, str], *, keeper: int = 0) -> Orphans:
    """Find living processes whose environment has these variables, or that descend from `keeper`.

    Processes under another living keeper are not ours, whatever they carry: two clusters may share a name.
    """
    processes = read_processes()
    environments = {pid: read_environment(pid) for pid in processes}
    keepers = {pid for pid, environment in environments.items() if KEEPER_VARIABLE in environment}
    keepers.add(keeper)
    orphans = {}
    for pid, process in processes.items():
        if process.state in "ZX" or pid in keepers or pid == os.getpid():
            continue
        ancestor, environment = _ancestor_in(keepers, processes, pid), environments[pid]
        is_below = bool(keeper) and ancestor == keeper
        matches = variables and variables.items() <= environment.items()
        if is_below or (matches and ancestor is None):
            orphans[pid] = environment
    return orphans


def _ancestor_in(pids: set[int], processes: dict[int, Process], pid: int) -> int | None:
    # Bounded: parents read at different moments might form a ring.
    for _ in range(len(processes)):
        process = processes.get(pid)
        if process is None or process.parent in pids:
            return process.parent if process and process.parent else None
        pid = process.parent
    return None


def is_python_tracker(pid: int) -> bool:
    """Whether a process is a resource tracker of `multiprocessing` or joblib: it ends as soon as its clients are gone."""
    words = read_bytes(f"/proc/{pid}/cmdline").split(b"\0")
    return b"-c" in words and any(_TRACKER.match(word) for word in words)


def is_torch_manager(pid: int) -> bool:
    """Whether a process removes torch's shared memory: it ends two seconds after the last client."""
    command = read_bytes(f"/proc/{pid}/cmdline").partition(b"\0")[0]
    return command.rpartition(b"/")[2] == _MANAGER


def is_resource_tracker(pid: int) -> bool:
    """Whether a process removes shared memory of others and ends by itself."""
    return is_python_tracker(pid) or is_torch_manager(pid)


class OrphanReaper:
    """Kills orphans pass by pass. Resource trackers are spared for a while, to let them clean up.

    It waits for Python's trackers always; for torch's manager, which is slow, only in the `last` passes of a node.
    """

    def __init__(self, *, wait_seconds: float, last: bool = False) -> None:
        self._wait_seconds = wait_seconds
        self._last = last
        self.deadline = time.monotonic() + wait_seconds
        self._only_trackers_since: float | None = None

    def kill_pass(self, orphans: Orphans) -> Orphans:
        """Kill those orphans whose time has come; return those to wait for."""
        now = time.monotonic()
        trackers = {pid for pid in orphans if is_python_tracker(pid)}
        managers = {pid for pid in orphans if is_torch_manager(pid)}
        others = orphans.keys() - trackers - managers
        send_signal(others, signal.SIGKILL)
        if others:
            self._only_trackers_since = None
        elif self._only_trackers_since is None:
            self._only_trackers_since = now
        self._spare(trackers, min(_SPARED_RATIO * self._wait_seconds, _MAX_SPARED_SECONDS))
        if self._last:
            self._spare(managers, _MANAGER_SECONDS)
            return orphans
        return {pid: environment for pid, environment in orphans.items() if pid not in managers}

    def _spare(self, trackers: set[int], spared_seconds: float) -> None:
        since = self._only_trackers_since
        if since is not None and time.monotonic() >= since + spared_seconds:
            send_signal(trackers, signal.SIGKILL)
        elif trackers:
            # Ranks may have been stopped together with their tracker.
            send_signal(trackers, signal.SIGCONT)
            if since is not None:
                # Their time starts when all else is gone, however long that took; a quarter of it is to die in.
                self.deadline = max(self.deadline, since + 1.25 * spared_seconds)


def kill_orphans(
    find: Callable[[], Orphans], *, wait_seconds: float, last: bool = False
) -> Orphans:
    """Kill what `find` finds, trackers last, until there is nothing; return what does not die in time."""
    reaper = OrphanReaper(wait_seconds=wait_seconds, last=last)
    pause_seconds = FIRST_PAUSE_SECONDS
    while True:
        left = reaper.kill_pass(find())
        if not left or time.monotonic() >= reaper.deadline:
            return left
        time.sleep(pause_seconds)
        pause_seconds = min(2 * pause_seconds, LAST_PAUSE_SECONDS)


def shared_memory_files() -> frozenset[tuple[str, int]]:
    """Return name and inode of each file in shared memory."""
    try:
        with os.scandir(_SHARED_FOLDER) as entries:
            return frozenset((entry.name, entry.inode()) for entry in entries)
    except OSError:
        return frozenset()
