"""Blocked ranks: ranks with a thread in state D, which cannot be killed and whose stacks show nothing.

State D is normal while files are written. So threads are polled only while no step is made, and
count only after they were in that state at every poll for so long.
"""

import os
from collections.abc import Mapping

from runner.facts.messages.signals import RankBlocked
from runner.keeper.procfs import read_process

# Chosen: a poll takes 13 us a thread (measured on a busy machine), that is 0.5 % of a core for eight ranks of a hundred threads.
POLL_SECONDS = 2.0
# Chosen, not measured.
IDLE_SECONDS = 5.0
BLOCKED_SECONDS = 5.0
MAX_THREADS = 256
MAX_RANKS = 64


class BlockedRanksMonitor:
    """Tracks threads that were in state D at every poll. Times are monotonic seconds."""

    def __init__(self) -> None:
        self._due = 0.0
        # Rank -> thread -> time of the first poll.
        self._since: dict[int, dict[int, float]] = {}

    def poll(self, pids: Mapping[int, int], now: float, *, progress_at: float) -> None:
        """Read the state of the ranks' threads (rank -> pid) when it is due; start over after progress."""
        if now < progress_at + IDLE_SECONDS:
            self._since.clear()
            return
        if now < self._due:
            return
        self._due = now + POLL_SECONDS
        since = {}
        for rank, pid in pids.items():
            known = self._since.get(rank, {})
            blocked = {thread: known.get(thread, now) for thread in _blocked_threads(pid)}
            if blocked:
                since[rank] = blocked
        self._since = since

    def blocked(self, now: float) -> tuple[RankBlocked, ...]:
        """Return the ranks blocked for BLOCKED_SECONDS, with the time of the thread blocked longest."""
        blocked = [
            RankBlocked(rank=rank, seconds=round(now - min(threads.values()), 1))
            for rank, threads in self._since.items()
        ]
        return tuple(each for each in blocked if each.seconds >= BLOCKED_SECONDS)[:MAX_RANKS]


def _blocked_threads(pid: int) -> list[int]:
    try:
        names = os.listdir(f"/proc/{pid}/task")[:MAX_THREADS]
    except OSError:
        # The process is gone.
        return []
    threads = [read_process(int(name)) for name in names]
    return [thread.pid for thread in threads if thread is not None and thread.state == "D"]
