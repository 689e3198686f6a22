"""Sealed checkpoints: a folder counts once its manifest is in place, and is trusted once every byte agrees with it.

    checkpoints/EPOCH                      the number below which nobody may seal; locked while a manifest is put in place
    checkpoints/12.45.2-00000800/...       what the ranks wrote
    checkpoints/12.45.2-00000800/manifest.json

Ranks write and `settle` their files; one of them, when all are done, calls `seal`. `docs/contract.md` is the authority on
the form. Standard library only, so that a foreign trainer may import it; one file, past the usual length, because form,
lock and order of writes are one protocol. Needs a file system with rename, fsync and flock; on a shared one, each node
must settle its own files, since nobody else can flush its cache.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from runner.errors import CheckpointRefused, Fenced, PermanentError, TemporaryError
from runner.facts.ids import AttemptId
from runner.facts.wire import to_plain

MANIFEST = "manifest.json"
EPOCH = "EPOCH"
VERSION = 1
# Chosen, not measured: 300,000 files.
MAX_MANIFEST_BYTES = 64 * 1024 * 1024
# hashlib lets go of the interpreter, more threads only fight over one disk; below so many bytes (about 20 ms of hashing)
# starting threads costs more than they save. Chosen, not measured.
HASHING_THREADS = 4
THREADED_BYTES = 16 * 1024 * 1024
# The lock is held for one small write: who holds it longer is stopped, or its disk is. Chosen, not measured.
LOCK_SECONDS = 10.0

_TEMPORARY = ".manifest.json.part"
_NAME = re.compile(r"(\d+\.\d+\.\d+)-(\d{8,})", re.ASCII)
# A fixed width: raising the epoch overwrites the number in place, within one sector.
_EPOCH_DIGITS = 20
_LATER = (errno.ESTALE, errno.ETIMEDOUT, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EINTR)

Boundary = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSeal:
    """What a file must be: its size and the sha256 of its content, in hexadecimal."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a checkpoint consists of and where it stands; written last. File names are relative, with "/"."""

    run: str
    attempt: AttemptId
    epoch: int
    step: int
    files: Mapping[str, FileSeal]
    data: Mapping[str, Any] = field(default_factory=dict)
    metrics: Sequence[Mapping[str, Any]] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


def checkpoint_folder(root: str | Path, attempt: AttemptId | str, step: int) -> Path:
    """Name the folder of a checkpoint, which need not exist; raises ValueError for no attempt id or a negative step."""
    if step < 0:
        raise ValueError(f"step {step} is negative")
    return Path(root) / f"{AttemptId.parse(str(attempt))}-{step:08d}"


