"""Tail: follows one log through rotation, truncation and floods, and never reads a byte twice.

Bytes that could not be read are reported as
- *skipped*, in a flood. A poll reads on from the first unread byte, `poll_bytes` at most. When more
  than `behind_bytes` wait, it reads half of `poll_bytes` from the front and half from the end, and
  skips the middle, counted exactly. So the next bytes after a pause, up to half of `poll_bytes`,
  are never skipped.
- *may lack*, after a truncation. Bytes seen at the last poll and not read are `num_lost_bytes`. A
  copy that was made before (copytruncate) is read to its end; bytes written between copy and
  truncation cannot be counted.

Rotated files are read to their end first, then those that came and went since the last poll, then
the new one. A writer may go on in a renamed file for `linger_seconds`. A line without an end is
held for `partial_seconds`, then its whole progress bars or all of it are returned; one longer than
`block_bytes` is returned in pieces. Memory holds the blocks only.

Not noticed: a log truncated and written again with the same bytes up to beyond the position, or
copied and truncated between two polls before its first byte was read; rotated files compressed or
removed before they were read, when the file that was read exists.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from runner.collect.tails.rotated_files import (
    CHUNK_BYTES,
    Key,
    LogFile,
    RotatedFile,
    begins_like,
    find_file,
    open_at_copy,
    open_log,
    rotated_files,
)
from runner.facts.messages.log_search import LogPosition

# Files that one poll goes through; chosen.
MAX_FILES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """How much is read at once. All chosen; tests/collect/test_tails.py measures that a writer of 50 MB/s is kept up with."""

    poll_bytes: int = 32 << 20
    # With more than that waiting, the middle is skipped.
    behind_bytes: int = 128 << 20
    # Of a block, and of the longest line that is returned whole.
    block_bytes: int = 1 << 20
    # Skipped bytes in which lines are counted.
    counted_bytes: int = 1 << 30
    partial_seconds: float = 2.0
    linger_seconds: float = 1.0
    # Of a log without a position: only its last bytes, from the next line on. None: all of it.
    first_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Unchanged bytes of a log. `offset` and `line` (from 1) are those of the first byte, in its file.

    A block ends at the end of a line, unless that line was held too long or is longer than a block.
    `line` is None after more was skipped than is counted. Before the block, bytes with so many line
    ends (None: not counted) were skipped, and others may have been lost uncounted (`may_lack`).
    """

    data: bytes
    offset: int
    line: int | None
    device: int
    inode: int
    is_line_start: bool = True
    skipped_bytes: int = 0
    skipped_lines: int | None = 0
    may_lack: bool = False


