"""Rotated files: the file that a log's writer writes, those renamed away from it, and copies of it.

Device and inode identify a file under any name; an offset and a hash of the bytes before it identify how far it was read.
"""

import os
import re
import stat
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from runner.facts.messages.log_search import LogPosition

# Before the offset, those that must not have changed. These are all chosen, not measured.
MARK_BYTES = 256
# Read last, to find the position in a copy that starts elsewhere, and how many of it are searched.
KEPT_BYTES = 1024
MAX_SEARCHED_BYTES = 256 << 20
CHUNK_BYTES = 1 << 20
PACKED = (".gz", ".zst", ".xz", ".bz2", ".lz4", ".zip")

Key = tuple[int, int]


class LogFile:
    """One open file, and how far it was read. Opening raises OSError."""

    def __init__(self, path: Path) -> None:
        # Non-blocking: a pipe of that name must not hold us.
        self.descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        state = os.fstat(self.descriptor)
        if not stat.S_ISREG(state.st_mode):
            self.close()
            raise OSError(f"{path} is no regular file; give the path of a log")
        self.key: Key = (state.st_dev, state.st_ino)
        self.offset = 0
        self.line: int | None = 1
        # The bytes before the offset.
        self.last = b""
        # Its size at the last poll.
        self.seen_bytes = 0
        # When it was last written to, as of the last poll.
        self.changed_ns = 0
        # Something written before its first byte may never have been read.
        self.may_lack = False

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)

    def is_whole(self) -> bool:
        """Record size and time; return False after a truncation: bytes seen before are gone."""
        state = os.fstat(self.descriptor)
        seen = max(self.seen_bytes, self.offset)
        if state.st_size < seen or not self.is_unchanged():
            self.seen_bytes = seen
            return False
        self.seen_bytes, self.changed_ns = state.st_size, state.st_mtime_ns
        return True

    def size(self) -> int:
        """Return the file's size now."""
        return os.fstat(self.descriptor).st_size

    def peek(self, limit: int, offset: int | None = None) -> bytes:
        """Return the next bytes, or those at `offset`, without moving on."""
        return os.pread(self.descriptor, limit, self.offset if offset is None else offset)

    def is_unchanged(self) -> bool:
        """Return whether the bytes read last are still there."""
        mark = self.last[-MARK_BYTES:]
        return self.peek(len(mark), self.offset - len(mark)) == mark

    def advance(self, data: bytes) -> None:
        """Move on past these bytes, the next ones."""
        self.offset += len(data)
        self.last = (self.last + data[-KEPT_BYTES:])[-KEPT_BYTES:]
        if self.line is not None:
            self.line += data.count(b"\n")

    def go_to(self, offset: int, line: int | None) -> None:
        """Continue at an offset."""
        kept = min(offset, KEPT_BYTES)
        self.offset, self.line, self.last = offset, line, self.peek(kept, offset - kept)

    def rewind(self) -> None:
        """Go back to the first byte; behind the hole, if a writer continues at its old offset after a truncation."""
        try:
            first = os.lseek(self.descriptor, 0, os.SEEK_DATA)
        except OSError:
            first = 0
        self.offset, self.line, self.last, self.may_lack = first, 1, b"", True
        self.seen_bytes = 0

    def resume(self, position: LogPosition) -> bool:
        """Continue at a position, if the bytes before it are the same."""
        if self.size() < position.offset:
            return False
        self.go_to(position.offset, position.line)
        return self.fingerprint() == position.before

    def fingerprint(self) -> str:
        """Return the hash of the bytes before the offset."""
        return blake2b(self.last[-MARK_BYTES:], digest_size=8).hexdigest()

    def position(self) -> LogPosition:
        """Return how far the file was read."""
        device, inode = self.key
        return LogPosition(
            device=device,
            inode=inode,
            offset=self.offset,
            before=self.fingerprint(),
            line=self.line,
            changed_ns=self.changed_ns,
        )


def open_log(path: Path) -> LogFile | None:
    """Open a file; None: it is gone. Raises OSError where it may not be read."""
    try:
        return LogFile(path)
    except FileNotFoundError:
        return None


class RotatedFile(NamedTuple):
    """A file under a name that rotation gives; the older of two is the smaller. `order`: -3 of "log.3", else 0."""

    changed_ns: int
    order: int
    path: Path
    key: Key


def rotated_files(log: Path) -> list[RotatedFile]:
    """Return the rotated and copied files of a log, oldest first, without the log itself and compressed files.

    The file changed earlier is older; of files changed at once, the one with the higher number.
    """
    dated = re.compile(
        rf"{re.escape(log.stem)}[.\-_]\d[\w.:\-]{{5,}}{re.escape(log.suffix)}"
        rf"|{re.escape(log.name)}[.\-_](?:(?P<number>\d{{1,5}})|\d[\w.:\-]*|old|bak|prev)"
    )
    files = []
    for entry in _entries(log.parent):
        match = dated.fullmatch(entry.name)
        if match is None or entry.name == log.name or entry.name.endswith(PACKED):
            continue
        try:
            state = entry.stat()
        except OSError:
            # It was removed, or is a dangling link.
            continue
        if stat.S_ISREG(state.st_mode):
            key, order = (state.st_dev, state.st_ino), -int(match["number"] or 0)
            files.append(RotatedFile(state.st_mtime_ns, order, log.parent / entry.name, key))
    return sorted(files)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(folder))
    except FileNotFoundError:
        return []


def find_file(folder: Path, position: LogPosition) -> Path | None:
    """Return the present path of a position's file in a folder; None: it is not there."""
    for entry in _entries(folder):
        if entry.inode() == position.inode and entry.is_file(follow_symlinks=False):
            return folder / entry.name
    return None


def open_at_copy(path: Path, lost: LogFile) -> LogFile | None:
    """Open a copy of a truncated file at the offset where reading stopped; None: it is no copy of it.

    A whole copy has the same bytes before the same offset. A copy that begins elsewhere contains
    the bytes read last; their last occurrence counts, so no line is read twice.
    """
    copy = open_log(path)
    if copy is None:
        return None
    mark = lost.last[-MARK_BYTES:]
    if mark and copy.peek(len(mark), lost.offset - len(mark)) == mark:
        copy.go_to(lost.offset, lost.line)
        return copy
    found = _find_last(copy, lost.last) if len(lost.last) >= MARK_BYTES else None
    if found is not None:
        copy.go_to(found + len(lost.last), lost.line)
        return copy
    copy.close()
    return None


def _find_last(copy: LogFile, needle: bytes) -> int | None:
    found, at = None, max(0, copy.size() - MAX_SEARCHED_BYTES)
    while data := copy.peek(CHUNK_BYTES + len(needle) - 1, at):
        place = data.rfind(needle)
        if place >= 0:
            found = at + place
        at += CHUNK_BYTES
    return found


def begins_like(path: Path, other: LogFile) -> bool:
    """Return whether a file begins like another one: then it is a copy, and the other is not truncated yet."""
    copy = open_log(path)
    if copy is None:
        return False
    first = copy.peek(MARK_BYTES, 0)
    copy.close()
    return other.peek(len(first), 0) == first
