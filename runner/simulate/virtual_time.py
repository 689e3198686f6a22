"""Virtual time: an agenda of events. Events due at the same moment happen in the order in which they were planned."""

import heapq
from collections.abc import Callable

# Events at one moment; more is an endless loop. Chosen, not measured.
MAX_AT_ONCE = 5000


class Agenda:
    """A clock and its planned events. `now` is in virtual seconds; only `run_until` moves it."""

    def __init__(self, on_event: Callable[[], None]) -> None:
        """`on_event` is called after each event."""
        self.now = 0.0
        self._on_event = on_event
        self._queue: list[tuple[float, int, Callable[[], object]]] = []
        self._ticket = 0
        self._num_at_once = 0

    def after(self, seconds: float, what: Callable[[], object]) -> None:
        """Plan an event for later; a negative time is now."""
        self.at(self.now + seconds, what)

    def at(self, time: float, what: Callable[[], object]) -> None:
        """Plan an event for a time; one that has passed is now."""
        self._ticket += 1
        heapq.heappush(self._queue, (max(time, self.now), self._ticket, what))

    def every(self, seconds: float, what: Callable[[], object]) -> None:
        """Repeat an event, for the first time `seconds` from now."""

        def again() -> None:
            what()
            self.after(seconds, again)

        self.after(seconds, again)

    def run_until(self, time: float) -> None:
        """Let time pass. An event may call this, too, to wait while others happen.

        Raises RuntimeError when time does not advance.
        """
        while self._queue and self._queue[0][0] <= time:
            due, _, what = heapq.heappop(self._queue)
            self._num_at_once = self._num_at_once + 1 if due <= self.now else 0
            if self._num_at_once > MAX_AT_ONCE:
                raise RuntimeError(
                    f"time does not advance at {self.now}: {MAX_AT_ONCE} events at once"
                )
            self.now = max(self.now, due)
            what()
            self._on_event()
        self.now = max(self.now, time)
