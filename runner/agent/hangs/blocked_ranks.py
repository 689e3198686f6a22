"""Blocked: ranks that the kernel holds in state D, seen from outside. They cannot be killed, and stacks of them show nothing.

Any thread of a rank may be the one. State D is normal while files are written, so it is looked for only while no step is made,
and told only when a thread was in it at every look for a while; what that means is for others to say.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from runner.facts.messages.signals import RankBlocked
from runner.keeper.procfs import read_process

# without a sign of progress before ranks are looked at; chosen
QUIET_SECONDS = 5.0
# Between two looks; chosen. A look costs 13 us a thread (measured on a busy machine): 0.5 % of a core for eight ranks of a hundred.
LOOK_SECONDS = 2.0
# in state D before it is told; chosen
TELL_SECONDS = 5.0
# of one rank that are looked at, in the order of /proc; chosen
MAX_THREADS = 256
# told in one heartbeat; chosen
MAX_RANKS = 64


class BlockedRanksMonitor:
    """Threads that were in state D at every look, and since which one. `now` and times are monotonic seconds."""

    def __init__(self) -> None:
        self._due = 0.0
        # rank -> thread -> first look
        self._since: dict[int, dict[int, float]] = {}

    def look(self, pids: Mapping[int, int], now: float, *, progress_at: float) -> None:
        """Look at the threads of ranks (rank -> pid) when it is time; forget them all once progress was made."""
        if now < progress_at + QUIET_SECONDS:
            self._since.clear()
            return
        if now < self._due:
            return
        self._due = now + LOOK_SECONDS
        found = {}
        for rank, pid in pids.items():
            known = self._since.get(rank, {})
            blocked = {thread: known.get(thread, now) for thread in _blocked_threads(pid)}
            if blocked:
                found[rank] = blocked
        self._since = found

    def told(self, now: float) -> tuple[RankBlocked, ...]:
        """Return the ranks that have been blocked for long, each by its thread that was for longest."""
        blocked = [
            RankBlocked(rank=rank, seconds=round(now - min(threads.values()), 1))
            for rank, threads in self._since.items()
        ]
        return tuple(each for each in blocked if each.seconds >= TELL_SECONDS)[:MAX_RANKS]


def _blocked_threads(pid: int) -> list[int]:
    try:
        names = os.listdir(f"/proc/{pid}/task")
    except OSError:
        # the process is gone
        return []
    threads = [int(name) for name in names[:MAX_THREADS]]
    return [thread for thread in threads if (seen := read_process(thread)) and seen.state == "D"]
