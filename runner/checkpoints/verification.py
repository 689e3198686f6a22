"""Read the files of a checkpoint, without following links; it is trusted once every byte agrees with its manifest."""

import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from runner.checkpoints.manifest import MANIFEST, MAX_MANIFEST_BYTES, FileSeal, Manifest, decode
from runner.errors import (
    CheckpointForeign,
    CheckpointRefused,
    CheckpointUnreadable,
    TemporaryError,
)

# hashlib releases the interpreter's lock; more threads only compete for one disk. Chosen, not measured.
HASHING_THREADS = 4
# Below it (about 20 ms of hashing), starting threads costs more than they save. Chosen, not measured.
THREADED_BYTES = 16 * 1024 * 1024
_TRANSIENT = (errno.ESTALE, errno.ETIMEDOUT, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EINTR)
# What file systems answer for bytes that the storage lost, or whose own checksum is wrong.
_DAMAGED = (errno.EIO, errno.EBADMSG, errno.EUCLEAN, errno.EILSEQ)


def rank_keys() -> list[bytes]:
    """Return the keys that a rank got for the manifests of its run, newest first; none in an unsigned cluster or without Stoker."""
    return [bytes.fromhex(key) for key in os.environ.get("STOKER_SEAL_KEYS", "").split()]


def verify(folder: str | Path, keys: Sequence[bytes] | None = None, *, run: str = "") -> Manifest:
    """Read every byte of a checkpoint and return its manifest if all agree. `keys` and `run`: as `read_manifest`.

    Raises CheckpointRefused that names the file and its fault, TemporaryError when a retry may help. Files that the manifest
    does not list are ignored: loading reads none of them, and monitors and network file systems leave files in folders.
    """
    folder = Path(folder)
    manifest = read_manifest(folder, keys, run=run)
    paths, seals = [folder / name for name in manifest.files], list(manifest.files.values())
    # Sizes first: they cost nothing and catch a torn checkpoint before terabytes are read.
    for path, seal in zip(paths, seals, strict=True):
        with refuse_on_error(path), open_regular(path) as file:
            size_bytes = os.fstat(file.fileno()).st_size
            check_equal(path, "bytes", actual=size_bytes, expected=seal.size_bytes)
    if sum(seal.size_bytes for seal in seals) < THREADED_BYTES:
        for path, seal in zip(paths, seals, strict=True):
            _verify_content(path, seal)
        return manifest
    with ThreadPoolExecutor(max_workers=HASHING_THREADS) as pool:
        # The first error cancels what has not begun.
        for _ in pool.map(_verify_content, paths, seals):
            pass
    return manifest


def read_manifest(
    folder: str | Path, keys: Sequence[bytes] | None = None, *, run: str = ""
) -> Manifest:
    """Return a checkpoint's manifest, its files unread. Raises CheckpointRefused, TemporaryError.

    It must name the `run` ("": any), and carry a code of one of the `keys` (None: the rank's); without keys its code is not read.
    """
    return load_manifest(Path(folder), keys, run=run)[0]


def load_manifest(
    folder: Path, keys: Sequence[bytes] | None = None, *, run: str = ""
) -> tuple[Manifest, bytes]:
    """As `read_manifest`, with the bytes that it was parsed from."""
    keys = rank_keys() if keys is None else keys
    with refuse_on_error(folder / MANIFEST), open_regular(folder / MANIFEST) as file:
        payload = file.read(MAX_MANIFEST_BYTES + 1)
    try:
        manifest = decode(payload, keys)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CheckpointRefused(f"{folder / MANIFEST} is damaged: {error!r:.200}") from error
    if folder.name != f"{manifest.attempt}-{manifest.step:08d}":
        raise CheckpointRefused(
            f"{folder} holds step {manifest.step} of attempt {manifest.attempt}: it was renamed or copied over"
        )
    if run and manifest.run != run:
        raise CheckpointRefused(
            f"{folder} belongs to run {manifest.run!r} by its manifest, not to {run!r}; give each run a folder of its own"
        )
    if keys and not manifest.has_code:
        raise CheckpointForeign(
            f"{folder} carries no code of this run's secret: `stoker adopt` it if it is yours, and start the run again; "
            "another program sealed it, or a release before codes"
        )
    return manifest, payload


def _verify_content(path: Path, seal: FileSeal) -> None:
    with refuse_on_error(path):
        actual = hash_file(path)
    check_equal(path, "sha256", actual=actual.sha256, expected=seal.sha256)


def hash_file(path: str | Path) -> FileSeal:
    """Hash one file. Raises OSError, also for a link or another file that is not regular."""
    with open_regular(path) as file:
        digest = hashlib.file_digest(file, "sha256")
        return FileSeal(size_bytes=file.tell(), sha256=digest.hexdigest())


def flush_and_hash(path: str | Path) -> FileSeal:
    """Flush one file to disk, then hash it; each rank calls this for the files it wrote."""
    sync_file(Path(path))
    return hash_file(path)


def check_equal(path: Path, quantity: str, *, actual: object, expected: object) -> None:
    """Raise CheckpointRefused if a quantity of a file is not what the manifest has."""
    if actual != expected:
        raise CheckpointRefused(
            f"{path} is damaged: {quantity} {actual}, the manifest says {expected}"
        )


@contextmanager
def refuse_on_error(path: Path) -> Iterator[None]:
    """Turn an OSError about a file into CheckpointRefused, or TemporaryError where a retry may help.

    CheckpointUnreadable, unless the error says that the storage has lost the bytes: it may be out of sight of this process only.
    """
    try:
        yield
    except OSError as error:
        text = f"{path} cannot be read: {error.strerror or error}"
        if error.errno in _TRANSIENT:
            raise TemporaryError(text, delay_seconds=5.0) from error
        raise (CheckpointRefused if error.errno in _DAMAGED else CheckpointUnreadable)(
            text
        ) from error


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
