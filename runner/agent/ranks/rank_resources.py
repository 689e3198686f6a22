"""Resources of ranks: memory and descriptors, with all processes below them. Reads /proc, on a thread of its own.

Memory is counted without the page cache, which the kernel reclaims by itself. Pages that processes share after a fork are
counted in each: that is a constant, and only growth is judged. So memory that a forked child copies page by page (as reference
counts do in a data loader's workers) does not show. Proportional sizes would show it, but reading them walks all page tables
of a process under a lock that the process may need.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from runner.facts.messages.signals import RankResources
from runner.keeper.procfs import read_bytes, read_processes

# Chosen, not measured.
SAMPLE_SECONDS = 60.0
MAX_RANKS = 64

GROUPS = Path("/sys/fs/cgroup")
# How a control group spells its limit, its use, and what of that the kernel reclaims first: version 2, then version 1.
_SPELLINGS = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def measure(pids: Mapping[int, int]) -> tuple[tuple[RankResources, ...], int]:
    """Return the resources of living ranks (rank -> pid), and `free_bytes()`."""
    below = _descendants(pids.values())
    first = list(pids.items())[:MAX_RANKS]
    measured = [_measure_rank(rank, [pid, *below[pid]]) for rank, pid in first]
    return tuple(each for each in measured if each is not None), free_bytes()


def free_bytes() -> int:
    """Return what this machine or a control group of ours can still allocate, whichever is less; 0: not known."""
    of_machine = _fields("/proc/meminfo").get("MemAvailable")
    available = [of_machine, *map(_group_free_bytes, _groups())]
    return max(0, min((each for each in available if each is not None), default=0))


def _descendants(roots: Iterable[int]) -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for process in read_processes().values():
        children.setdefault(process.parent, []).append(process.pid)
    descendants = {}
    for root in roots:
        below = list(children.get(root, []))
        # The list grows while it is walked.
        for pid in below:
            below += children.get(pid, [])
        descendants[root] = below
    return descendants


def _measure_rank(rank: int, pids: list[int]) -> RankResources | None:
    """Add up a rank's processes, itself first; None when it is gone, or another user's."""
    own = _fields(f"/proc/{pids[0]}/status")
    # A zombie has none.
    if "RssAnon" not in own:
        return None
    memory_bytes = _memory_bytes(own) + own.get("RssShmem", 0)
    # What these share with the rank is counted there.
    for pid in pids[1:]:
        memory_bytes += _memory_bytes(_fields(f"/proc/{pid}/status"))
    pairs = [pair for pid in pids if (pair := _descriptors(pid)) is not None]
    num_open, limit = max(pairs, key=lambda pair: pair[0] / pair[1], default=(None, None))
    return RankResources(
        rank=rank, memory_bytes=memory_bytes, descriptors=num_open, descriptors_limit=limit
    )


def _memory_bytes(status: Mapping[str, int]) -> int:
    return status.get("RssAnon", 0) + status.get("VmSwap", 0)


def _descriptors(pid: int) -> tuple[int, int] | None:
    """Return how many descriptors a process has open, and its soft limit; None without a limit or the right to look."""
    with contextlib.suppress(OSError, ValueError):
        for line in read_bytes(f"/proc/{pid}/limits").decode().splitlines():
            if line.startswith("Max open files"):
                # "unlimited" is not a number and is ignored.
                limit = int(line.split()[3])
                return (len(os.listdir(f"/proc/{pid}/fd")), limit) if limit > 0 else None
    return None


def _fields(path: str) -> dict[str, int]:
    """Read lines such as `RssAnon:   12 kB` as bytes; other lines are ignored."""
    fields = {}
    for line in read_bytes(path).decode(errors="replace").splitlines():
        name, _, value = line.partition(":")
        if value.endswith(" kB"):
            fields[name] = int(value[:-3]) * 1024
    return fields


def _groups() -> Iterator[Path]:
    """Yield the visible folders of the control groups that we are in, and of those above them."""
    for line in read_bytes("/proc/self/cgroup").decode().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        root = GROUPS / controllers
        group = root / path.lstrip("/")
        # In a container the path may be the host's, while the mount is the group itself.
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(root))


def _group_free_bytes(folder: Path) -> int | None:
    for limit, use, reclaimable in _SPELLINGS:
        with contextlib.suppress(OSError, ValueError):
            # "max" is not a number: such a group has no limit.
            limit_bytes = int((folder / limit).read_text())
            used_bytes = int((folder / use).read_text())
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            return limit_bytes - used_bytes + int(stat.get(reclaimable, 0))
    return None
