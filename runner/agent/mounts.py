"""Mounts: which file system holds a path, by /proc/self/mountinfo. No file system is asked, so none that hangs stops the asker."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

MOUNT_TABLE = "/proc/self/mountinfo"
# Chosen: as long as a line of evidence allows.
MAX_NAME_CHARACTERS = 100
# How the kernel writes blanks, line ends and backslashes: \040.
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A row of the table. `number` is the kernel's: another mount on the same `point` has another one."""

    number: int
    point: str
    file_system: str
    source: str

    def __str__(self) -> str:
        return f"{self.point} ({self.file_system} of {self.source})"


UNKNOWN = Mount(number=0, point="/", file_system="unknown", source="unknown")


def read_mounts(table: str = MOUNT_TABLE) -> list[Mount]:
    """Return the mounts that this process sees, in the table's order; none where there is no table."""
    try:
        with open(table, errors="replace") as file:
            rows = file.read().splitlines()
    except OSError:
        return []
    mounts = (_parse(row) for row in rows)
    return [mount for mount in mounts if mount is not None]


def mount_of(path: str, mounts: Sequence[Mount]) -> Mount:
    """Return the mount that holds an absolute path whose links are resolved: the deepest one, of several on a place the last."""
    holder = UNKNOWN
    for mount in mounts:
        if _holds(mount.point, path) and (holder is UNKNOWN or _holds(holder.point, mount.point)):
            holder = mount
    return holder


def _holds(point: str, path: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")


def _parse(row: str) -> Mount | None:
    """Parse `36 35 98:0 /root /point options [fields] - type source options` (proc(5)); None: it is something else."""
    head, _, tail = row.partition(" - ")
    fields, others = head.split(" "), tail.split(" ")
    if len(fields) < 6 or len(others) < 2 or not fields[0].isdecimal():
        return None
    return Mount(
        number=int(fields[0]),
        point=_text(fields[4]),
        file_system=_text(others[0])[:MAX_NAME_CHARACTERS],
        source=_text(others[1])[:MAX_NAME_CHARACTERS] or "none",
    )


def _text(field: str) -> str:
    plain = _OCTAL.sub(lambda match: chr(int(match[1], 8)), field)
    return plain if plain.isprintable() else plain.encode("unicode_escape").decode()


def link_target(path: str) -> str | None:
    """Return what a symbolic link names; None: it is none. May block."""
    try:
        return os.readlink(path)
    except OSError:
        return None
