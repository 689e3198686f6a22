"""Files that a power cut leaves whole: the old content or the new; and their locks."""

import fcntl
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# any disk writes a sector whole or not at all
SECTOR_BYTES = 512
_LOCK_PAUSE_SECONDS = 0.005


def sector(plain: Mapping[str, Any]) -> bytes:
    """Encode a small mapping as JSON that fills a sector."""
    data = json.dumps(plain).encode().ljust(SECTOR_BYTES - 1) + b"\n"
    assert len(data) == SECTOR_BYTES, f"{len(data)} bytes do not fit a sector"
    return data


def overwrite_sector(file: int, plain: Mapping[str, Any]) -> None:
    """Overwrite an open file of one sector in place: many times cheaper than replacing it."""
    os.pwrite(file, sector(plain), 0)
    os.fdatasync(file)


def write_atomically(path: Path, data: str | bytes, *, mode: int = 0o644) -> None:
    """Replace a file in one step that survives a power cut. `mode`: its permissions, less the umask."""
    scratch = path.with_name(f"{path.name}.part")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)
        file.flush()
        os.fsync(file.fileno())
    scratch.rename(path)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Flush a folder's entries to disk."""
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def lock(file: int, *, deadline_seconds: float, otherwise: Exception) -> None:
    """Lock an open file. The kernel frees a dead process's lock.

    Raises `otherwise` when another process holds it for `deadline_seconds`.
    """
    deadline = time.monotonic() + deadline_seconds
    while not _try_lock(file):
        if time.monotonic() >= deadline:
            raise otherwise
        time.sleep(_LOCK_PAUSE_SECONDS)


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
