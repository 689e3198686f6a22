"""The ranks' output files: kept within bounds, and read from the end."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from runner.rootcause.error_output import essential

TAIL_LINES = 20
TAIL_BYTES = 2048
# A stack of C++ after the error takes a few thousand bytes for each thread; chosen.
_LOOK_BACK_BYTES = 64 * 1024
_COPY_BYTES = 1 << 20


def paths(folder: str, rank: int) -> tuple[Path, Path]:
    """Return where a rank's standard output and standard error go."""
    return Path(folder, f"rank{rank}.out"), Path(folder, f"rank{rank}.err")


def ranks_by_path(folder: str, ranks: Iterable[int]) -> dict[str, int]:
    """Return the rank of each output file."""
    return {str(path): rank for rank in ranks for path in paths(folder, rank)}


def bound(
    folder: str, ranks: Iterable[int], limit_bytes: int, on_progress: Callable[[], None]
) -> list[tuple[str, OSError]]:
    """Truncate what has outgrown the limit; return the files that could not be, and why. It takes as long as the disk does."""
    failed = []
    for path in ranks_by_path(folder, ranks):
        on_progress()
        try:
            truncate(Path(path), limit_bytes, on_progress)
        except OSError as error:
            failed.append((path, error))
    return failed


def truncate(path: Path, limit_bytes: int, on_progress: Callable[[], None] = lambda: None) -> bool:
    """Cut a file that has outgrown its limit: its newer half moves to `<name>.1`, the file starts again; return whether it did.

    Writers append, so they continue at the new start. What they write between copy and cut is lost: a few lines at most.
    Raises OSError when the disk refuses: then the file is as it was.
    """
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return False
    if size <= limit_bytes:
        return False
    kept = path.with_name(f"{path.name}.1")
    scratch = path.with_name(f"{path.name}.1.part")
    try:
        with path.open("rb+") as source, scratch.open("wb") as target:
            source.seek(size - limit_bytes // 2)
            # Begin with a whole line.
            source.readline()
            while chunk := source.read(_COPY_BYTES):
                target.write(chunk)
                on_progress()
            target.flush()
            os.ftruncate(source.fileno(), 0)
    except OSError:
        # A part of it takes room that others need more.
        scratch.unlink(missing_ok=True)
        raise
    scratch.rename(kept)
    return True


def tail(path: Path) -> str:
    """Return the error that ended a program and its last lines, at most TAIL_LINES and TAIL_BYTES of each; "" if unreadable."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _LOOK_BACK_BYTES))
            data = file.read(_LOOK_BACK_BYTES)
    except OSError:
        return ""
    text = data.rstrip().decode(errors="replace")
    return essential(text, max_lines=TAIL_LINES, max_bytes=TAIL_BYTES)


def stats(folder: str, ranks: range) -> tuple[tuple[int, int], ...]:
    """Return size and time of every output file: they change when a rank writes."""
    stats = []
    for path in ranks_by_path(folder, ranks):
        try:
            status = os.stat(path)
            stats.append((status.st_size, status.st_mtime_ns))
        except OSError:
            stats.append((0, 0))
    return tuple(stats)
