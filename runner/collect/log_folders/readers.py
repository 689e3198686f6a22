"""Readers: logs in, what was found in each out, in their order. The same function reads a log in this process and in another."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from runner.collect.catalogues.catalogues import all_catalogues
from runner.collect.diagnosis import Diagnosis, Log
from runner.collect.lines import decode_line, plain, unwrapped
from runner.collect.log_folders import kubernetes_events
from runner.collect.log_folders.inputs import LogSource
from runner.collect.log_folders.packed_files import LogBytes
from runner.errors import UserError
from runner.facts.matches import Match

# Matches of one signature in one log that are kept, if there are few logs and if there are many: half of the first, half of the
# last. All chosen.
MOST_REPEATS, LEAST_REPEATS, MAX_MATCHES_OF_ALL = 1000, 20, 50_000
# Of a log's start and end, by which it is known when it began and ended; chosen.
END_BYTES, MAX_END_LINES = 8192, 20
_LINE_ENDS = re.compile(rb"[\r\n]+")


class LogEnd(NamedTuple):
    """The first or the last line of a log that has a time, Unix seconds (None: none has), and the outermost line's text."""

    at: float | None = None
    text: str = ""


class ReadLog(NamedTuple):
    """A log that was read. `error`: why it could not be read, or not on; `notes`: what of it was not read."""

    log: Log
    num_packed_bytes: int
    error: str
    notes: tuple[str, ...]
    begin: LogEnd
    end: LogEnd

    @property
    def is_whole(self) -> bool:
        """Whether every byte was read that was there at the start."""
        return not self.error and not self.notes


def max_repeats(num_logs: int) -> int:
    """Return how many matches of one signature in one log are kept, so that memory does not grow with the number of logs."""
    return max(LEAST_REPEATS, min(MOST_REPEATS, MAX_MATCHES_OF_ALL // max(1, num_logs)))


class SourceReader:
    """Reads logs, one after the other, with one engine."""

    def __init__(self, *, own_format: str | None, repeats: int) -> None:
        """`own_format`: a pattern for lines with a step; raises UserError for a wrong one. `repeats`: see `max_repeats`."""
        self._diagnosis = Diagnosis(own_format=own_format)
        # Loaded before workers are forked, which have them then.
        all_catalogues()
        self._repeats = repeats

    def read(self, source: LogSource, on_bytes: Callable[[int], None]) -> ReadLog:
        """Read a log from its start; `on_bytes` is called with the bytes of the file that were read since the last call."""
        log = self._diagnosis.log(source.path, origin=source.origin)
        self._diagnosis.logs.clear()
        stream = LogBytes(source.path)
        ends, error, position = _Ends(), "", 0
        try:
            for block in stream.blocks():
                log.feed(block)
                if log.is_binary:
                    break
                ends.feed(block)
                on_bytes(stream.num_packed_bytes - position)
                position = stream.num_packed_bytes
        except UserError as failure:
            error = str(failure)
        log.finish()
        found = log.without_reader()
        found.matches = _first_and_last(found.matches, self._repeats)
        if source.path.endswith(".json") and source.size <= kubernetes_events.MAX_BYTES:
            found.matches = _with_events(source.path, found.matches)
        notes = tuple(f"{source.path}: {note}" for note in stream.notes)
        on_bytes(max(0, source.size - position))
        return ReadLog(found, source.size, error, notes, ends.begin(), ends.end())


def read_here(
    sources: Sequence[LogSource], reader: SourceReader, on_bytes: Callable[[int], None]
) -> Iterator[ReadLog]:
    """Read logs in this process."""
    for source in sources:
        yield reader.read(source, on_bytes)


def _with_events(path: str, matches: list[Match]) -> list[Match]:
    try:
        content = b"".join(LogBytes(path).blocks()) if matches else b""
    except UserError:
        return matches
    return kubernetes_events.with_events(matches, content)


def _first_and_last(matches: list[Match], most: int) -> list[Match]:
    """Return of each signature the first and the last matches, in their order."""
    totals = Counter(match.signature for match in matches)
    if max(totals.values(), default=0) <= most:
        return matches
    num: Counter[str] = Counter()
    kept = []
    for match in matches:
        num[match.signature] += 1
        at, total = num[match.signature], totals[match.signature]
        if at <= most // 2 or at > total - (most - most // 2):
            kept.append(match)
    return kept


class _Ends:
    """The first and the last bytes of a log."""

    def __init__(self) -> None:
        self._first = self._last = b""

    def feed(self, block: bytes) -> None:
        if len(self._first) < END_BYTES:
            self._first += block[: END_BYTES - len(self._first)]
        self._last = (
            block[-END_BYTES:] if len(block) >= END_BYTES else (self._last + block)[-END_BYTES:]
        )

    def begin(self) -> LogEnd:
        return _end_of(_LINE_ENDS.split(self._first))

    def end(self) -> LogEnd:
        return _end_of(_LINE_ENDS.split(self._last)[::-1])


def _end_of(lines: Sequence[bytes]) -> LogEnd:
    """Return the first of these lines that has a time, and the text of the first that is not empty."""
    shown = ""
    looked_at = 0
    for raw in lines:
        if not raw.strip():
            continue
        line = unwrapped(decode_line(raw))
        shown = shown or plain(line.text).strip()[:200]
        if line.at is not None:
            return LogEnd(line.at, shown)
        looked_at += 1
        if looked_at == MAX_END_LINES:
            break
    return LogEnd(None, shown)
