"""The fence of a checkpoint folder: the file GENERATION holds the number below which no process may seal."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runner.atomic_files import lock, sync_folder
from runner.errors import PermanentError, TemporaryError

GENERATION = "GENERATION"
# The lock is held for one small write. Chosen, not measured.
LOCK_SECONDS = 10.0
# A fixed width: raising the generation overwrites the number in place, within one sector.
_GENERATION_DIGITS = 20


def current_generation(root: str | Path) -> int:
    """Return the generation below which `seal` refuses; 0 when none was set. Takes no lock."""
    try:
        text = (Path(root) / GENERATION).read_bytes()
    except FileNotFoundError:
        return 0
    return _read_generation(text, root)


def raise_generation(root: str | Path, generation: int) -> int:
    """Refuse to seal with older generations from now on; return the durable generation in force, which never falls.

    Makes `root` when it is missing. Raises TemporaryError when another process holds the lock for `LOCK_SECONDS`.
    """
    if not 0 <= generation < 10**_GENERATION_DIGITS:
        raise ValueError(f"generation {generation} is out of range")
    # `prepare_attempt` raised the generation under the lock before the nodes of a gang ask for it: reading is enough, and the
    # number only grows. Two reads, since one may meet a write in progress.
    known = current_generation(root)
    if 0 < generation <= known == current_generation(root):
        return known
    Path(root).mkdir(parents=True, exist_ok=True)
    with locked(root) as (file, current):
        if generation > current:
            os.pwrite(file, f"{generation:0{_GENERATION_DIGITS}d}\n".encode(), 0)
            os.fsync(file)
            sync_folder(Path(root))
    return max(generation, current)


@contextmanager
def locked(root: str | Path) -> Iterator[tuple[int, int]]:
    """Hold the lock on GENERATION; yield its descriptor and the generation."""
    path = Path(root) / GENERATION
    # Not through a link: the folder may belong to another user, and this process may be root.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    suspended = TemporaryError(
        f"{path} has been locked by another process for {LOCK_SECONDS:g} s: a process that seals is "
        "suspended, or its disk hangs; resume or end that process",
        delay_seconds=5.0,
    )
    try:
        _close_to_readers(descriptor, root)
        lock(descriptor, deadline_seconds=LOCK_SECONDS, otherwise=suspended)
        yield descriptor, _read_generation(os.pread(descriptor, 64, 0), root)
    finally:
        os.close(descriptor)


def _close_to_readers(descriptor: int, root: str | Path) -> None:
    """Let only those open the file who may write into its folder: a user who may read it could hold the lock for good."""
    may_write = Path(root).stat().st_mode & 0o022
    allowed = 0o600 | may_write | may_write << 1
    status = os.fstat(descriptor)
    if status.st_mode & 0o777 != allowed and os.geteuid() in (0, status.st_uid):
        os.fchmod(descriptor, allowed)


def _read_generation(text: bytes, root: str | Path) -> int:
    digits = text.strip()
    if digits and not digits.isdigit():
        raise PermanentError(
            f"{Path(root) / GENERATION} holds {text[:40]!r}, not a number, so no checkpoint can be sealed; "
            "write the generation of the newest manifest into it"
        )
    return int(digits or b"0")
