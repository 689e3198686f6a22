"""What `stoker store doctor` looks at in a store of files."""

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from runner.store.examination import CheckFailed, CheckUnknown, StoreCheck, named, run_checks

# Both limits are chosen, not measured.
LEAST_FREE_BYTES = 1e9
MOST_FSYNC_SECONDS = 0.1
FORGETFUL = ("tmpfs", "ramfs")
FAR = ("nfs", "nfs4", "cifs", "smb3", "9p", "lustre", "ceph", "beegfs", "fuse.sshfs", "gpfs")


def examine_files(folder: Path) -> Iterator[StoreCheck]:
    """Check the files of a store, their file system and disk; yield each result at once."""
    return run_checks(
        folder,
        named(_reach, _file_system, _free_space, _fsync, _integrity),
        *(OSError, sqlite3.Error),
        describe=lambda error: f"{folder}: {error}",
    )


def _reach(folder: Path) -> str:
    files = [path for path in folder.iterdir() if path.suffix != ".lock"]
    size = sum(path.stat().st_size for path in files) / 1e6
    return f"SQLite {sqlite3.sqlite_version} in {folder}, {size:.1f} MB in {len(files)} files"


def _file_system(folder: Path) -> str:
    kind = _kind_of(folder)
    if not kind:
        raise CheckUnknown("/proc does not show its type")
    if kind in FORGETFUL:
        raise CheckFailed(f"{kind}: a reboot deletes it; put `state` on a disk")
    if kind in FAR:
        raise CheckFailed(
            f"{kind}: locks and wakeups need one machine's disk; put `state` on a local one"
        )
    return f"{kind}, on this machine"


def _kind_of(folder: Path) -> str:
    """Return the type of the file system that holds a folder, as /proc has it; "" if it does not say."""
    device = os.stat(folder).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        if before.split()[2] == wanted:
            return after.split()[0]
    return ""


def _free_space(folder: Path) -> str:
    free = shutil.disk_usage(folder).free
    text = f"{free / 1e9:.1f} GB free"
    if free < LEAST_FREE_BYTES:
        raise CheckFailed(f"{text}; a store that cannot write stops all action: make room")
    return text


def _fsync(folder: Path) -> str:
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
        raise CheckFailed(
            f"{text}; more than {1000 * MOST_FSYNC_SECONDS:.0f} ms delays every decision: use a faster disk"
        )
    return text


def _integrity(folder: Path) -> str:
    """Read every page of every file; payloads have checksums of their own, checked when they are read."""
    for path in sorted(folder.glob("*.db")):
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5.0)) as file:
            found = [row[0] for row in file.execute("PRAGMA integrity_check(3)")]
        if found != ["ok"]:
            raise CheckFailed(f"{path.name}: {'; '.join(found)}; put back a copy")
    return "every page of every file is whole"
