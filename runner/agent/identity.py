"""The agent's identity: a lock on the node's folder, and the state that must survive an agent instance.

`agent.json` is written and flushed before its content takes effect: a generation before it is accepted,
a launch before its first rank exists, a task before it is done. So no later instance starts an
attempt twice or repeats a drill.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from runner.atomic_files import SECTOR_BYTES, overwrite_sector, sector, write_atomically
from runner.errors import PermanentError, UserError
from runner.facts.ids import AttemptId
from runner.keeper.procfs import read_process

log = logging.getLogger("stoker.agent")

LOCK_NAME = "agent.lock"
STATE_NAME = "agent.json"


@dataclass(slots=True, kw_only=True)
class PersistedState:
    """The content of `agent.json`. `launched_*` name the newest attempt this node was about to start, started or not."""

    incarnation: int = 0
    generation: int = 0
    launched_generation: int = 0
    launched_attempt: str = ""
    task_cursor: int = 0


class Unwritable(PermanentError):
    """State that must be on disk before an action cannot be written."""


class Identity:
    """One agent's claim on a node's folder. Raises UserError when another agent holds it.

    A change that the disk refuses still holds in this instance, and is written with the next.
    """

    def __init__(self, node: str, folder: Path) -> None:
        self.node = node
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(node, folder / LOCK_NAME)
        self._state = _read_state(folder / STATE_NAME)
        self._file = _open_file(folder / STATE_NAME)
        self._state.incarnation += 1
        self._is_refused = False
        self._save()

    @property
    def incarnation(self) -> int:
        """Number of this agent instance, counted from 1."""
        return self._state.incarnation

    @property
    def generation(self) -> int:
        """Highest generation that any agent instance of this node accepted."""
        return self._state.generation

    @property
    def launched(self) -> tuple[int, AttemptId] | None:
        """Generation and attempt of the newest launch, by any agent instance; None before the first."""
        if not self._state.launched_attempt:
            return None
        return self._state.launched_generation, AttemptId.parse(self._state.launched_attempt)

    @property
    def task_cursor(self) -> int:
        """Number of the newest task handled from the node's stream."""
        return self._state.task_cursor

    def refuse_older(self, generation: int) -> None:
        """Refuse older generations from now on, in later instances too."""
        if generation > self._state.generation:
            self._state.generation = generation
            try:
                self._save()
            except Unwritable:
                # `_save` has logged it. Ranks must still end; none start until it is written.
                pass

    def record_launch(self, generation: int, attempt: AttemptId) -> None:
        """Record an attempt before it is started; it is never started again. Raises Unwritable: then it must not start."""
        self._state.launched_generation, self._state.launched_attempt = generation, str(attempt)
        self._save()

    def record_task(self, cursor: int) -> None:
        """Record a task before it is done; it is never done again. Raises Unwritable."""
        self._state.task_cursor = cursor
        self._save()

    def close(self) -> None:
        """Release the folder."""
        os.close(self._file)
        os.close(self._lock)

    def _save(self) -> None:
        """Overwrite the file in place: one sector at its old size, which a disk writes whole or not at all.

        Two of these lie between an assignment and its ranks. A new file, renamed and made durable
        with its folder, takes 8 ms where this takes 0.1 (measured, ext4 on a virtual disk).
        """
        path = self.folder / STATE_NAME
        try:
            overwrite_sector(self._file, asdict(self._state))
        except OSError as error:
            if not self._is_refused:
                log.error("%s cannot be written (%s): no ranks start until it can", path, error)
            self._is_refused = True
            raise Unwritable(
                f"{path} cannot be written ({error}), so a later agent would not know what was started here"
            ) from error
        self._is_refused = False


def _lock(node: str, path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 200, 0).decode(errors="replace") or "unknown"
        os.close(descriptor)
        raise UserError(
            f"node {node!r} has an agent already ({holder}), which holds {path}; "
            f"stop that agent first, or give this one another --node"
        ) from None
    own = read_process(os.getpid())
    assert own is not None
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps({"pid": own.pid, "start_ticks": own.start_ticks}).encode(), 0)
    return descriptor


def _open_file(path: Path) -> int:
    """Open the file to overwrite in place; a missing one, or one of an older release, first gets its full size."""
    if not path.exists() or path.stat().st_size != SECTOR_BYTES:
        known = json.loads(path.read_text()) if path.exists() else asdict(PersistedState())
        write_atomically(path, sector(known))
    return os.open(path, os.O_RDWR | os.O_CLOEXEC)


def _read_state(path: Path) -> PersistedState:
    try:
        plain = json.loads(path.read_text())
        known = {name: plain[name] for name in asdict(PersistedState()) if name in plain}
        return PersistedState(**known)
    except FileNotFoundError:
        return PersistedState()
    except (ValueError, LookupError, TypeError) as error:
        raise PermanentError(
            f"{path} cannot be read ({error}); it records which attempts this node has started. "
            f"When no rank of this node runs anywhere, delete it"
        ) from error
