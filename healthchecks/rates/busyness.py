"""How busy other programs keep the processors while something is measured: a rate beside them says nothing of the node.

It is the share of all processors that others took. The kernel's measure of pressure (PSI) would count as well how long our own
ranks wait for each other's processors, so on a small machine a check would find itself.
"""

import os
import resource
from dataclasses import dataclass
from pathlib import Path

# Of a value that is unknown for that reason.
BUSY = "busy with something else"
MEASURE = "other programs took processors"
# That others may take of all processors beside a measurement. Chosen, not measured.
MOST_FOREIGN_PERCENT = 20
STAT = Path("/proc/stat")
# Of the fields of a line of /proc/stat: idle, and idle while a disk is awaited.
IDLE_FIELDS = (3, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Busyness:
    """One moment: what has added up by then, of all processors, and of this process and its children that have ended."""

    busy_ticks: int
    all_ticks: int
    own_seconds: float


def read_busyness() -> Busyness:
    """Read this moment. Raises OSError or ValueError where /proc/stat cannot be read."""
    fields = [int(field) for field in STAT.read_text().splitlines()[0].split()[1:9]]
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = resource.getrusage(resource.RUSAGE_SELF)
    return Busyness(
        busy_ticks=sum(fields) - sum(fields[at] for at in IDLE_FIELDS),
        all_ticks=sum(fields),
        own_seconds=children.ru_utime + children.ru_stime + own.ru_utime + own.ru_stime,
    )


def percent_between(before: Busyness, after: Busyness) -> tuple[float, str]:
    """Return the share of all processors that programs other than this one and its children took, in percent, and what it is."""
    ticks = max(1, after.all_ticks - before.all_ticks)
    own_ticks = (after.own_seconds - before.own_seconds) * os.sysconf("SC_CLK_TCK")
    others = max(0.0, after.busy_ticks - before.busy_ticks - own_ticks)
    return min(100.0, 100 * others / ticks), MEASURE
