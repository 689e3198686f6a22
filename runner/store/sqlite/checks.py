"""What `stoker store doctor` looks at in a store of files."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from runner.store.examination import FAIL, PASS, UNKNOWN, Finding, StoreCheck, run_checks

# chosen
LEAST_FREE_BYTES = 1e9
# chosen
MOST_FSYNC_SECONDS = 0.1
FORGETFUL = ("tmpfs", "ramfs")
FAR = ("nfs", "nfs4", "cifs", "smb3", "9p", "lustre", "ceph", "beegfs", "fuse.sshfs", "gpfs")


def examine_files(folder: Path) -> Iterator[StoreCheck]:
    """Check the files of a store, their file system and disk; yield each result at once."""
    checks: dict[str, Callable[[Path], Finding]] = {
        "reach": _reach,
        "file_system": _file_system,
        "free_space": _free_space,
        "fsync": _fsync,
        "integrity": _integrity,
    }
    yield from run_checks(
        {name: partial(check, folder) for name, check in checks.items()},
        fail_on=(OSError, sqlite3.Error),
        describe=lambda error: f"{folder}: {error}",
    )


def _reach(folder: Path) -> Finding:
    files = [path for path in folder.iterdir() if path.suffix != ".lock"]
    size = sum(path.stat().st_size for path in files) / 1e6
    return PASS, f"SQLite {sqlite3.sqlite_version} in {folder}, {size:.1f} MB in {len(files)} files"


def _file_system(folder: Path) -> Finding:
    kind = _kind_of(folder)
    if kind in FORGETFUL:
        return FAIL, f"{kind}: a reboot deletes it; put `state` on a disk"
    if kind in FAR:
        return (
            FAIL,
            f"{kind}: locks and wakeups need one machine's disk; put `state` on a local one",
        )
    return (PASS, f"{kind}, on this machine") if kind else (UNKNOWN, "/proc does not show its type")


def _kind_of(folder: Path) -> str:
    """Return the type of the file system that holds a folder, as /proc has it; "" if it does not say."""
    device = os.stat(folder).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if before.split()[2] == wanted:
            return after.split()[0]
    return ""


def _free_space(folder: Path) -> Finding:
    free = shutil.disk_usage(folder).free
    text = f"{free / 1e9:.1f} GB free"
    if free < LEAST_FREE_BYTES:
        return FAIL, f"{text}; a store that cannot write stops all action: make room"
    return PASS, text


def _fsync(folder: Path) -> Finding:
    path = folder / f"doctor-{os.getpid()}.tmp"
    try:
        with path.open("wb") as file:
            file.write(b"x" * 4096)
            file.flush()
            started = time.perf_counter()
            os.fsync(file.fileno())
            taken_seconds = time.perf_counter() - started
    finally:
        path.unlink(missing_ok=True)
    text = f"fsync of 4 kB took {1000 * taken_seconds:.2f} ms"
    if taken_seconds > MOST_FSYNC_SECONDS:
        return (
            FAIL,
            f"{text}; more than {1000 * MOST_FSYNC_SECONDS:.0f} ms delays every decision: use a faster disk",
        )
    return PASS, text


def _integrity(folder: Path) -> Finding:
    """Read every page of every file; payloads have checksums of their own, checked when they are read."""
    for path in sorted(folder.glob("*.db")):
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5.0)) as file:
            found = [row[0] for row in file.execute("PRAGMA integrity_check(3)")]
        if found != ["ok"]:
            return FAIL, f"{path.name}: {'; '.join(found)}; put back a copy"
    return PASS, "every page of every file is whole"
