"""Look at a checkpoint without reading its files: its manifest, and the sizes and times of what the manifest lists."""

import hashlib
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.checkpoints.manifest import Manifest
from runner.checkpoints.verification import check_equal, load_manifest, refuse_on_error
from runner.errors import CheckpointRefused


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What a look at a checkpoint found.

    `digest`: sha256 of the manifest's bytes. `stamp`: sha256 over that and the name, size and times (of modification and of
    change) of every file; it differs once a file was replaced or written to, also by one of equal size and time.
    """

    manifest: Manifest
    digest: str
    stamp: str

    @property
    def size_bytes(self) -> int:
        """How much there is to read."""
        return sum(seal.size_bytes for seal in self.manifest.files.values())


def inspect(
    folder: str | Path, keys: Sequence[bytes] | None = None, *, run: str = ""
) -> Inspection:
    """Look at a checkpoint. `keys` and `run`: as `read_manifest`.

    Raises CheckpointRefused when a file is missing, of another size or not regular, and as `read_manifest`; TemporaryError.
    """
    folder = Path(folder)
    manifest, payload = load_manifest(folder, keys, run=run)
    digest = hashlib.sha256(payload).hexdigest()
    stamp = hashlib.sha256(digest.encode())
    # A string, not a Path: there may be tens of thousands.
    root = os.fspath(folder)
    for name in sorted(manifest.files):
        status = _status(f"{root}/{name}", size_bytes=manifest.files[name].size_bytes)
        stamp.update(
            f"{name}\0{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}\n".encode()
        )
    return Inspection(manifest=manifest, digest=digest, stamp=stamp.hexdigest())


def _status(path: str, *, size_bytes: int) -> os.stat_result:
    """Return the status of a file. Raises CheckpointRefused unless it is regular and of this size."""
    try:
        status = os.lstat(path)
    except OSError:
        with refuse_on_error(Path(path)):
            raise
    if not stat.S_ISREG(status.st_mode):
        raise CheckpointRefused(f"{path} cannot be read: not a regular file")
    if status.st_size != size_bytes:
        check_equal(Path(path), "bytes", actual=status.st_size, expected=size_bytes)
    return status