def read_folder_name(name: str) -> tuple[AttemptId, int] | None:
    """Read attempt and step back from a folder's name; None when it is no checkpoint's."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    attempt, step = AttemptId.parse(match[1]), int(match[2])
    return (attempt, step) if name == f"{attempt}-{step:08d}" else None


def current_epoch(root: str | Path) -> int:
    """Return the epoch below which sealing is refused; 0 when none was set. Takes no lock."""
    try:
        text = (Path(root) / EPOCH).read_bytes()
    except FileNotFoundError:
        return 0
    return _read_epoch(text, root)


def raise_epoch(root: str | Path, epoch: int) -> int:
    """Refuse older epochs from now on, durably; return the epoch in force, which never falls.

    Makes `root` when it is missing. Once this returned, no older epoch can seal any more. Raises TemporaryError when a
    sealing under way does not end in `LOCK_SECONDS`.
    """
    if not 0 <= epoch < 10**_EPOCH_DIGITS:
        raise ValueError(f"epoch {epoch} is out of range")
    # Every node of a gang asks for the same epoch, which `prepare_attempt` has raised under the lock already: looking is enough,
    # and what is read only grows. Two looks, since one may meet a number that is just being written.
    known = current_epoch(root)
    if 0 < epoch <= known == current_epoch(root):
        return known
    Path(root).mkdir(parents=True, exist_ok=True)
    with _locked(root) as (file, current):
        if epoch > current:
            os.pwrite(file, f"{epoch:0{_EPOCH_DIGITS}d}\n".encode(), 0)
            os.fsync(file)
            _sync_folder(Path(root))
    return max(epoch, current)


def hash_file(path: str | Path) -> FileSeal:
    """Measure and hash one file. Raises OSError, also for what is no regular file (a link is not followed)."""
    with _open_regular(path) as file:
        digest = hashlib.file_digest(file, "sha256")
        return FileSeal(size_bytes=file.tell(), sha256=digest.hexdigest())


def settle(path: str | Path) -> FileSeal:
    """Make one file of a checkpoint durable, then hash it: what each rank does with what it wrote."""
    _sync_file(Path(path))
    return hash_file(path)


def seal(
    folder: str | Path,
    manifest: Manifest,
    *,
    epoch: int,
    boundary: Boundary = lambda _name: None,
) -> Path:
    """Make a written checkpoint count, durably; return the manifest's path.

    Files must be there at the listed sizes; they are flushed here once more. Raises Fenced when `epoch` is older than the
    folder's, CheckpointRefused when a file is missing, of another size, or the folder is sealed already, TemporaryError
    when the lock cannot be had, OSError when the disk is full or broken. `boundary` is called with a name before and
    after each change of the file system, for tests that kill the process there.
    """
    folder = Path(folder)
    if manifest.epoch != epoch or folder.name != f"{manifest.attempt}-{manifest.step:08d}":
        raise ValueError(
            f"{folder.name} of epoch {epoch} is not what its manifest says: {manifest}"
        )
    payload = _encode(manifest)
    if len(payload) > MAX_MANIFEST_BYTES:
        raise PermanentError(f"manifest of {len(payload)} bytes; at most {MAX_MANIFEST_BYTES}")
    _settle_tree(folder, manifest.files, boundary)
    with _locked(folder.parent) as (_, current):
        boundary("locked")
        if epoch < current:
            raise Fenced(
                f"{folder} was written in epoch {epoch}, but epoch {current} has begun: "
                "another attempt has taken over, this one must end"
            )
        if (folder / MANIFEST).exists():
            raise CheckpointRefused(
                f"{folder} is sealed already; a checkpoint is never overwritten"
            )
        _put_in_place(folder, payload, boundary)
    boundary("unlocked")
    return folder / MANIFEST


def verify(folder: str | Path) -> Manifest:
    """Read every byte of a checkpoint and return its manifest if all agree.

    Raises CheckpointRefused that names the file and what is wrong with it, TemporaryError when the file system asks to come
    back later. Files that the manifest does not list are ignored: nothing that loads by the manifest reads them, and
    what monitors and network file systems leave in folders must not cost a good checkpoint.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    # Sizes first: they cost nothing and catch a torn checkpoint before terabytes are read.
    for name, expected in manifest.files.items():
        with _refusing(folder, name), _open_regular(folder / name) as file:
            _agree(folder, name, "bytes", os.fstat(file.fileno()).st_size, expected.size_bytes)
    if sum(expected.size_bytes for expected in manifest.files.values()) < THREADED_BYTES:
        for name, expected in manifest.files.items():
            _verify_content(folder, name, expected)
        return manifest
    with ThreadPoolExecutor(max_workers=HASHING_THREADS) as pool:
        checks = [pool.submit(_verify_content, folder, *item) for item in manifest.files.items()]
        try:
            for check in checks:
                check.result()
        finally:
            pool.shutdown(cancel_futures=True)
    return manifest


