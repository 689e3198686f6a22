"""Lines of one output file, read from a position on, so that a follower keeps one number for each file."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

# A longer line is given in pieces. Chosen, not measured.
MAX_LINE_BYTES = 16 * 1024
_CHUNK_BYTES = 64 * 1024
# A line that has no end for so long, such as a progress bar, is given as it is. Chosen, not measured.
UNFINISHED_SECONDS = 2.0
# Colours and the like, which a terminal would obey.
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[@-Z\\-_]")


class OutputFile:
    """One output file of a rank. `stream`: "out" or "err"."""

    def __init__(self, path: Path, rank: int, stream: str) -> None:
        self.path, self.rank, self.stream = path, rank, stream
        self.position = 0
        # Whether the file was cut back since the last call: what had not been read by then is in `<name>.1`, or lost.
        self.was_cut = False
        # Of a line without its end, and since when.
        self._unfinished_bytes, self._unfinished_at = 0, 0.0

    def seek_last_lines(self, num_lines: int) -> None:
        """Continue at the last lines of the file as it is now."""
        try:
            with self.path.open("rb") as file:
                self.position = _start_of_last_lines(file.fileno(), num_lines)
        except OSError:
            self.position = 0

    def read(self, *, now: float = 0.0, is_last: bool) -> Iterator[str]:
        """Yield the lines written up to now; a line without its end if it is as old as UNFINISHED_SECONDS, or with `is_last`."""
        self.was_cut = False
        try:
            size = self.path.stat().st_size
        except OSError:
            return
        if size < self.position:
            self.was_cut, self.position, self._unfinished_bytes = True, 0, 0
        is_old = self._unfinished_bytes > 0 and now >= self._unfinished_at + UNFINISHED_SECONDS
        is_flushed = is_last or is_old
        if size - self.position <= (0 if is_flushed else self._unfinished_bytes):
            return
        try:
            with self.path.open("rb") as file:
                file.seek(self.position)
                for line, num_bytes in _lines(
                    file.fileno(), size - self.position, is_last=is_flushed
                ):
                    self.position += num_bytes
                    self._unfinished_bytes = 0
                    yield line
        except OSError:
            return
        if self._unfinished_bytes == 0:
            self._unfinished_at = now
        self._unfinished_bytes = max(0, size - self.position)


def _lines(file: int, num_bytes: int, *, is_last: bool) -> Iterator[tuple[str, int]]:
    """Yield each line that has an end, or is too long, with the bytes that it takes; `is_last`: the rest, too."""
    rest = b""
    while num_bytes > 0 and (chunk := os.read(file, min(num_bytes, _CHUNK_BYTES))):
        num_bytes -= len(chunk)
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield from _pieces(line, 1)
        while len(rest) > MAX_LINE_BYTES:
            yield readable(rest[:MAX_LINE_BYTES]), MAX_LINE_BYTES
            rest = rest[MAX_LINE_BYTES:]
    if rest and is_last:
        yield from _pieces(rest, 0)


def _pieces(line: bytes, end_bytes: int) -> Iterator[tuple[str, int]]:
    while len(line) > MAX_LINE_BYTES:
        yield readable(line[:MAX_LINE_BYTES]), MAX_LINE_BYTES
        line = line[MAX_LINE_BYTES:]
    yield readable(line), len(line) + end_bytes


def readable(line: bytes) -> str:
    """Return a line without colours; of a progress bar that wrote over itself, its last state."""
    text = _ESCAPES.sub("", line.decode(errors="replace"))
    states = [state for state in text.split("\r") if state.strip()]
    return (states[-1] if states else "").expandtabs().rstrip()


def _start_of_last_lines(file: int, num_lines: int) -> int:
    """Return where the last lines begin, or the last part of them if they are long: at most `num_lines` x MAX_LINE_BYTES."""
    size = os.lseek(file, 0, os.SEEK_END)
    position, found = size, 0
    least = max(0, size - num_lines * MAX_LINE_BYTES)
    while position > least:
        start = max(least, position - _CHUNK_BYTES)
        chunk = os.pread(file, position - start, start)
        for at in range(len(chunk) - 1, -1, -1):
            # The end of the last line begins none.
            if chunk[at] == 10 and start + at < size - 1:
                found += 1
                if found == num_lines:
                    return start + at + 1
        position = start
    return least
