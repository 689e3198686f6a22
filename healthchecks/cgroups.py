"""Headroom below the limits of this process's control groups; versions 1 and 2.

In a container the machine's own figures are higher than what the group allows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
SELF = Path("/proc/self/cgroup")
# Version 1 writes "no limit" as the largest multiple of a page.
UNLIMITED = 1 << 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Controller:
    """The files of one controller's limit and use, in version 2 and in version 1."""

    name: str
    limits: tuple[str, str]
    uses: tuple[str, str]
    # Keys in memory.stat of what the kernel would reclaim first.
    reclaimable: tuple[str, str] | None = None


MEMORY = Controller(
    name="memory",
    limits=("memory.max", "memory.limit_in_bytes"),
    uses=("memory.current", "memory.usage_in_bytes"),
    reclaimable=("inactive_file", "total_inactive_file"),
)
PIDS = Controller(
    name="pids", limits=("pids.max", "pids.max"), uses=("pids.current", "pids.current")
)


def headroom(controller: Controller) -> int | None:
    """Return the least room below any limit from this process's group up to the root; None without a limit.

    Raises OSError or ValueError when a limit is there but cannot be read.
    """
    rooms = [_room(folder, controller, version=v) for folder, v in _folders(controller.name)]
    return min((room for room in rooms if room is not None), default=None)


def _folders(name: str) -> Iterator[tuple[Path, int]]:
    """Yield the group's folder and those above it, with the version; only existing ones."""
    for line in SELF.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mounts, version = (ROOT, ROOT / "unified"), 2
        elif name in controllers.split(","):
            mounts, version = (ROOT / controllers, ROOT / name), 1
        else:
            continue
        for mount in mounts:
            # In a container the path is the host's and the mount is the group itself: missing folders are skipped.
            inside = mount / path.lstrip("/")
            for folder in (inside, *inside.parents):
                if folder.is_relative_to(mount) and folder.is_dir():
                    yield folder, version


def _room(folder: Path, controller: Controller, *, version: int) -> int | None:
    at = 0 if version == 2 else 1
    limit_file = folder / controller.limits[at]
    if not limit_file.exists():
        return None
    text = limit_file.read_text().strip()
    if text == "max" or int(text) >= UNLIMITED:
        return None
    used = int((folder / controller.uses[at]).read_text())
    if controller.reclaimable is not None:
        used -= _stat(folder / "memory.stat", controller.reclaimable[at])
    return int(text) - used


def _stat(file: Path, key: str) -> int:
    for line in file.read_text().splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return int(value)
    return 0
