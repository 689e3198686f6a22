"""Arrivals: what the streams brought and nobody has taken yet. Words that decisions follow from go before heartbeats.

A large fleet speaks thousands of times a second. What arrives is therefore taken in portions, and heartbeats are read once in a
while, not one by one: a signal that arrives meanwhile waits for one portion, never for all of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from runner.store.store import READ_LIMIT, Batch

BEATS = "beats"
# Of one portion: about as long to take, on the machine that `bench/results/fleet.txt` names; chosen.
MAX_WORDS = 32
MAX_BEATS = 256
MAX_WAITING = 2 * READ_LIMIT  # what is behind stays in the store; chosen
# Between two reads of heartbeats: so long for each node of the fleet, and at most so long in all; chosen. A fleet of four is heard
# as soon as it speaks, one of 2,000 five times a second.
SECONDS_PER_NODE = 0.0001
LONGEST_SECONDS = 0.2

Arrival = tuple[str, int, bytes]  # stream, number, payload


class Arrivals:
    """Items in the order of their streams. One thread calls it."""

    def __init__(self) -> None:
        self._words: deque[Arrival] = deque()
        self._beats: deque[Arrival] = deque()

    def __bool__(self) -> bool:
        return bool(self._words or self._beats)

    @property
    def is_full(self) -> bool:
        """Whether so much waits that no more is to be added."""
        return len(self._words) + len(self._beats) >= MAX_WAITING

    def add(self, batch: Batch) -> None:
        """Take over what a read has found."""
        for stream, items in batch.items.items():
            waiting = self._beats if stream == BEATS else self._words
            waiting.extend((stream, item.number, item.payload) for item in items)

    def portion(self) -> list[Arrival]:
        """Take the next ones out: words first, and heartbeats however many words there are."""
        return [
            *(self._words.popleft() for _ in range(min(MAX_WORDS, len(self._words)))),
            *(self._beats.popleft() for _ in range(min(MAX_BEATS, len(self._beats)))),
        ]


class Rhythm:
    """Says which streams the next read is to wait for. One thread calls it."""

    def __init__(self) -> None:
        self._beats_due = 0.0  # monotonic seconds

    def wanted(
        self, cursors: Mapping[str, int], now: float, longest_seconds: float
    ) -> tuple[dict[str, int], float]:
        """Return the streams to read, by the number read last, and for how long to wait."""
        wait_seconds = self._beats_due - now
        if wait_seconds <= 0:
            return dict(cursors), longest_seconds
        words = {name: number for name, number in cursors.items() if name != BEATS}
        return words, wait_seconds

    def read(self, batch: Batch, now: float, num_nodes: int) -> None:
        """Note what a read has found: after heartbeats there is a pause, unless more of them wait already."""
        num_beats = len(batch.items.get(BEATS, ()))
        if 0 < num_beats < READ_LIMIT:
            self._beats_due = now + min(LONGEST_SECONDS, SECONDS_PER_NODE * num_nodes)
