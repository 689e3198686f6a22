"""Tail: follows one log through rotation, truncation and floods, and never reads a byte twice.

What is told of what could not be read:
- *skipped*: under a flood. What is new since the last look is read from its first byte on, `look_bytes` at once. When more than
  `behind_bytes` are waiting, half of that is read from the front and half from the end, and the middle is skipped, counted exactly.
  So the bytes after the last one that was read are always the next to be read: whatever comes first after a quiet time, within
  half of `look_bytes`, is never among what is skipped.
- *may lack*: the log was truncated. Bytes that were there at the last look and were not read are `num_lost_bytes`; a copy that was
  made before (copytruncate) is looked for and read to its end, but what was written between copy and truncation nobody can count.

Rotated files are read to their end first, then those that came and went since the last look, then the new one. A writer may go on
in a file for `linger_seconds` after it was renamed. A line without an end is held back for `partial_seconds`, then its pictures (of
a progress bar) or all of it are given; one longer than `block_bytes` is given in pieces. Nothing is kept in memory but the blocks.

Not seen: a log that was truncated and written anew with the very same bytes up to beyond the position, or copied and truncated
while nobody read it and before a byte of it was read; rotated files that were packed or removed before they were read, when the
file that was read is there still.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from runner.collect.tails.rotated_files import (
    CHUNK_BYTES,
    Key,
    LogFile,
    Position,
    Relative,
    begins_like,
    family,
    named,
    open_at_copy,
    opened,
)

__all__ = ["Block", "Policy", "Position", "Tail"]

# that one look goes through; chosen
MAX_FILES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How much is read at once. All chosen; that a writer of 50 MB/s is kept up with is measured in tests/collect/test_tails.py."""

    # per look
    look_bytes: int = 32 << 20
    # more than that waiting: the middle is skipped
    behind_bytes: int = 128 << 20
    # per block, and the longest line that is given whole
    block_bytes: int = 1 << 20
    # of what is skipped, in which lines are counted
    counted_bytes: int = 1 << 30
    partial_seconds: float = 2.0
    linger_seconds: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Bytes of a log, as they stand in it. `offset` and `line` (from 1) are those of the first byte, in its file.

    A block ends at the end of a line, unless that line is held back no longer or is longer than a block. `line` is None after more
    was skipped than is counted.
    """

    data: bytes
    offset: int
    line: int | None
    device: int
    inode: int
    is_line_start: bool = True
    # between the block before and this one
    skipped_bytes: int = 0
    # line ends among them; None: not counted
    skipped_lines: int | None = 0
    # before this block something may have been lost that nobody can count
    may_lack: bool = False


class Tail:
    """Follows one log. Look often; store `position` once what `look` gave is dealt with, and hand it to the next reader."""

    def __init__(
        self, path: Path, position: Position | None = None, policy: Policy | None = None
    ) -> None:
        self.path = path
        self.policy = policy or Policy()
        self.num_skipped_bytes = 0
        # at least
        self.num_skipped_lines = 0
        # how often something may have been lost
        self.num_gaps = 0
        # of these, at least
        self.num_lost_bytes = 0
        # why the log cannot be read at the moment
        self.trouble = ""
        self._file: LogFile | None = None
        # truncated; its copy is read first
        self._waiting: LogFile | None = None
        self._is_copy = False
        self._from = position
        # rotated files that were read, or are older than what was -> when they had last been written to
        self._known: dict[Key, int] = {}
        # size and time when the renamed file last grew
        self._left: tuple[int, float] | None = None
        # offset of a line without end, and since when
        self._held: tuple[int, float] | None = None
        self._skipped: tuple[int, int | None] = (0, 0)
        self._given: list[Block] = []

    @property
    def position(self) -> Position | None:
        """Where the next look goes on; None: nothing was read yet."""
        return self._from if self._file is None else self._file.position()

    def close(self) -> None:
        """Let go of all files."""
        for file in (self._file, self._waiting):
            if file is not None:
                file.close()
        self._file = self._waiting = None

    def look(self, now: float) -> list[Block]:
        """Return what is new, oldest first. `now`: seconds of any clock that does not run back."""
        self.trouble = ""
        self._given = []
        try:
            for _ in range(MAX_FILES):
                left = self.policy.look_bytes - sum(len(block.data) for block in self._given)
                file = self._file or self._first()
                if file is None or left <= 0:
                    break
                over = self._is_over(file, now)
                if not file.is_whole():
                    self._mend(file)
                    continue
                if self._turn_aside(file):
                    continue
                self._read(file, now, left, is_over=over)
                if not over or file.offset < file.size() or not self._move_on(file):
                    break
        except OSError as error:
            self.trouble = f"{self.path} cannot be read: {error}"
        return self._given

    # ---- which file ---------------------------------------------------------------------------------------------------------

    def _first(self) -> LogFile | None:
        """Open the file to begin with: that of the position, wherever it is now, or the log."""
        position = self._from
        path = named(self.path.parent, position) if position else None
        file = opened(path) if path else None
        if position is not None and path is not None and file is not None:
            if file.resume(position):
                self._know_older(path, file)
                self._file = file
                return file
            file.close()
        live = opened(self.path)
        if live is None or position is None:
            self._file = live
            self._know(family(self.path) if live else [])
            return live
        live.start_again()
        self.num_gaps += 1
        return self._resume_in_copy(position, live)

    def _resume_in_copy(self, position: Position, live: LogFile) -> LogFile:
        """Find the position in a copy of the log, which was truncated while nobody read it; without one, begin anew."""
        relatives = family(self.path)
        for relative in relatives:
            may_be = position.offset and relative.changed_ns >= position.changed_ns
            copy = opened(relative.path) if may_be else None
            if copy is not None and copy.resume(position):
                self._know_older(relative.path, copy)
                self._file, self._waiting, self._is_copy = copy, live, True
                return copy
            if copy is not None:
                copy.close()
        self._know(relatives)
        self._file = live
        return live

    def _know(self, relatives: list[Relative]) -> None:
        self._known |= {relative.key: relative.changed_ns for relative in relatives}

    def _know_older(self, path: Path, file: LogFile) -> None:
        """Take rotated files that are older than this one for read."""
        relatives = family(self.path)
        if path != self.path:
            changed_ns = os.fstat(file.descriptor).st_mtime_ns
            keys = [relative.key for relative in relatives]
            older = keys.index(file.key) if file.key in keys else 0
            relatives = relatives[:older] or [
                relative for relative in relatives if relative.changed_ns < changed_ns
            ]
        self._know(relatives)

    def _is_over(self, file: LogFile, now: float) -> bool:
        """Say whether nobody writes to a file any more: it is a copy, or was renamed and has not grown for a while."""
        if self._is_copy:
            return True
        live = self._live_key()
        if live is None or live == file.key:
            self._left = None
            return False
        if self._unread(file):
            return True
        size = file.size()
        if self._left is None or self._left[0] != size:
            self._left = (size, now)
        return now - self._left[1] >= self.policy.linger_seconds

    def _live_key(self) -> Key | None:
        try:
            state = os.stat(self.path)
        except FileNotFoundError:
            return None
        return (state.st_dev, state.st_ino)

    def _unread(self, file: LogFile) -> list[Relative]:
        """Return the rotated files and copies that came since the last look, oldest first."""
        others = (file.key, self._waiting.key if self._waiting else None)
        return [
            relative
            for relative in family(self.path)
            if relative.key not in self._known and relative.key not in others
        ]

    def _move_on(self, file: LogFile) -> bool:
        """Go on with the file after this one; False: there is none yet."""
        unread = self._unread(file)
        after = opened(unread[0].path) if unread else self._waiting or opened(self.path)
        if after is None:
            return False
        if os.fstat(file.descriptor).st_nlink == 0:
            # it was removed, and so may have been others that came after it
            after.may_lack = True
            self.num_gaps += 1
        if after is self._waiting:
            self._waiting = None
        self._is_copy = self._waiting is not None
        self._known[file.key] = os.fstat(file.descriptor).st_mtime_ns
        self._file, self._left, self._held = after, None, None
        file.close()
        return True

    def _mend(self, file: LogFile) -> None:
        """Go on after a truncation: with a copy of what was there before, if there is one, then from the first byte."""
        unread = file.seen_bytes - file.offset
        self._held = None
        self.num_gaps += 1
        # it is no copy any more
        if self._is_copy:
            self._move_on(file)
            return
        copy = None
        for relative in family(self.path):
            # What was there before and has not changed is no copy, though it may begin with the same words.
            is_new = relative.changed_ns > self._known.get(relative.key, -1)
            if is_new and relative.key != file.key and copy is None:
                copy = open_at_copy(relative.path, file)
        file.start_again()
        if copy is None:
            self.num_lost_bytes += unread
        else:
            self._file, self._waiting, self._is_copy = copy, file, True

    def _turn_aside(self, file: LogFile) -> bool:
        """Read copies first that were made of the log before a byte of it was read; say whether there are any."""
        if file.offset or self._is_copy or self._live_key() != file.key:
            return False
        for relative in self._unread(file):
            if not begins_like(relative.path, file):
                self._file, self._waiting, self._is_copy = LogFile(relative.path), file, True
                return True
        return False

    # ---- what of it ---------------------------------------------------------------------------------------------------------

    def _read(self, file: LogFile, now: float, limit: int, *, is_over: bool) -> None:
        policy, size = self.policy, file.size()
        if limit < policy.look_bytes or size - file.offset <= max(policy.behind_bytes, limit):
            self._give(file, now, limit, is_over=is_over)
            return
        self._give(file, now, limit // 2, is_over=is_over)
        self._skip(file, size - limit // 2)
        self._give(file, now, limit // 2, is_over=is_over)

    def _give(self, file: LogFile, now: float, limit: int, *, is_over: bool) -> None:
        """Add blocks of the next bytes, no more than `limit`."""
        most = min(self.policy.block_bytes, max(1, limit))
        while limit > 0:
            data = file.peek(min(most, limit))
            data = data[: self._cut(file, data, now, is_over=is_over, is_full=len(data) == most)]
            if not data or not file.is_unchanged():
                break
            self._given.append(self._block(file, data))
            limit -= len(data)

    def _cut(self, file: LogFile, data: bytes, now: float, *, is_over: bool, is_full: bool) -> int:
        """Return how much of the next bytes is to be given now."""
        end = data.rfind(b"\n") + 1
        if end or not data:
            return end
        if is_full:
            return data.rfind(b"\r") + 1 or _whole_characters(data)
        if file.offset + len(data) < file.size():
            # the look has read enough
            return 0
        if is_over:
            return len(data)
        if self._held is None or self._held[0] != file.offset:
            self._held = (file.offset, now)
        if now - self._held[1] < self.policy.partial_seconds:
            return 0
        return data.rfind(b"\r") + 1 or _whole_characters(data)

    def _block(self, file: LogFile, data: bytes) -> Block:
        skipped_bytes, skipped_lines = self._skipped
        device, inode = file.key
        block = Block(
            data=data,
            offset=file.offset,
            line=file.line,
            device=device,
            inode=inode,
            is_line_start=not file.last or file.last.endswith(b"\n"),
            skipped_bytes=skipped_bytes,
            skipped_lines=skipped_lines,
        )
        if file.may_lack:
            block, file.may_lack = replace(block, may_lack=True), False
        file.take(data)
        self._skipped, self._held = (0, 0), None
        return block

    def _skip(self, file: LogFile, target: int) -> None:
        """Leave out what stands before `target`, and the rest of the line that it stands in, unless that is all there is."""
        ahead = file.peek(self.policy.block_bytes, target)
        line_start = ahead.find(b"\n") + 1
        target += line_start if line_start < len(ahead) else 0
        num_bytes = target - file.offset
        num_lines = self._count_lines(file, target)
        line = None if file.line is None or num_lines is None else file.line + num_lines
        file.go_to(target, line)
        before_bytes, before_lines = self._skipped
        total = None if num_lines is None or before_lines is None else before_lines + num_lines
        self._skipped = (before_bytes + num_bytes, total)
        self.num_skipped_bytes += num_bytes
        self.num_skipped_lines += num_lines or 0

    def _count_lines(self, file: LogFile, target: int) -> int | None:
        if target - file.offset > self.policy.counted_bytes:
            return None
        counted, at = 0, file.offset
        while at < target:
            data = file.peek(min(CHUNK_BYTES, target - at), at)
            if not data:
                # it was truncated just now
                return None
            counted += data.count(b"\n")
            at += len(data)
        return counted


def _whole_characters(data: bytes) -> int:
    """Return the length without a character of UTF-8 that is cut at the end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        # the first byte of a character
        if byte & 0xC0 != 0x80:
            needs = 1 + (byte >= 0xC0) + (byte >= 0xE0) + (byte >= 0xF0)
            return len(data) - back if needs > back and len(data) > back else len(data)
    return len(data)
