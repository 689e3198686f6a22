"""Piped logs: what a child writes to a pipe that this process reads, followed as a file's lines are.

The reader of the pipe feeds the bytes; nothing here blocks. The newest bytes are kept: a death is explained by its last lines, and
numbers printed to one stream may have their step in a bar on the other.
"""

from pathlib import Path

from runner.collect.step_formats.progress_bars import READ_BYTES, BarSteps
from runner.collect.tails.followed_logs import LIMITS, FollowedLog
from runner.collect.tails.tail import Block, Tail
from runner.facts.messages.log_search import LogPosition

# Chosen: as much of the end of a file is searched for a cause (`end_search`).
KEPT_BYTES = 4 * 1024 * 1024


class PipeTail(Tail):
    """The bytes of one stream. `fed_bytes`: all that ever came; `kept`: the newest of them, KEPT_BYTES at least."""

    def __init__(self, name: str) -> None:
        super().__init__(Path(name), None, LIMITS)
        self.fed_bytes = 0
        self.kept = bytearray()
        self._new = bytearray()
        self._offset, self._line = 0, 1
        self._held_since: float | None = None

    @property
    def position(self) -> LogPosition | None:
        """None: no other process can read on."""
        return None

    @property
    def has_unread(self) -> bool:
        """Whether bytes came that no block has."""
        return bool(self._new)

    def feed(self, data: bytes) -> None:
        """Add bytes."""
        self.fed_bytes += len(data)
        self._new += data
        self.kept += data
        if len(self.kept) > 2 * KEPT_BYTES:
            del self.kept[:-KEPT_BYTES]

    def poll(self, now: float) -> list[Block]:
        """Return what came, up to its last line; a line without an end once it is held for `partial_seconds`."""
        end = self._new.rfind(b"\n") + 1
        if not end and self._new:
            end = self._end_of_partial_line(now)
        elif end:
            self._held_since = None
        if not end:
            return []
        data = bytes(self._new[:end])
        del self._new[:end]
        block = Block(data=data, offset=self._offset, line=self._line, device=0, inode=0)
        self._offset += len(data)
        self._line += data.count(b"\n")
        return [block]

    def _end_of_partial_line(self, now: float) -> int:
        """Return how much of a line without an end is read now: the whole states of its bar, or all of it."""
        self._held_since = now if self._held_since is None else self._held_since
        is_long = len(self._new) > self.limits.block_bytes
        if not (self.is_final or is_long or now >= self._held_since + self.limits.partial_seconds):
            return 0
        self._held_since = None
        bars = self._new.rfind(b"\r") + 1
        return bars if bars and not self.is_final else len(self._new)


class PipedLog(FollowedLog):
    """One stream of a child. It is read when there is something to read."""

    tail: PipeTail

    def _may_have_changed(self, now: float) -> bool:
        return self.tail.has_unread


class PipedBars(BarSteps):
    """Steps by the bars in a stream that is fed."""

    def __init__(self, tail: PipeTail) -> None:
        super().__init__(tail.path)
        self._tail = tail

    def mark(self) -> None:
        """Note how far the bars are."""
        self._marked = self._tail.fed_bytes

    def _read_bars(self) -> tuple[int, bytes]:
        size, kept = self._tail.fed_bytes, self._tail.kept
        start = max(self._offset, size - min(READ_BYTES, len(kept)))
        return start, bytes(kept[len(kept) - (size - start) :])
