"""Drills: an operator names a rank, a point and a kind of failure, and that rank fails there."""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass

# Sent over the wire as indices: append only.
FAULTS = ("raise", "die")
POINTS = ("step", "before_shards", "between_shards", "before_seal", "after_seal")


class DrillFailure(RuntimeError):
    """Raised by the rank that a drill names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drill:
    """One rank is to fail: `raise` an error or `die` by SIGKILL, the next time it comes to `point`."""

    fault: str
    rank: int
    point: str


class Drills:
    """The drills armed on this rank. Every rank receives a drill; only the one that it names fails."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._armed: Drill | None = None

    def arm(self, drill: Drill) -> None:
        """Arm a drill, if it names this rank; a later one replaces it."""
        if drill.rank == self._rank:
            self._armed = drill

    def at(self, point: str, *, when: Callable[[], None] | None = None) -> None:
        """Fail here if the armed drill names this point. `when` is called first, to wait for the right moment."""
        drill = self._armed
        if drill is None or drill.point != point:
            return
        if when is not None:
            when()
        if drill.fault == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        self._armed = None
        raise DrillFailure(f"drill: rank {self._rank} fails at {point} as ordered")
