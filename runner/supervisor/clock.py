"""The controller's clock: the source of the time that decisions get."""

from __future__ import annotations

import time


class Clock:
    """The controller's clock: seconds since the epoch that never run back, whatever the wall clock does."""

    def __init__(self, last: float) -> None:
        """`last` is the time of the journal's last entry."""
        self._base = max(last, time.time()) - time.monotonic()

    def now(self) -> float:
        """Return the time."""
        return self._base + time.monotonic()
