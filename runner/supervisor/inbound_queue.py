"""Arrivals: what the streams brought and nobody has taken yet. Words that decisions follow from go before heartbeats.

A large fleet speaks thousands of times a second, so heartbeats are read once in a while, not one by one. Words are taken for a
moment at a time, and then heartbeats, a few at a time between words that come meanwhile: however long a queue of words takes, no
node goes unheard for it. And what nodes said while heartbeats are behind is not heard yet: whoever judges silence asks
`lag_seconds`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping

from runner.store.protocol import READ_LIMIT, Batch

BEATS = "beats"
# Of words at a time, before heartbeats are taken; one group of them may take longer; chosen.
WORDS_SECONDS = 0.05
MAX_BEATS = (
    2 * READ_LIMIT
    # that wait before no more are read; what is behind stays in the store; chosen
)
# Between two reads of heartbeats: so long for each node of the fleet, and at most so long in all; chosen. A fleet of four is heard
# as soon as it speaks, one of 2,000 four times a second: what judges one heartbeat is at hand for the next (bench/fleet).
SECONDS_PER_NODE = 0.000125
LONGEST_SECONDS = 0.25
# Of a queue of words, before deadlines are put off by it: the answer that is waited for may be in it; chosen.
QUEUED_SECONDS = 1.0
# words until what they led to is written and done, and heartbeats until words are looked for; chosen
MAX_TOGETHER = 16
# until it is seen again whether there is room for more; chosen
LOOK_SECONDS = 0.02

# stream, number, payload
Arrival = tuple[str, int, bytes]
Clock = Callable[[], float]


class InboundQueue:
    """Items in the order of their streams. One thread reads the store and adds, another takes; `clock`: monotonic seconds."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._words: deque[Arrival] = deque()
        self._beats: deque[Arrival] = deque()
        self._beats_due = 0.0
        self._queued_since: float | None = None
        # the last read could not hold all heartbeats there were
        self._is_backlog = False
        self._asked_for_beats = False
        self._asked_at = 0.0
        # heartbeats, ever
        self._num_added = self._num_taken = 0
        # How many had been added when a read had held all there were, and when it had begun: what was said before is among them.
        self._marks: deque[tuple[int, float]] = deque()
        self._heard_until = clock()

    def __bool__(self) -> bool:
        return bool(self._words or self._beats)

    def lag_seconds(self) -> float | None:
        """Return how long ago it was that all which nodes had said was taken; None while some waits in the store."""
        if self._is_backlog:
            return None
        now = self._clock()
        if not self._beats:
            self._heard_until = now
            self._marks.clear()
        return now - self._heard_until

    def queued_seconds(self) -> float:
        """Return how long words have been waiting without a break since this was asked, if it is worth telling; else 0."""
        now = self._clock()
        if not self._words:
            self._queued_since = None
            return 0.0
        since = self._queued_since = now if self._queued_since is None else self._queued_since
        if now - since < QUEUED_SECONDS:
            return 0.0
        self._queued_since = now
        return now - since

    # ---- whoever reads

    def wanted(
        self, cursors: Mapping[str, int], longest_seconds: float
    ) -> tuple[dict[str, int], float]:
        """Return the streams to read next, by the number read last, and for how long to wait; none: there is no room yet."""
        pause_seconds = self._beats_due - self._clock()
        takes_beats = pause_seconds <= 0 and len(self._beats) < MAX_BEATS
        takes_words = len(self._words) < READ_LIMIT
        self._asked_for_beats, self._asked_at = takes_beats, self._clock()
        names = [name for name in cursors if (takes_beats if name == BEATS else takes_words)]
        if self._is_backlog and takes_beats:
            # whether there are more is to be known now
            longest_seconds = 0.0
        elif not (takes_beats and takes_words):
            longest_seconds = pause_seconds if takes_words and pause_seconds > 0 else LOOK_SECONDS
        return {name: cursors[name] for name in names}, longest_seconds

    def add(self, batch: Batch, num_nodes: int) -> None:
        """Take over what a read has found, if anything; after heartbeats there is a pause, unless more of them wait already."""
        for stream, items in batch.items.items():
            waiting = self._beats if stream == BEATS else self._words
            waiting.extend((stream, item.number, item.payload) for item in items)
        if num_beats := len(batch.items.get(BEATS, ())):
            self._is_backlog = num_beats >= READ_LIMIT
            pause_seconds = min(LONGEST_SECONDS, SECONDS_PER_NODE * num_nodes)
            self._beats_due = self._clock() + (0.0 if self._is_backlog else pause_seconds)
            self._num_added += num_beats
        elif self._asked_for_beats:
            self._is_backlog = False
        if self._asked_for_beats and not self._is_backlog:
            self._marks.append((self._num_added, self._asked_at))

    # ---- whoever takes

    def portion(self) -> Iterator[list[Arrival]]:
        """Take words for a moment, some in any case; and then the heartbeats that wait by now. Each group is all words, or none is.

        Words that come meanwhile go before the next heartbeats, as long as that moment lasts; then for as long as heartbeats take.
        """
        left_seconds = yield from self._some_words(WORDS_SECONDS)
        num_beats = len(self._beats)
        while num_beats > 0:
            beats = _taken(self._beats, min(num_beats, MAX_TOGETHER))
            num_beats -= len(beats)
            begun = self._clock()
            yield beats
            self._note_taken(len(beats))
            left_seconds = max(left_seconds, 0.0) + self._clock() - begun
            left_seconds = yield from self._some_words(left_seconds)

    def _note_taken(self, num_beats: int) -> None:
        self._num_taken += num_beats
        while self._marks and self._marks[0][0] <= self._num_taken:
            _, asked_at = self._marks.popleft()
            self._heard_until = max(self._heard_until, asked_at)

    def _some_words(self, seconds: float) -> Generator[list[Arrival], None, float]:
        """Take words for so long; return how much of it is left."""
        while self._words and seconds > 0:
            begun = self._clock()
            yield _taken(self._words, MAX_TOGETHER)
            seconds -= self._clock() - begun
        return seconds


def _taken(waiting: deque[Arrival], most: int) -> list[Arrival]:
    return [waiting.popleft() for _ in range(min(most, len(waiting)))]
