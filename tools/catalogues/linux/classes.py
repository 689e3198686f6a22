"""The class of a kernel message: that of its part where it is an error or a warning, and overrides by what it says."""

import re
from dataclasses import dataclass

from runner.facts.matches import Scope
from tools.catalogues.c_source.calls import LogCall
from tools.catalogues.linux.areas import Area
from tools.catalogues.linux.overrides import OVERRIDES, Override
from tools.catalogues.rows import Level


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
            return Judged(call.level, one.fault, one.scope, one.lasting, one.why)
    fault = area.fault if call.level in ("error", "warning") else ""
    return Judged(call.level, fault, area.scope if fault else None)


def _applies(one: Override, call: LogCall, at: str) -> bool:
    return (
        at.startswith(one.paths)
        and call.level in one.levels
        and bool(re.search(one.says, call.format, re.IGNORECASE))
    )
