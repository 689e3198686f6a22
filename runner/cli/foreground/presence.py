"""The `stoker run` commands of one cluster: the last one to leave ends the supervisor that one of them started.

Locks of the kernel, in files of the state folder, so that a dead command holds none. `foreground.lock`: each command shares it
while it is there; the last holds it alone while it ends the cluster. `start.lock`: one at a time makes and starts the cluster.
"""

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from runner.atomic_files import write_atomically
from runner.cli.clusters import leader_of
from runner.facts.specs.cluster import ClusterSpec
from runner.keeper import procfs
from runner.store.protocol import Store

LOCK, START_LOCK = "foreground.lock", "start.lock"
# Names the supervisor that a command in the foreground started.
ATTENDED = "foreground.json"
LOOK_SECONDS = 0.05
# A command that waits for longer says so. Chosen, not measured.
QUIET_SECONDS = 1.0


class Presence:
    """This command among those of the cluster in `state`. A context; entered, it waits while the last one ends the cluster.

    Where the state folder is missing, or another user's, it counts as the only one. `log` gets lines for a person.
    """

    def __init__(self, state: str | Path, *, log: Callable[[str], None]) -> None:
        self._state, self._log = Path(state), log
        self._file = self._start_file = -1
        self._is_last = False

    def __enter__(self) -> Self:
        """Wait until no command ends the cluster, and be there."""
        self._file = _opened(self._state / LOCK)
        self._acquire(self._file, fcntl.LOCK_SH, "the cluster is being shut down")
        return self

    def __exit__(self, *_: object) -> None:
        """Be gone. Files are closed, which frees their locks."""
        self.started()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def begin_start(self) -> None:
        """Wait until no other command makes or starts the cluster; until `started` none other does."""
        self._start_file = _opened(self._state / START_LOCK)
        self._acquire(self._start_file, fcntl.LOCK_EX, "another command starts the cluster")

    def started(self) -> None:
        """Let other commands start the cluster."""
        if self._start_file >= 0:
            os.close(self._start_file)
            self._start_file = -1

    def is_last(self) -> bool:
        """Whether no other command is there; from then on none comes until this one is gone. One that is not is gone itself."""
        if not self._is_last:
            # The kernel replaces the lock in one step: of commands that leave at the same moment exactly one is the last.
            self._is_last = self._file < 0 or _try(self._file, fcntl.LOCK_EX)
        return self._is_last

    def _acquire(self, file: int, kind: int, why: str) -> None:
        if file < 0:
            return
        quiet_until = time.monotonic() + QUIET_SECONDS
        while not _try(file, kind):
            if time.monotonic() > quiet_until:
                self._log(f"{why}: waiting until that is done ({self._state})")
                quiet_until = float("inf")
            time.sleep(LOOK_SECONDS)


def mark_attended(cluster: ClusterSpec, pid: int) -> None:
    """Note that the supervisor with this pid was started by a command in the foreground."""
    seen = procfs.read_process(pid)
    if seen is not None:
        note = json.dumps({"pid": pid, "start_ticks": seen.start_ticks})
        write_atomically(Path(cluster.state) / ATTENDED, note)


def is_attended(store: Store, cluster: ClusterSpec) -> bool:
    """Whether the cluster's leader is a supervisor that a command in the foreground started."""
    from runner.supervisor.lease import holder_pid

    pid = holder_pid(leader_of(store).holder)
    seen = procfs.read_process(pid) if pid is not None else None
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        note = json.loads((Path(cluster.state) / ATTENDED).read_text())
        return seen is not None and (note["pid"], note["start_ticks"]) == (pid, seen.start_ticks)
    return False


def _opened(path: Path) -> int:
    """Open a lock's file; -1 where this user has no business in the state folder."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return -1


def _try(file: int, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
