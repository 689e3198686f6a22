"""Holdings: what ranks hold of memory and descriptors, with all processes below them. Reads /proc, on a thread of its own.

Memory is counted without the page cache, which the kernel takes back by itself. What processes share by having been forked is
counted in each: that is a constant, and only growth is judged. So memory that a forked child makes its own page by page (as
reference counts do in a data loader's workers) does not show. Proportional sizes would show it, but whoever reads them walks
all page tables of a process under a lock that it may need itself.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from runner.facts.messages.signals import RankResources
from runner.keeper.procfs import read_processes

# between two samples; chosen
SAMPLE_SECONDS = 60.0
# told in one heartbeat; chosen
MAX_RANKS = 64
GROUPS = Path("/sys/fs/cgroup")
# How a control group spells its limit, its use, and what of that the kernel takes back first: version 2, then version 1.
_SPELLINGS = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def measure(pids: Mapping[int, int]) -> tuple[tuple[RankResources, ...], int]:
    """Return the holdings of ranks (rank -> pid) that are there, and what `free_bytes` does."""
    below = _below(pids.values())
    held = [_holdings(rank, [pid, *below[pid]]) for rank, pid in list(pids.items())[:MAX_RANKS]]
    return tuple(each for each in held if each is not None), free_bytes()


def free_bytes() -> int:
    """Return what this machine, or a control group that we are in, can still give, whichever is less; 0: not known."""
    rooms = [_machine_room(), *map(_group_room, _groups())]
    return max(0, min((room for room in rooms if room is not None), default=0))


def _below(roots: Iterable[int]) -> dict[int, list[int]]:
    """Return the processes below each root, at any depth."""
    children: dict[int, list[int]] = {}
    for seen in read_processes().values():
        children.setdefault(seen.parent, []).append(seen.pid)
    found = {}
    for root in roots:
        waiting, below = [root], list[int]()
        while waiting:
            next_ones = children.get(waiting.pop(), [])
            waiting += next_ones
            below += next_ones
        found[root] = below
    return found


def _holdings(rank: int, pids: list[int]) -> RankResources | None:
    """Add up a rank's processes, itself first; None when it is gone, or somebody else's."""
    own = _fields(Path(f"/proc/{pids[0]}/status"))
    # a zombie has none
    if "RssAnon" not in own:
        return None
    memory_bytes = _memory_bytes(own) + own.get("RssShmem", 0)
    # what these share with the rank was counted there
    for pid in pids[1:]:
        memory_bytes += _memory_bytes(_fields(Path(f"/proc/{pid}/status")))
    pairs = [pair for pid in pids if (pair := _descriptors(pid)) is not None]
    num_open, limit = max(pairs, key=lambda pair: pair[0] / pair[1], default=(None, None))
    return RankResources(
        rank=rank, memory_bytes=memory_bytes, descriptors=num_open, descriptors_limit=limit
    )


def _memory_bytes(status: Mapping[str, int]) -> int:
    return status.get("RssAnon", 0) + status.get("VmSwap", 0)


def _descriptors(pid: int) -> tuple[int, int] | None:
    """Return how many descriptors a process has open, and its soft limit; None where there is none, or no right to look."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/limits").read_text().splitlines():
            if line.startswith("Max open files"):
                # "unlimited" is no number
                limit = int(line.split()[3])
                return (len(os.listdir(f"/proc/{pid}/fd")), limit) if limit > 0 else None
    return None


def _machine_room() -> int | None:
    return _fields(Path("/proc/meminfo")).get("MemAvailable")


def _fields(path: Path) -> dict[str, int]:
    """Read lines such as `RssAnon:   12 kB` as bytes; what has no such unit is left out."""
    found = {}
    with contextlib.suppress(OSError):
        for line in path.read_text(errors="replace").splitlines():
            name, _, value = line.partition(":")
            if value.endswith(" kB"):
                found[name] = int(value[:-3]) * 1024
    return found


def _groups() -> Iterator[Path]:
    """Yield the folders of the control groups that we are in, and of those above them, as far as they are to be seen."""
    lines = list[str]()
    with contextlib.suppress(OSError):
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        root = GROUPS / controllers
        group = root / path.lstrip("/")
        # In a container the path may be the host's, while the mount is the group itself.
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(root))


def _group_room(folder: Path) -> int | None:
    for limit, use, reclaimable in _SPELLINGS:
        with contextlib.suppress(OSError, ValueError):
            # "max" is no number
            most = int((folder / limit).read_text())
            used = int((folder / use).read_text())
            lines = (folder / "memory.stat").read_text().splitlines()
            given_back = [
                int(line.split()[1]) for line in lines if line.startswith(f"{reclaimable} ")
            ]
            return most - used + sum(given_back)
    return None
