"""Compute: what a step costs each rank of this node without its collectives, told as a median now and then.

Step seconds are equal on all ranks of a gang that steps together: who is slow shows only in what each computes alone.
"""

from __future__ import annotations

import math
from collections import deque

from runner.agent.ranks.reports import StepReport
from runner.facts.messages.signals import RankCompute

# between two words of it; chosen: eight ranks then cost 33 bytes a second (measured)
TELL_SECONDS = 10.0
# of one rank that a median is made of, the newest; chosen
MAX_STEPS = 256
# told in one heartbeat, which must fit one message; chosen
MAX_RANKS = 64


class ComputeTimes:
    """Steps that were reported and not told of yet. `now` is in monotonic seconds."""

    def __init__(self, now: float) -> None:
        self._due = now + TELL_SECONDS
        self._seconds: dict[int, deque[float]] = {}
        self._stages: dict[int, int] = {}

    def add(self, rank: int, report: StepReport) -> None:
        """Note what a step cost a rank; what is no duration is passed over."""
        if report.stage is not None:
            self._stages[rank] = report.stage
        seconds = report.compute_seconds
        if seconds is None or not 0.0 < seconds < math.inf:
            return
        if rank not in self._seconds:
            self._seconds[rank] = deque(maxlen=MAX_STEPS)
        self._seconds[rank].append(seconds)

    def take(self, now: float) -> tuple[RankCompute, ...]:
        """Return the seconds of each rank since the last time, once it is time; of the first MAX_RANKS that made a step."""
        if now < self._due:
            return ()
        self._due = now + TELL_SECONDS
        told = tuple(
            RankCompute(rank=rank, seconds=_median(seconds), stage=self._stages.get(rank))
            for rank, seconds in sorted(self._seconds.items())[:MAX_RANKS]
        )
        self._seconds.clear()
        return told


def _median(seconds: deque[float]) -> float:
    ordered = sorted(seconds)
    # as many digits as anybody compares
    return float(f"{ordered[len(ordered) // 2]:.6g}")
