"""How long a start took: the slowest rank of this node in each phase, as ranks report it and as the agent observes it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from runner.agent.ranks.reports import MAX_NAMES
from runner.facts.messages.signals import StartPhase

# From the request for the ranks to a rank's first report.
FIRST_REPORT = "start"
# Ranks of a node make their first step together; those that are silent for longer report none; chosen.
STRAGGLING_SECONDS = 2.0


class StartPhases:
    """Phases of the start of `ranks` ranks. Times are monotonic seconds.

    `spawned_at` None: an earlier agent started them, so how long their first report took is not known.
    """

    def __init__(self, *, ranks: int, spawned_at: float | None) -> None:
        self._num_ranks = ranks
        self._spawned_at = spawned_at
        self._slowest: dict[str, StartPhase] = {}
        self._reporting: dict[int, None] = {}
        self._stepped: dict[int, None] = {}
        self._first_step_at: float | None = None

    def on_packet(self, rank: int, now: float) -> None:
        """Time the first packet of a rank."""
        if rank not in self._reporting:
            self._reporting[rank] = None
            if self._spawned_at is not None:
                self.add(rank, FIRST_REPORT, now - self._spawned_at)

    def add(self, rank: int, name: str, seconds: float) -> None:
        """Add how long a rank took for a phase; impossible numbers and too many names are ignored."""
        known = self._slowest.get(name)
        if not 0 <= seconds < math.inf or (known is None and len(self._slowest) >= MAX_NAMES):
            return
        if known is None or seconds > known.seconds:
            self._slowest[name] = StartPhase(seconds=seconds, rank=rank)

    def on_step(self, rank: int, now: float) -> None:
        """Record that a rank has made a step."""
        if self._first_step_at is None:
            self._first_step_at = now
        self._stepped[rank] = None

    def reported(self) -> dict[str, float]:
        """Return the seconds of each phase that ranks have named themselves, of the slowest rank so far."""
        slowest = self._slowest.items()
        return {name: phase.seconds for name, phase in slowest if name != FIRST_REPORT}

    def slowest(self, now: float) -> Mapping[str, StartPhase]:
        """Return the slowest rank of each phase; nothing before the start is over for all ranks that report steps."""
        if self._first_step_at is None:
            return {}
        is_early = now < self._first_step_at + STRAGGLING_SECONDS
        return {} if is_early and len(self._stepped) < self._num_ranks else dict(self._slowest)
