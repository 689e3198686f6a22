"""Files of a checkpoint: opened without following links, flushed, hashed, and what their errors mean."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from runner.checkpoints.manifest import FileSeal
from runner.errors import CheckpointRefused, TemporaryError

_TRANSIENT = (errno.ESTALE, errno.ETIMEDOUT, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EINTR)


def hash_file(path: str | Path) -> FileSeal:
    """Hash one file. Raises OSError, also for a link or another file that is not regular."""
    with open_regular(path) as file:
        digest = hashlib.file_digest(file, "sha256")
        return FileSeal(size_bytes=file.tell(), sha256=digest.hexdigest())


def flush_and_hash(path: str | Path) -> FileSeal:
    """Flush one file to disk, then hash it; each rank calls this for the files it wrote."""
    sync_file(Path(path))
    return hash_file(path)


def check_equal(
    folder: Path, name: str, quantity: str, *, actual: object, expected: object
) -> None:
    """Raise CheckpointRefused if a quantity of a file is not what the manifest has."""
    if actual != expected:
        raise CheckpointRefused(
            f"{folder / name} is damaged: {quantity} {actual}, the manifest says {expected}"
        )


@contextmanager
def refuse_on_error(folder: Path, name: str) -> Iterator[None]:
    """Turn an OSError about one file into CheckpointRefused, or TemporaryError where a retry may help."""
    try:
        yield
    except OSError as error:
        text = f"{folder / name} cannot be read: {error.strerror or error}"
        if error.errno in _TRANSIENT:
            raise TemporaryError(text, delay_seconds=5.0) from error
        raise CheckpointRefused(text) from error


def open_regular(path: str | Path) -> Any:
    """Open a regular file for reading. Opening a pipe would block, and a link may lead anywhere."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def sync_file(path: Path) -> int:
    """Flush one file to disk; return its size in bytes."""
    with open_regular(path) as file:
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size


def sync_folder(path: Path) -> None:
    """Flush a folder's entries to disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
