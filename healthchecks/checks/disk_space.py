"""disk_space: the folders have room, and files there keep what is written.

Each folder gets a real write of 4 MiB, fsync, and a read-back after the page cache has dropped it. The file has no
name, so even a kill leaves nothing behind. A full, read-only or broken file system fails; a folder that is missing, or
that this user may not write, is unknown.
"""

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
    needs=("folders",),
    limits={
        "disk_space.free_bytes": at_least(2 << 30, "bytes", CHOSEN, most=1e18, way_out=WAY_OUT),
        "disk_space.free_inodes": at_least(10_000, "inodes", CHOSEN, most=1e12, way_out=WAY_OUT),
        "disk_space.written_bytes": at_least(4 << 20, "bytes", "size of the probe", most=4 << 20),
        "disk_space.wrong_bytes": at_most(0, "bytes", DEFINED, most=0),
        "disk_space.fsync_seconds": at_most(10, "seconds", CHOSEN, most=600, least=1e-6),
    },
)