class Tail:
    """Follows one log. Poll often; store `position` once the blocks are dealt with, and pass it to the next reader.

    `num_gaps`: how often bytes may have been lost, at least `num_lost_bytes`. Of the skipped lines,
    at least `num_skipped_lines` are known. `trouble`: why the log cannot be read now.
    """

    def __init__(
        self, path: Path, position: LogPosition | None = None, limits: ReadLimits | None = None
    ) -> None:
        self.path = path
        self.limits = limits or ReadLimits()
        self.num_skipped_bytes = self.num_skipped_lines = 0
        self.num_gaps = self.num_lost_bytes = 0
        self.trouble = ""
        self._file: LogFile | None = None
        # The live file after a truncation, while its copy is read first.
        self._truncated: LogFile | None = None
        self._start = position
        # Rotated files that were read, or are older than those -> when they were last written to.
        self._read_files: dict[Key, int] = {}
        # Size when the renamed file last grew, or offset of a line without an end; and since when.
        self._renamed_state: tuple[int, float] | None = None
        self._partial_line: tuple[int, float] | None = None
        # Nothing is written any more: a last line without an end is whole.
        self.is_final = False
        self._skipped: tuple[int, int | None] = (0, 0)
        self._blocks: list[Block] = []

    @property
    def position(self) -> LogPosition | None:
        """Where the next poll continues; None: nothing was read yet."""
        return self._start if self._file is None else self._file.position()

    def close(self) -> None:
        """Close all files."""
        for file in (self._file, self._truncated):
            if file is not None:
                file.close()
        self._file = self._truncated = None

    def poll(self, now: float) -> list[Block]:
        """Return new blocks, oldest first. `now`: seconds of any monotonic clock."""
        self.trouble = ""
        self._blocks = []
        try:
            for _ in range(MAX_FILES):
                left = self.limits.poll_bytes - sum(len(block.data) for block in self._blocks)
                file = self._file or self._first()
                if file is None or left <= 0:
                    break
                over = self._is_over(file, now)
                if not file.is_whole():
                    self._on_truncation(file)
                    continue
                if self._read_copies_first(file):
                    continue
                self._read(file, now, left, is_over=over)
                if not over or file.offset < file.size() or not self._open_next(file):
                    break
        except OSError as error:
            self.trouble = f"{self.path} cannot be read: {error}"
        return self._blocks

    def _first(self) -> LogFile | None:
        """Open the first file: that of the position, under its present name, or the log."""
        position = self._start
        path = find_file(self.path.parent, position) if position else None
        file = open_log(path) if path else None
        if position is not None and path is not None and file is not None:
            if file.resume(position):
                self._mark_older_read(path, file)
                self._file = file
                return file
            file.close()
        live = open_log(self.path)
        if live is None or position is None:
            self._file = live
            if live is not None and self.limits.first_bytes is not None:
                _skip_to_last(live, self.limits.first_bytes)
            self._mark_read(rotated_files(self.path) if live else [])
            return live
        live.rewind()
        self.num_gaps += 1
        return self._resume_in_copy(position, live)

    def _resume_in_copy(self, position: LogPosition, live: LogFile) -> LogFile:
        """Find the position in a copy of the log, which was truncated between two readers; without one, begin at the start."""
        files = rotated_files(self.path)
        for rotated in files:
            may_be = position.offset and rotated.changed_ns >= position.changed_ns
            copy = open_log(rotated.path) if may_be else None
            if copy is not None and copy.resume(position):
                self._mark_older_read(rotated.path, copy)
                self._file, self._truncated = copy, live
                return copy
            if copy is not None:
                copy.close()
        self._mark_read(files)
        self._file = live
        return live

    def _mark_read(self, files: list[RotatedFile]) -> None:
        self._read_files |= {rotated.key: rotated.changed_ns for rotated in files}

    def _mark_older_read(self, path: Path, file: LogFile) -> None:
        """Mark the rotated files that are older than this one as read."""
        files = rotated_files(self.path)
        if path != self.path:
            changed_ns = os.fstat(file.descriptor).st_mtime_ns
            keys = [rotated.key for rotated in files]
            older = keys.index(file.key) if file.key in keys else 0
            files = files[:older] or [one for one in files if one.changed_ns < changed_ns]
        self._mark_read(files)

    def _is_over(self, file: LogFile, now: float) -> bool:
        """Return whether a file has no writer any more: it is a copy, or was renamed and has not grown for a while."""
        if self._truncated is not None:
            return True
        live = self._live_key()
        if live is None or live == file.key:
            self._renamed_state = None
            return False
        if self._unread(file):
            return True
        size = file.size()
        if self._renamed_state is None or self._renamed_state[0] != size:
            self._renamed_state = (size, now)
        return now - self._renamed_state[1] >= self.limits.linger_seconds

    def _live_key(self) -> Key | None:
        try:
            state = os.stat(self.path)
        except FileNotFoundError:
            return None
        return (state.st_dev, state.st_ino)

    def _unread(self, file: LogFile) -> list[RotatedFile]:
        """Return the rotated files and copies that are new since the last poll, oldest first."""
        others = (file.key, self._truncated.key if self._truncated else None)
        return [
            rotated
            for rotated in rotated_files(self.path)
            if rotated.key not in self._read_files and rotated.key not in others
        ]

    def _open_next(self, file: LogFile) -> bool:
        """Continue with the file after this one; False: there is none yet."""
        unread = self._unread(file)
        after = open_log(unread[0].path) if unread else self._truncated or open_log(self.path)
        if after is None:
            return False
        if os.fstat(file.descriptor).st_nlink == 0:
            # It was removed, and so may have been its successors.
            after.may_lack = True
            self.num_gaps += 1
        if after is self._truncated:
            self._truncated = None
        self._read_files[file.key] = os.fstat(file.descriptor).st_mtime_ns
        self._file, self._renamed_state, self._partial_line = after, None, None
        file.close()
        return True

    def _on_truncation(self, file: LogFile) -> None:
        """Continue after a truncation: with a copy of the former content, if there is one, then from the first byte."""
        unread = file.seen_bytes - file.offset
        self._partial_line = None
        self.num_gaps += 1
        # A truncated copy is useless.
        if self._truncated is not None:
            self._open_next(file)
            return
        copy = None
        for rotated in rotated_files(self.path):
            # An unchanged older file is no copy, though it may begin with the same bytes.
            is_new = rotated.changed_ns > self._read_files.get(rotated.key, -1)
            if is_new and rotated.key != file.key and copy is None:
                copy = open_at_copy(rotated.path, file)
        file.rewind()
        if copy is None:
            self.num_lost_bytes += unread
        else:
            self._file, self._truncated = copy, file

    def _read_copies_first(self, file: LogFile) -> bool:
        """Read the copies first that were made before a byte of the log was read; return whether there are any."""
        if file.offset or self._truncated is not None or self._live_key() != file.key:
            return False
        for rotated in self._unread(file):
            if not begins_like(rotated.path, file):
                self._file, self._truncated = LogFile(rotated.path), file
                return True
        return False

    def _read(self, file: LogFile, now: float, limit: int, *, is_over: bool) -> None:
        limits, size = self.limits, file.size()
        if limit < limits.poll_bytes or size - file.offset <= max(limits.behind_bytes, limit):
            self._add_blocks(file, now, limit, is_over=is_over)
            return
        self._add_blocks(file, now, limit // 2, is_over=is_over)
        self._skip(file, size - limit // 2)
        self._add_blocks(file, now, limit // 2, is_over=is_over)

    def _add_blocks(self, file: LogFile, now: float, limit: int, *, is_over: bool) -> None:
        """Add blocks of the next bytes, `limit` at most."""
        most = min(self.limits.block_bytes, max(1, limit))
        while limit > 0:
            data = file.peek(min(most, limit))
            data = data[: self._cut(file, data, now, is_over=is_over, is_full=len(data) == most)]
            if not data or not file.is_unchanged():
                break
            self._blocks.append(self._block(file, data))
            limit -= len(data)

    def _cut(self, file: LogFile, data: bytes, now: float, *, is_over: bool, is_full: bool) -> int:
        """Return how many of the next bytes go into a block now."""
        end = data.rfind(b"\n") + 1
        if end or not data:
            return end
        if is_full:
            return data.rfind(b"\r") + 1 or _whole_characters(data)
        if file.offset + len(data) < file.size():
            # The poll has reached its limit.
            return 0
        if is_over or self.is_final:
            return len(data)
        if self._partial_line is None or self._partial_line[0] != file.offset:
            self._partial_line = (file.offset, now)
        if now - self._partial_line[1] < self.limits.partial_seconds:
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
            may_lack=file.may_lack,
        )
        file.may_lack = False
        file.advance(data)
        self._skipped, self._partial_line = (0, 0), None
        return block

    def _skip(self, file: LogFile, target: int) -> None:
        """Skip the bytes before `target`, and the rest of its line unless there is no other."""
        ahead = file.peek(self.limits.block_bytes, target)
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
        if target - file.offset > self.limits.counted_bytes:
            return None
        counted, at = 0, file.offset
        while at < target:
            data = file.peek(min(CHUNK_BYTES, target - at), at)
            if not data:
                # It was truncated meanwhile.
                return None
            counted += data.count(b"\n")
            at += len(data)
        return counted


def _whole_characters(data: bytes) -> int:
    """Return the length without an incomplete UTF-8 character at the end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        # The first byte of a character.
        if byte & 0xC0 != 0x80:
            needs = 1 + (byte >= 0xC0) + (byte >= 0xE0) + (byte >= 0xF0)
            return len(data) - back if needs > back and len(data) > back else len(data)
    return len(data)


def _skip_to_last(file: LogFile, num_bytes: int) -> None:
    """Continue at the first line that begins in the last bytes of a file; at its end, if none does."""
    start = max(0, file.size() - num_bytes)
    if start:
        data = file.peek(num_bytes, start)
        file.go_to(start + (data.find(b"\n") + 1 or len(data)), None)
