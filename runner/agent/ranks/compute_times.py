"""Compute times: the median of what a step costs each rank of this node without its collectives.

Step seconds are equal on all ranks of a gang that steps together: a slow rank shows only in what each computes alone.
"""

from __future__ import annotations

import math
from collections import deque

from runner.agent.ranks.reports import StepReport
from runner.facts.messages.signals import RankCompute

# Between two of them; chosen: eight ranks then cost 33 bytes a second (measured).
REPORT_SECONDS = 10.0
# Of one rank in a median, the newest; chosen.
MAX_STEPS = 256
# In one heartbeat, which must fit one message; chosen.
MAX_RANKS = 64


class ComputeTimes:
    """Steps reported since the last heartbeat that carried medians. `now` is in monotonic seconds."""

    def __init__(self, now: float) -> None:
        self._due = now + REPORT_SECONDS
        self._seconds: dict[int, deque[float]] = {}
        self._stages: dict[int, int] = {}

    def add(self, rank: int, report: StepReport) -> None:
        """Add what a step cost a rank; impossible durations are ignored."""
        if report.stage is not None:
            self._stages[rank] = report.stage
        seconds = report.compute_seconds
        if seconds is None or not 0.0 < seconds < math.inf:
            return
        if rank not in self._seconds:
            self._seconds[rank] = deque(maxlen=MAX_STEPS)
        self._seconds[rank].append(seconds)

    def pop_medians(self, now: float) -> tuple[RankCompute, ...]:
        """Return the median seconds of each rank since the last call that was due; of at most MAX_RANKS ranks."""
        if now < self._due:
            return ()
        self._due = now + REPORT_SECONDS
        medians = tuple(
            RankCompute(rank=rank, seconds=_median(seconds), stage=self._stages.get(rank))
            for rank, seconds in sorted(self._seconds.items())[:MAX_RANKS]
        )
        self._seconds.clear()
        return medians


def _median(seconds: deque[float]) -> float:
    ordered = sorted(seconds)
    # More digits are of no use.
    return float(f"{ordered[len(ordered) // 2]:.6g}")
