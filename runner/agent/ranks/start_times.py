"""How long a start took: the slowest rank of this node in each phase, as ranks report it and as the agent sees it."""

from __future__ import annotations

import math
from collections.abc import Mapping

from runner.agent.ranks.reports import MAX_NAMES
from runner.facts.messages.signals import StartPhase

# from the request for the ranks to the first thing a rank says
FIRST_WORD = "start"
# Ranks of a node make their first step together; after this, those that are silent are known to report none; chosen.
STRAGGLING_SECONDS = 2.0


class StartPhases:
    """What `ranks` ranks told of their start. Times are monotonic seconds.

    `spawned_at` None: they were started before we came, so nothing is known of their first word.
    """

    def __init__(self, *, ranks: int, spawned_at: float | None) -> None:
        self._num_ranks = ranks
        self._spawned_at = spawned_at
        self._slowest: dict[str, StartPhase] = {}
        self._spoken: dict[int, None] = {}
        self._stepped: dict[int, None] = {}
        self._first_step_at: float | None = None

    def spoke(self, rank: int, now: float) -> None:
        """Note that a rank said something."""
        if rank not in self._spoken:
            self._spoken[rank] = None
            if self._spawned_at is not None:
                self.took(rank, FIRST_WORD, now - self._spawned_at)

    def took(self, rank: int, name: str, seconds: float) -> None:
        """Note how long a rank took for a phase; hostile numbers and too many names are passed over."""
        known = self._slowest.get(name)
        if not 0 <= seconds < math.inf or (known is None and len(self._slowest) >= MAX_NAMES):
            return
        if known is None or seconds > known.seconds:
            self._slowest[name] = StartPhase(seconds=seconds, rank=rank)

    def stepped(self, rank: int, now: float) -> None:
        """Note that a rank has made a step."""
        if self._first_step_at is None:
            self._first_step_at = now
        self._stepped[rank] = None

    def reported(self) -> dict[str, float]:
        """Return the seconds of each phase that ranks have named themselves, by their slowest so far."""
        found = self._slowest.items()
        return {name: phase.seconds for name, phase in found if name != FIRST_WORD}

    def slowest(self, now: float) -> Mapping[str, StartPhase]:
        """Return the slowest rank of each phase; nothing before the start is over for all ranks that report steps."""
        if self._first_step_at is None:
            return {}
        waits = now < self._first_step_at + STRAGGLING_SECONDS
        return {} if waits and len(self._stepped) < self._num_ranks else dict(self._slowest)
