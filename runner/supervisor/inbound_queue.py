"""Messages that the store's streams brought and that were not processed yet. Heartbeats wait behind everything else.

A large fleet sends thousands of messages a second, so heartbeats are read once in a while, not one by one. Signals and requests
are processed for a moment, then heartbeats, a few at a time between signals that arrive meanwhile: a long queue of signals does
not make nodes look silent. Heartbeats in the queue were not observed yet: silence is judged up to `lag_seconds` ago.
"""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping

from runner.facts.store_names import HEARTBEATS
from runner.store.protocol import READ_LIMIT, Batch

# All are chosen. Signals and requests at a time, before heartbeats; a group of them may take longer.
SIGNALS_SECONDS = 0.05
# Heartbeats that wait before no more are read; the rest stays in the store.
MAX_HEARTBEATS = 2 * READ_LIMIT
# Between two reads of heartbeats: this long for each node, and at most so long in all. A fleet of four is read at once, one of
# 2,000 four times a second, so that one wake-up serves many heartbeats (bench/fleet).
SECONDS_PER_NODE = 0.000125
LONGEST_SECONDS = 0.25
# That signals wait without a break, before deadlines are extended: an awaited answer may be among them.
QUEUED_SECONDS = 1.0
# Signals whose records are appended together; heartbeats between two looks for signals.
MAX_GROUP = 16
ROOM_POLL_SECONDS = 0.02

# stream, number, payload
Message = tuple[str, int, bytes]


class InboundQueue:
    """Messages in the order of their streams. One thread reads the store and adds, another processes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns monotonic seconds."""
        self._clock = clock
        # Requests, too.
        self._signals: deque[Message] = deque()
        self._heartbeats: deque[Message] = deque()
        self._heartbeats_due = 0.0
        self._queued_since: float | None = None
        # The last read could not hold all heartbeats in the store.
        self._is_backlog = False
        self._last_read_had_heartbeats = False
        self._last_read_at = 0.0
        # Heartbeats since the start.
        self._num_added = self._num_processed = 0
        # Reads that held all heartbeats there were: how many were added by then, and when it began.
        self._complete_reads: deque[tuple[int, float]] = deque()
        self._observed_until = clock()

    def __bool__(self) -> bool:
        return bool(self._signals or self._heartbeats)

    def lag_seconds(self) -> float | None:
        """Return since when heartbeats may be unprocessed, in seconds; None while the store holds some that were not read."""
        if self._is_backlog:
            return None
        now = self._clock()
        if not self._heartbeats:
            self._observed_until = now
            self._complete_reads.clear()
        return now - self._observed_until

    def queued_seconds(self) -> float:
        """Return how long signals have waited without a break since the last call, if QUEUED_SECONDS or more; else 0."""
        now = self._clock()
        if not self._signals:
            self._queued_since = None
            return 0.0
        since = self._queued_since = now if self._queued_since is None else self._queued_since
        if now - since < QUEUED_SECONDS:
            return 0.0
        self._queued_since = now
        return now - since

    def next_read(
        self, cursors: Mapping[str, int], longest_seconds: float
    ) -> tuple[dict[str, int], float]:
        """Return the streams to read, by the number read last, and how long to block (seconds); no streams: wait for room."""
        pause_seconds = self._heartbeats_due - self._clock()
        reads_heartbeats = pause_seconds <= 0 and len(self._heartbeats) < MAX_HEARTBEATS
        reads_signals = len(self._signals) < READ_LIMIT
        self._last_read_had_heartbeats, self._last_read_at = reads_heartbeats, self._clock()
        names = [
            name for name in cursors if (reads_heartbeats if name == HEARTBEATS else reads_signals)
        ]
        if self._is_backlog and reads_heartbeats:
            # An empty answer must come at once: it ends the backlog.
            longest_seconds = 0.0
        elif not (reads_heartbeats and reads_signals):
            is_pause = reads_signals and pause_seconds > 0
            longest_seconds = pause_seconds if is_pause else ROOM_POLL_SECONDS
        return {name: cursors[name] for name in names}, longest_seconds

    def add(self, batch: Batch, num_nodes: int) -> None:
        """Add what a read returned; after heartbeats there is a pause, unless the store holds more of them."""
        for stream, items in batch.items.items():
            waiting = self._heartbeats if stream == HEARTBEATS else self._signals
            waiting.extend((stream, item.number, item.payload) for item in items)
        if num_heartbeats := len(batch.items.get(HEARTBEATS, ())):
            self._is_backlog = num_heartbeats >= READ_LIMIT
            pause_seconds = min(LONGEST_SECONDS, SECONDS_PER_NODE * num_nodes)
            self._heartbeats_due = self._clock() + (0.0 if self._is_backlog else pause_seconds)
            self._num_added += num_heartbeats
        elif self._last_read_had_heartbeats:
            self._is_backlog = False
        if self._last_read_had_heartbeats and not self._is_backlog:
            self._complete_reads.append((self._num_added, self._last_read_at))

    def batches(self) -> Iterator[list[Message]]:
        """Yield signals for a moment, at least one group; then the heartbeats that wait by now. No group mixes the two.

        Signals that arrive meanwhile go before the next heartbeats while that moment lasts, then for as long as heartbeats took.
        """
        left_seconds = yield from self._signal_groups(SIGNALS_SECONDS)
        num_heartbeats = len(self._heartbeats)
        while num_heartbeats > 0:
            heartbeats = _pop_group(self._heartbeats, num_heartbeats)
            num_heartbeats -= len(heartbeats)
            begun = self._clock()
            yield heartbeats
            self._num_processed += len(heartbeats)
            while self._complete_reads and self._complete_reads[0][0] <= self._num_processed:
                _, read_at = self._complete_reads.popleft()
                self._observed_until = max(self._observed_until, read_at)
            left_seconds = max(left_seconds, 0.0) + self._clock() - begun
            left_seconds = yield from self._signal_groups(left_seconds)

    def _signal_groups(self, seconds: float) -> Generator[list[Message], None, float]:
        """Yield groups of signals for so long; return how much of it is left."""
        while self._signals and seconds > 0:
            begun = self._clock()
            yield _pop_group(self._signals, MAX_GROUP)
            seconds -= self._clock() - begun
        return seconds


def _pop_group(waiting: deque[Message], most: int) -> list[Message]:
    return [waiting.popleft() for _ in range(min(most, MAX_GROUP, len(waiting)))]