def read_manifest(folder: str | Path) -> Manifest:
    """Return what a checkpoint says of itself, its files unread. Raises CheckpointRefused, TemporaryError."""
    folder = Path(folder)
    with _refusing(folder, MANIFEST), _open_regular(folder / MANIFEST) as file:
        payload = file.read(MAX_MANIFEST_BYTES + 1)
    try:
        manifest = _decode(payload)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise CheckpointRefused(f"{folder / MANIFEST} is damaged: {error!r:.200}") from error
    if folder.name != f"{manifest.attempt}-{manifest.step:08d}":
        raise CheckpointRefused(
            f"{folder} holds step {manifest.step} of attempt {manifest.attempt}: it was renamed or copied over"
        )
    return manifest


def list_sealed(root: str | Path) -> list[Path]:
    """List the folders that have a manifest, newest first: by step, then by attempt, both as numbers."""
    found = []
    try:
        with os.scandir(root) as entries:
            for entry in entries:
                place = read_folder_name(entry.name)
                if place and entry.is_dir(follow_symlinks=False):
                    found.append((place[1], place[0], Path(entry.path)))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [path for _, _, path in sorted(found, reverse=True) if (path / MANIFEST).is_file()]


def remove(folder: str | Path) -> None:
    """Delete a checkpoint: first it stops counting, durably, then its files go. Missing ones are well.

    Only for the supervisor. Raises ValueError for a folder that is not named like a checkpoint.
    """
    folder = Path(folder)
    if read_folder_name(folder.name) is None or folder.is_symlink():
        raise ValueError(f"{folder} is no checkpoint folder; those are named <attempt>-<step>")
    if not folder.is_dir():
        return
    (folder / MANIFEST).unlink(missing_ok=True)
    _sync_folder(folder)
    shutil.rmtree(folder)
    _sync_folder(folder.parent)


def _encode(manifest: Manifest) -> bytes:
    """Return the manifest's bytes: compact JSON, sorted keys, its own hash among them."""
    body = {
        "v": VERSION,
        "kind": "checkpoint_manifest",
        "run": manifest.run,
        "attempt": str(manifest.attempt),
        "epoch": manifest.epoch,
        "step": manifest.step,
        "files": {
            _checked_name(name): {"bytes": file.size_bytes, "sha256": file.sha256}
            for name, file in manifest.files.items()
        },
        "data": to_plain(manifest.data),
        "metrics": to_plain(list(manifest.metrics)),
        "settings": to_plain(manifest.settings),
    }
    return _compact(body | {"sha256": hashlib.sha256(_compact(body)).hexdigest()})


def _decode(payload: bytes) -> Manifest:
    """Read a manifest's bytes; raises ValueError, TypeError, KeyError or AttributeError for anything else."""
    if len(payload) > MAX_MANIFEST_BYTES:
        raise ValueError(f"more than {MAX_MANIFEST_BYTES} bytes")
    body = json.loads(payload)
    signed = {key: value for key, value in body.items() if key != "sha256"}
    # Not only must the hash hold: every byte must be as `seal` writes it, so that no flipped bit is explained away.
    if hashlib.sha256(_compact(signed)).hexdigest() != body["sha256"] or _compact(body) != payload:
        raise ValueError("its own hash does not agree with it")
    if body["v"] != VERSION or body["kind"] != "checkpoint_manifest":
        raise ValueError(
            f"version {body['v']!r}, kind {body['kind']!r}; version {VERSION} is known"
        )
    files = {
        _checked_name(name): FileSeal(size_bytes=_whole(file["bytes"]), sha256=file["sha256"])
        for name, file in body["files"].items()
    }
    return Manifest(
        run=body["run"],
        attempt=AttemptId.parse(body["attempt"]),
        epoch=_whole(body["epoch"]),
        step=_whole(body["step"]),
        files=files,
        data=body["data"],
        metrics=tuple(body["metrics"]),
        settings=body["settings"],
    )


