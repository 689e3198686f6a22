"""How busy other programs keep the processors while something is measured: a rate beside them says nothing of the node."""

import os
import resource
import time
from dataclasses import dataclass
from pathlib import Path

# Of a value that is unknown for that reason.
BUSY = "busy with something else"
# Linux: Documentation/accounting/psi.rst. Kernels may be built, or started, without it.
PRESSURE = Path("/proc/pressure/cpu")
STAT = Path("/proc/stat")
# Of the fields of a line of /proc/stat: idle, and idle while a disk is awaited.
IDLE_FIELDS = (3, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Busyness:
    """One moment: what has added up by then. `recent_percent` is the kernel's mean of the last ten seconds."""

    seconds: float
    recent_percent: float | None
    stalled_seconds: float | None
    busy_ticks: int
    all_ticks: int
    own_seconds: float


def read_busyness() -> Busyness:
    """Read this moment. Raises OSError or ValueError where /proc/stat cannot be read."""
    recent, stalled = _pressure()
    fields = [int(field) for field in STAT.read_text().splitlines()[0].split()[1:9]]
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    own = resource.getrusage(resource.RUSAGE_SELF)
    return Busyness(
        seconds=time.monotonic(),
        recent_percent=recent,
        stalled_seconds=stalled,
        busy_ticks=sum(fields) - sum(fields[at] for at in IDLE_FIELDS),
        all_ticks=sum(fields),
        own_seconds=children.ru_utime + children.ru_stime + own.ru_utime + own.ru_stime,
    )


def percent_between(before: Busyness, after: Busyness) -> tuple[float, str]:
    """Return how busy others were, in percent, and by which measure.

    With PSI: the share of time in which a program that could run had no processor, here or in the ten seconds before. Without: the
    share of all processors that programs other than this one and its children took.
    """
    if before.stalled_seconds is not None and after.stalled_seconds is not None:
        seconds = max(after.seconds - before.seconds, 1e-9)
        during = 100 * (after.stalled_seconds - before.stalled_seconds) / seconds
        return min(
            100.0, max(during, before.recent_percent or 0.0)
        ), "PSI: programs waited for a processor"
    ticks = max(1, after.all_ticks - before.all_ticks)
    own_ticks = (after.own_seconds - before.own_seconds) * os.sysconf("SC_CLK_TCK")
    others = max(0.0, after.busy_ticks - before.busy_ticks - own_ticks)
    return 100 * others / ticks, "/proc/stat: other programs took processors"


def _pressure() -> tuple[float | None, float | None]:
    """Return avg10 and total of the line `some`; None twice where the kernel has none."""
    try:
        line = PRESSURE.read_text().splitlines()[0]
        values = dict(field.split("=") for field in line.split()[1:])
        return float(values["avg10"]), int(values["total"]) * 1e-6
    except (OSError, LookupError, ValueError):
        return None, None
