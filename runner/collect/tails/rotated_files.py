"""Files of one log: the one that is written, those that were renamed away from it, and copies of it.

A file is known by device and inode, whatever it is called; how far it was read is known by an offset and by what stands before it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

# before the offset, that must still be there; chosen, not measured
MARK_BYTES = 256
# of what was read last, to find it again in a copy that starts elsewhere; chosen, not measured
KEPT_BYTES = 1024
# of a copy that are searched for it; chosen, not measured
MAX_SEARCHED_BYTES = 256 << 20
CHUNK_BYTES = 1 << 20
PACKED = (".gz", ".zst", ".xz", ".bz2", ".lz4", ".zip")

Key = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """How far a log was read, to be stored durably by whoever did something about what was read.

    `offset`: of the first byte that was not read. `before`: a hash of up to MARK_BYTES bytes before it. `line`: the number of the
    line that it stands in; None: not known, since too much was skipped. `changed_ns`: when the file had last been written to.
    """

    device: int
    inode: int
    offset: int
    before: str
    line: int | None
    changed_ns: int = 0


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
        # what stands before the offset
        self.last = b""
        # its size when it was looked at last
        self.seen_bytes = 0
        # when it had been written to, as of then
        self.changed_ns = 0
        # something written before its first byte may never have been seen
        self.may_lack = False

    def close(self) -> None:
        """Let go of the file."""
        os.close(self.descriptor)

    def is_whole(self) -> bool:
        """Say whether what was read, and seen, is still there, and note size and time; else the file was truncated."""
        state = os.fstat(self.descriptor)
        seen = max(self.seen_bytes, self.offset)
        if state.st_size < seen or not self.is_unchanged():
            self.seen_bytes = seen
            return False
        self.seen_bytes, self.changed_ns = state.st_size, state.st_mtime_ns
        return True

    def size(self) -> int:
        """Return how many bytes there are now."""
        return os.fstat(self.descriptor).st_size

    def peek(self, limit: int, offset: int | None = None) -> bytes:
        """Return the next bytes, or those at `offset`, without taking them."""
        return os.pread(self.descriptor, limit, self.offset if offset is None else offset)

    def is_unchanged(self) -> bool:
        """Say whether what was read last is still there."""
        mark = self.last[-MARK_BYTES:]
        return self.peek(len(mark), self.offset - len(mark)) == mark

    def take(self, data: bytes) -> None:
        """Note that these bytes, the next ones, were read."""
        self.offset += len(data)
        self.last = (self.last + data[-KEPT_BYTES:])[-KEPT_BYTES:]
        if self.line is not None:
            self.line += data.count(b"\n")

    def go_to(self, offset: int, line: int | None) -> None:
        """Go on at an offset."""
        kept = min(offset, KEPT_BYTES)
        self.offset, self.line, self.last = offset, line, self.peek(kept, offset - kept)

    def start_again(self) -> None:
        """Go back to the first byte: of a file that a writer goes on with at its old offset, the first one after the hole."""
        try:
            first = os.lseek(self.descriptor, 0, os.SEEK_DATA)
        except OSError:
            first = 0
        self.offset, self.line, self.last, self.may_lack = first, 1, b"", True
        self.seen_bytes = 0

    def resume(self, position: Position) -> bool:
        """Go on at a position, if what stood before it stands there."""
        if self.size() < position.offset:
            return False
        self.go_to(position.offset, position.line)
        return self.fingerprint() == position.before

    def fingerprint(self) -> str:
        """Return the hash of what stands before the offset."""
        return blake2b(self.last[-MARK_BYTES:], digest_size=8).hexdigest()

    def position(self) -> Position:
        """Return how far it was read."""
        device, inode = self.key
        return Position(
            device=device,
            inode=inode,
            offset=self.offset,
            before=self.fingerprint(),
            line=self.line,
            changed_ns=self.changed_ns,
        )


def opened(path: Path) -> LogFile | None:
    """Open a file; None: it is not there any more. Raises OSError where it may not be read."""
    try:
        return LogFile(path)
    except FileNotFoundError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Relative:
    """A file in the log's folder, under a name that rotation gives. `number`: of "log.3"; None: it is named otherwise."""

    path: Path
    key: Key
    changed_ns: int
    number: int | None


def family(log: Path) -> list[Relative]:
    """Return rotated and copied files of a log, oldest first, the log itself and packed ones left out.

    What was changed earlier is older; of files changed in the same moment, the one with the higher number.
    """
    dated = re.compile(
        rf"{re.escape(log.stem)}[.\-_]\d[\w.:\-]{{5,}}{re.escape(log.suffix)}"
        rf"|{re.escape(log.name)}[.\-_](?:(?P<number>\d{{1,5}})|\d[\w.:\-]*|old|bak|prev)"
    )
    found = []
    for name, match in _matching(log, dated):
        try:
            state = os.stat(log.parent / name)
        except OSError:
            # it went away, or points nowhere
            continue
        number = match["number"]
        if stat.S_ISREG(state.st_mode):
            found.append(
                Relative(
                    path=log.parent / name,
                    key=(state.st_dev, state.st_ino),
                    changed_ns=state.st_mtime_ns,
                    number=None if number is None else int(number),
                )
            )
    return sorted(
        found, key=lambda relative: (relative.changed_ns, -(relative.number or 0), relative.path)
    )


def _matching(log: Path, pattern: re.Pattern[str]) -> Iterator[tuple[str, re.Match[str]]]:
    try:
        names = os.listdir(log.parent)
    except FileNotFoundError:
        return
    for name in names:
        match = pattern.fullmatch(name)
        if match is not None and name != log.name and not name.endswith(PACKED):
            yield name, match


def named(folder: Path, position: Position) -> Path | None:
    """Return under which name the file of a position stands in a folder now; None: under none."""
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return None
    for entry in entries:
        if entry.inode() == position.inode and entry.is_file(follow_symlinks=False):
            return folder / entry.name
    return None


def open_at_copy(path: Path, lost: LogFile) -> LogFile | None:
    """Open a copy of a file that was truncated, where reading it stopped; None: it is no copy of it.

    A whole copy has it at the same offset. One that begins elsewhere has what was read last in it; in the last place, if in
    several: better something is missed than read twice.
    """
    copy = opened(path)
    if copy is None:
        return None
    mark = lost.last[-MARK_BYTES:]
    if (
        mark
        and copy.size() >= lost.offset
        and copy.peek(len(mark), lost.offset - len(mark)) == mark
    ):
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
    """Say whether a file begins like another one: a copy of it, which it was not truncated after yet."""
    copy = opened(path)
    if copy is None:
        return False
    first = copy.peek(MARK_BYTES, 0)
    copy.close()
    return other.peek(len(first), 0) == first
