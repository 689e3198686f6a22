"""Gang matches: what an agent adds to the matches in the logs of its gang: whose line it is, and what its log has lost."""

import os
from functools import cache

from msgspec.structs import replace

from runner.agent.ranks.gang import LocalGang
from runner.facts.matches import Match

# PROC_PID_INIT_INO of Linux, include/linux/proc_ns.h.
INITIAL_PID_NAMESPACE = 0xEFFFFFFC


def with_rank(match: Match, gang: LocalGang) -> Match:
    """Add the rank whose process a kernel's line names."""
    pid = match.named.get("pid", "")
    if match.rank is not None or not pid or not (match.of_kernel and _numbers_as_the_kernel()):
        return match
    for rank in gang.ranks.values():
        if pid == str(rank.pid):
            return replace(match, rank=rank.rank)
    return match


def with_lost_bytes(match: Match, gang: LocalGang) -> Match:
    """Add what the line's log has lost so far. A log whose end alone was searched says so after its file's name."""
    lost = gang.log_bytes_lost.get(match.file.partition(" (")[0], 0)
    return replace(match, lost_bytes=lost) if lost else match


@cache
def _numbers_as_the_kernel() -> bool:
    """Whether pids here are those of the kernel's log: not in a container's pid namespace."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino == INITIAL_PID_NAMESPACE
    except OSError:
        return False
