"""disk_space: the folders have room, and files there keep what is written.

Each folder gets a real write of 4 MiB, fsync, and a read-back after the page cache has dropped it. That file has no name. Then a
small one is saved as checkpoints are: write, fsync, rename, fsync of the folder, read-back by its new name. A kill may leave that
one behind; the next check removes it. A full, read-only or broken file system fails; a folder that is missing, or that this user
may not write, is unknown.
"""

import contextlib
import errno
import hashlib
import os
import tempfile
import time
from collections.abc import Iterator

from healthchecks.check import Evidence, Judge, NodeFacts, Verdict
from healthchecks.declaration import CHOSEN, DEFINED, HealthCheck, at_least, at_most

NAME = "disk_space"
PROBE_BYTES = 4 << 20
CHUNK_BYTES = 1 << 20
# Of the file that is renamed.
SMALL_BYTES = 4096
PREFIX = ".stoker-check-"
# Its check was killed: no check takes so long. Chosen.
LEFTOVER_SECONDS = 3600.0
WAY_OUT = (
    "remove files, or have `state` in cluster.yaml, or `--state` of the demo, name another disk"
)
# Errors by which the file system itself cannot store anything; others may concern this process.
BROKEN = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENXIO, errno.EUCLEAN})


def check(node: NodeFacts, judge: Judge) -> Verdict:
    """Check every folder of `node.folders`."""
    evidence = [each for folder in node.folders for each in _check_folder(folder, judge)]
    return Verdict(check=NAME, evidence=tuple(evidence))


def wrong_bytes(read_back: bytes, expected: bytes) -> int:
    """Count bytes that differ; missing and surplus ones count too."""
    if read_back == expected:
        return 0
    differing = sum(a != b for a, b in zip(read_back, expected, strict=False))
    return differing + abs(len(read_back) - len(expected))


def _check_folder(folder: str, judge: Judge) -> Iterator[Evidence]:
    try:
        space = os.statvfs(folder)
    except OSError as error:
        yield judge("disk_space.free_bytes", None, subject=folder, note=str(error))
        return
    yield judge("disk_space.free_bytes", space.f_bavail * space.f_frsize, subject=folder)
    if space.f_files > 0:
        yield judge("disk_space.free_inodes", space.f_favail, subject=folder)
    else:
        # Such as btrfs, which creates inodes as it needs them.
        yield Evidence(name="disk_space.free_inodes", value=None, subject=folder, note="no limit")
    yield from _probe(folder, judge)


def _probe(folder: str, judge: Judge) -> Iterator[Evidence]:
    payload = _payload(folder)
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            began = time.monotonic()
            written = _write(file.fileno(), payload)
            fsync_seconds = time.monotonic() - began
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            read_back = b"".join(_read(file.fileno()))
    except OSError as error:
        written_bytes = 0 if error.errno in BROKEN else None
        yield judge("disk_space.written_bytes", written_bytes, subject=folder, note=str(error))
        return
    yield judge("disk_space.written_bytes", written, subject=folder)
    yield judge("disk_space.fsync_seconds", fsync_seconds, subject=folder)
    # Computed again: if the buffer had become corrupt, file and buffer would agree.
    yield judge("disk_space.wrong_bytes", wrong_bytes(read_back, _payload(folder)), subject=folder)
    yield _rename(folder, judge)


def _rename(folder: str, judge: Judge) -> Evidence:
    """Save a small file as checkpoints are saved, and count the right bytes that come back by its new name."""
    name, payload = "disk_space.renamed_bytes", _payload(folder)[:SMALL_BYTES]
    _remove_leftovers(folder)
    before = os.path.join(folder, f"{PREFIX}{os.getpid()}")
    after = f"{before}.renamed"
    try:
        with open(before, "wb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        os.rename(before, after)
        _sync_folder(folder)
        with open(after, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            read_back = file.read()
    except OSError as error:
        value = 0 if error.errno in BROKEN else None
        return judge(name, value, subject=folder, note=str(error))
    finally:
        for path in (before, after):
            with contextlib.suppress(OSError):
                os.unlink(path)
    wrong = wrong_bytes(read_back, payload)
    return judge(name, max(0, SMALL_BYTES - wrong), subject=folder)


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_leftovers(folder: str) -> None:
    """Remove what checks left that were killed; best effort."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX):
                age = time.time() - entry.stat(follow_symlinks=False).st_mtime
                if age > LEFTOVER_SECONDS:
                    os.unlink(entry.path)


def _payload(folder: str) -> bytes:
    """Bytes that no sparse or compressing file system shortens, different in each folder."""
    return hashlib.shake_256(os.fsencode(folder)).digest(PROBE_BYTES)


def _write(descriptor: int, payload: bytes) -> int:
    written = 0
    while written < len(payload):
        written += os.write(descriptor, payload[written : written + CHUNK_BYTES])
    os.fsync(descriptor)
    return written


def _read(descriptor: int) -> Iterator[bytes]:
    position = 0
    while chunk := os.pread(descriptor, CHUNK_BYTES, position):
        position += len(chunk)
        yield chunk


CHECK = HealthCheck(
    name=NAME,
    position=30,
    run=check,
    runs_beside=True,
    seconds={"passive": 0.8},
    needs=("folders",),
    limits={
        "disk_space.free_bytes": at_least(2 << 30, "bytes", CHOSEN, most=1e18, way_out=WAY_OUT),
        "disk_space.free_inodes": at_least(10_000, "inodes", CHOSEN, most=1e12, way_out=WAY_OUT),
        "disk_space.written_bytes": at_least(4 << 20, "bytes", "size of the probe", most=4 << 20),
        "disk_space.wrong_bytes": at_most(0, "bytes", DEFINED, most=0),
        "disk_space.renamed_bytes": at_least(
            SMALL_BYTES, "bytes", "size of the probe", most=SMALL_BYTES
        ),
        "disk_space.fsync_seconds": at_most(10, "seconds", CHOSEN, most=600, least=1e-6),
    },
)
