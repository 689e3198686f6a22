"""The end of a gang: its ranks are killed at once, and what they leave behind in kill passes."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from runner.keeper.orphans import (
    FIRST_PAUSE_SECONDS,
    LAST_PAUSE_SECONDS,
    OrphanReaper,
    Orphans,
    shared_memory_files,
)
from runner.keeper.procfs import kill_group, rank_of, send_signal
from runner.keeper.protocol import Message
from runner.keeper.rank import Rank


class KillSequence:
    """Ranks being killed. `event` is for the agent once they are gone, or not gone in time.

    What a tracker would remove is a file that came since the gang. Without such a file, whole process groups are killed, which
    costs no look through /proc.
    """

    def __init__(
        self,
        event: Message,
        ranks: list[Rank],
        reaper: OrphanReaper,
        *,
        find: Callable[[], Orphans],
        files_before: frozenset[tuple[str, int]],
    ) -> None:
        self.event = event
        # Monotonic seconds of the next `poll`.
        self.due_at = time.monotonic()
        self._ranks = ranks
        self._reaper = reaper
        self._find = find
        self._awaited: set[int] = set()
        self._pause_seconds = FIRST_PAUSE_SECONDS
        # Only the ranks are killed so far, and the next poll is to find the others.
        self._must_search = not shared_memory_files() <= files_before
        for rank in ranks:
            if rank.is_alive:
                rank.end_requested = True
                if self._must_search:
                    send_signal([rank.pid], signal.SIGKILL)
                else:
                    kill_group(rank.pid)

    def on_reaped(self, pid: int) -> None:
        """Poll at once after a death that was waited for."""
        if pid in self._awaited or any(pid == rank.pid for rank in self._ranks):
            self.due_at = time.monotonic()

    def poll(self, now: float) -> list[int] | None:
        """Kill what is left; None while something is to be waited for, then the ranks that do not die (-1: unknown)."""
        alive = [rank.number for rank in self._ranks if rank.is_alive]
        is_early = self._pause_seconds < LAST_PAUSE_SECONDS and now < self._reaper.deadline
        orphans: Orphans = {}
        # If the groups were killed, they get a chance to die before /proc is searched.
        if self._must_search or not (alive and is_early):
            orphans = self._reaper.kill_pass(self._find())
            self._must_search = False
        self._awaited = set(orphans)
        if (alive or orphans) and now < self._reaper.deadline:
            self.due_at = now + self._pause_seconds
            self._pause_seconds = min(2 * self._pause_seconds, LAST_PAUSE_SECONDS)
            return None
        return sorted({*alive, *(rank_of(environment) for environment in orphans.values())})
