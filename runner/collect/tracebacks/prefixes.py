"""Prefixes: which lines belong together, by what is written before their text.

Known wrappings are removed by `collect.lines`. Any other text before "Traceback (most recent call last):" is learned from that
line: the lines after it that begin so belong to it. Times within a prefix differ from line to line; all else is equal.
"""

import re
from dataclasses import dataclass

from runner.collect.lines import Bare, plain, unwrapped

# Bytes of a line that are read: a frame or an exception is shorter. Chosen.
MAX_BYTES = 8192
# Characters of an unknown prefix; chosen.
MAX_PREFIX = 160
# Blanks before a number in a column; chosen.
MAX_INDENT = 16
_TIMES = re.compile(
    r"\d{4}[-/.]\d\d[-/.]\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?"
    r"|\d\d:\d\d:\d\d(?:[.,]\d+)?|\[ *\d+\.\d{6}\]|\b\d{9,}(?:\.\d+)?"
)
_TIME_PATTERN = r"[\d\-/.,:TZUC+ ]+"
_RANK = re.compile(r"(?i)(?:^|[^a-z])(?:global[ _]?)?rank[ _:=#]*(\d{1,6})\b|^ *(\d{1,6}): *$")


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenLine:
    """One line. `key`: what known wrappings wrote before its text, times apart."""

    number: int
    text: str
    key: str = ""
    rank: int | None = None
    node: str = ""
    at: float | None = None


def read_line(raw: bytes, number: int, bare: Bare | None) -> WrittenLine:
    """Decode a line and remove its known wrappings."""
    whole = plain(raw[:MAX_BYTES].decode(errors="replace").rstrip("\r\n"))
    is_indented = whole.startswith("  ") and not whole[:MAX_INDENT].lstrip()[:1].isdigit()
    if is_indented and "\r" not in whole:
        # Only a number in a column may be before a text that is indented.
        return WrittenLine(number=number, text=whole.rstrip())
    line = unwrapped(whole, bare)
    prefix = whole[: len(whole) - len(line.text)] if whole.endswith(line.text) else ""
    return WrittenLine(
        number=number,
        text=line.text.rstrip(),
        key=_TIMES.sub("<time>", prefix).rstrip(),
        rank=line.rank,
        node=line.node or "",
        at=line.at,
    )


def learned_prefix(prefix: str) -> re.Pattern[str] | None:
    """Return a pattern for the lines that begin as this unknown prefix does; None for one that is too long to be any."""
    if not prefix.strip() or len(prefix) > MAX_PREFIX:
        return None
    # Empty lines are written without the blank at its end.
    parts = [re.escape(part) for part in _TIMES.split(prefix.rstrip())]
    return re.compile(_TIME_PATTERN.join(parts) + r"(?: |$)?")


def rank_in(prefix: str) -> int | None:
    """Return the rank that an unknown prefix names."""
    found = _RANK.search(prefix)
    return int(found[1] or found[2]) if found is not None else None
