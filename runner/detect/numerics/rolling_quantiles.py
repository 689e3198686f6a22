"""Levels and excursions of a metric, from its last healthy samples, by order statistics.

Windows are counted in samples, never in steps: a curve logged every 100 steps and one logged at every step need the same
settings. Quantiles, not moments: one spike in a mean and a deviation hides the next.
"""

import math
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

# Standard deviations between the 10 % and the 90 % quantile of a normal distribution.
TAILS_WIDTH = 2.563


class RollingQuantiles:
    """The last `size` samples of a metric, in order of size."""

    __slots__ = ("_ordered", "_values", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._values: deque[float] = deque()
        self._ordered: list[float] = []

    def __len__(self) -> int:
        return len(self._ordered)

    def add(self, value: float) -> None:
        """Add a finite sample; the oldest one leaves a full window."""
        if len(self._ordered) == self.size:
            del self._ordered[bisect_left(self._ordered, self._values.popleft())]
        self._values.append(value)
        insort(self._ordered, value)

    def values(self) -> list[float]:
        """Return the samples, the oldest first."""
        return list(self._values)

    def clear(self) -> None:
        """Forget all samples."""
        self._values.clear()
        self._ordered.clear()

    def __copy__(self) -> "RollingQuantiles":
        other = RollingQuantiles(self.size)
        other._values = self._values.copy()
        other._ordered = self._ordered.copy()
        return other

    @property
    def median(self) -> float:
        """The middle sample; IndexError without any."""
        return self._ordered[len(self._ordered) // 2]

    @property
    def spread(self) -> float:
        """The standard deviation that a normal distribution of these tails would have; infinite without samples."""
        ordered = self._ordered
        tail = (len(ordered) - 1) // 10
        return (ordered[-1 - tail] - ordered[tail]) / TAILS_WIDTH if ordered else math.inf


def change_at(values: Sequence[float], boundary: float) -> int:
    """Return the index of the first value of the last part, which lies above the boundary as the part before lies below it.

    The cut that leaves the fewest values on the wrong side: single ones there do not move it.
    """
    count, least, index = 0, 0, 0
    for at, value in enumerate(values):
        count += 1 if value > boundary else -1
        if count < least:
            least, index = count, at + 1
    return min(index, len(values) - 1)


@dataclass(slots=True)
class Excursion:
    """The furthest distance from which a metric has returned by itself: one without a return is no sign of health."""

    furthest: float = 0.0
    _now: float = 0.0
    # At the last restart.
    _away: float = 0.0

    def add(self, distance: float) -> None:
        """Add the present distance; less than half of the furthest since the last return is a return."""
        if distance > self._now:
            self._now = distance
        elif distance < self._now / 2:
            self.add_returned(self._now)
            self._now = max(distance, 0.0)

    def add_returned(self, distance: float) -> None:
        """Count a distance that is known to have returned."""
        self.furthest = max(self.furthest, distance)

    def restart(self) -> None:
        """Start over: the present distance may be the new normal."""
        self._away = max(self._away, self._now)
        self._now = 0.0

    def recover(self) -> None:
        """The excursion recovered: count its peak as normal variation."""
        self.add_returned(self._away)
        self._away = 0.0