def _compact(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no count")
    return value


def _checked_name(name: str) -> str:
    """Return a name that stays inside the folder and is not the manifest's; raises ValueError for another."""
    plain = str(PurePosixPath(name)) == name and name.isprintable()
    if not plain or name.startswith("/") or {".", ".."} & set(name.split("/")) or name == MANIFEST:
        raise ValueError(f"{name!r} is no name for a file of a checkpoint: relative, inside it")
    return name


def _settle_tree(folder: Path, files: Mapping[str, FileSeal], boundary: Boundary) -> None:
    """Flush all files and every folder on the way to them."""
    folders = {folder}
    for name, expected in files.items():
        with _refusing(folder, name):
            size_bytes = _sync_file(folder / name)
        _agree(folder, name, "bytes", size_bytes, expected.size_bytes)
        folders.update(folder / parent for parent in PurePosixPath(name).parents)
    boundary("files flushed")
    for path in sorted(folders, reverse=True):
        _sync_folder(path)
    _sync_folder(folder.parent)
    boundary("folders flushed")


def _put_in_place(folder: Path, payload: bytes, boundary: Boundary) -> None:
    """Write the manifest under another name, then rename it, each durably."""
    part = folder / _TEMPORARY
    with part.open("wb", buffering=0) as file:
        boundary("manifest opened")
        half = len(payload) // 2
        for piece in (payload[:half], payload[half:]):
            if file.write(piece) != len(piece):
                raise OSError(errno.ENOSPC, "manifest written in part", str(part))
            boundary("manifest written on")
        os.fsync(file.fileno())
    boundary("manifest flushed")
    part.rename(folder / MANIFEST)
    boundary("manifest renamed")
    _sync_folder(folder)
    boundary("rename flushed")


def _verify_content(folder: Path, name: str, expected: FileSeal) -> None:
    with _refusing(folder, name):
        found = hash_file(folder / name)
    _agree(folder, name, "sha256", found.sha256, expected.sha256)


def _agree(folder: Path, name: str, what: str, found: object, expected: object) -> None:
    if found != expected:
        raise CheckpointRefused(
            f"{folder / name} is damaged: {what} {found}, the manifest says {expected}"
        )


@contextmanager
def _refusing(folder: Path, name: str) -> Iterator[None]:
    """Turn what the file system says of one file into a refusal of the checkpoint, or into "later"."""
    try:
        yield
    except OSError as error:
        text = f"{folder / name} cannot be read: {error.strerror or error}"
        if error.errno in _LATER:
            raise TemporaryError(text, delay_seconds=5.0) from error
        raise CheckpointRefused(text) from error


def _open_regular(path: str | Path) -> Any:
    """Open a regular file for reading. A pipe would block for ever and a link may lead anywhere."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def _sync_file(path: Path) -> int:
    """Flush one file to disk; return its size in bytes."""
    with _open_regular(path) as file:
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _locked(root: str | Path) -> Iterator[tuple[int, int]]:
    """Hold the lock on EPOCH; yields its descriptor and the epoch. The kernel frees the lock of a killed process."""
    path = Path(root) / EPOCH
    # Not through a link: the folder may be another user's than ours, who may be root.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        deadline = time.monotonic() + LOCK_SECONDS
        while not _try_lock(descriptor):
            if time.monotonic() > deadline:
                raise TemporaryError(
                    f"{path} has been locked by another process for {LOCK_SECONDS:g} s: a sealing is stopped "
                    "midway, or its disk is; it must end first",
                    delay_seconds=5.0,
                )
            time.sleep(0.01)
        yield descriptor, _read_epoch(os.pread(descriptor, 64, 0), root)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read_epoch(text: bytes, root: str | Path) -> int:
    digits = text.strip()
    if digits and not digits.isdigit():
        raise PermanentError(
            f"{Path(root) / EPOCH} holds {text[:40]!r}, not a number: nothing can be sealed there; "
            "put in the number of the newest attempt's epoch, found in the newest manifest"
        )
    return int(digits or b"0")
