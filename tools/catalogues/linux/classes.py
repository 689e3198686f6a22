"""The class of a kernel message: that of its part where it is an error or a warning, and overrides by what it says.

A row is an error where a class says of what, or that it will stay. Others are warnings: each node writes errors while it starts,
of set-up and of parts that it lacks, and runs for months.
"""

import re
from dataclasses import dataclass

from runner.facts.matches import Scope
from tools.catalogues.c_source.calls import LogCall
from tools.catalogues.linux.areas import Area
from tools.catalogues.linux.device_overrides import DEVICE_OVERRIDES
from tools.catalogues.linux.host_overrides import HOST_OVERRIDES
from tools.catalogues.linux.override import Override
from tools.catalogues.rows import Level

# The first that applies counts.
OVERRIDES = (*HOST_OVERRIDES, *DEVICE_OVERRIDES)


@dataclass(frozen=True, slots=True)
class Judged:
    """What a row says of its format."""

    level: Level
    fault: str
    scope: Scope | None
    lasting: bool = False
    why: str = ""


def class_of(call: LogCall, at: str, area: Area) -> Judged:
    """Return the class of one format of a file."""
    for one in OVERRIDES:
        if _applies(one, call, at):
            # What stays broken is an error, whatever level the driver chose.
            level = "error" if one.lasting and one.fault else _level(call.level, one.fault)
            return Judged(level, one.fault, one.scope if one.fault else None, one.lasting, one.why)
    # A check of the kernel's own code, which says little about the machine.
    is_check = "WARN" in call.function
    fault = area.fault if call.level in ("error", "warning") and not is_check else ""
    return Judged(_level(call.level, fault), fault, area.scope if fault else None)


def _level(level: Level, fault: str) -> Level:
    return "warning" if level == "error" and not fault else level


def _applies(one: Override, call: LogCall, at: str) -> bool:
    return (
        at.startswith(one.paths)
        and call.level in one.levels
        and bool(re.search(one.pattern, call.format, re.IGNORECASE))
    )
