r"""Kernel lines: one line of the kernel's log, as /dev/kmsg, dmesg (with -x and -T too) or syslog writes it, in its parts.

The caller reads the log, and turns a wall clock's time into Unix seconds: this module knows no clock and no time zone.
"""

import re
from dataclasses import dataclass

# A read of /dev/kmsg returns one whole record and refuses shorter buffers.
MAX_RECORD_BYTES = 8192
# More than any ring buffer holds, so that a device without an end is not read for ever; chosen, not measured.
MAX_RECORDS = 100_000

LEVELS = ("emerg", "alert", "crit", "err", "warn", "notice", "info", "debug")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
ISO_TIME = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z| ?[+-]\d\d:?\d\d)?"
CTIME = rf"\w{{3}} (?:{'|'.join(MONTHS)}) [ \d]\d \d\d:\d\d:\d\d \d{{4}}"

_KMSG = re.compile(r"(?P<priority>\d+),(?P<sequence>\d+),(?P<microseconds>\d+),[^;]*;(?P<text>.*)")
# The facility and level of `dmesg -x`.
_FACILITY = rf"(?P<facility>[a-z0-9]+) *:(?P<level>{'|'.join(LEVELS)}) *: ?"
_UPTIME = r"\[ *(?P<seconds>\d+)\.(?P<microseconds>\d{6})\](?:\[ *[TC]\d+\])? ?"
_DMESG = re.compile(rf" *(?:{_FACILITY})?(?:<(?P<priority>\d+)>)?(?:{_UPTIME})?(?P<text>.*)")
_SYSLOG_TIME = r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|(?P<iso>\d{4}-\d\d-\d\dT\S+))"
_SYSLOG = re.compile(rf"{_SYSLOG_TIME} \S+ kernel: ")
_SYSLOG_OF_PROGRAM = re.compile(rf"{_SYSLOG_TIME} \S+ (?!kernel: )[\w.\-/()@]+(?:\[\d+\])?: ")
_WALL_TIME = re.compile(rf"\[(?P<ctime>{CTIME})\] ?|\[?(?P<iso>{ISO_TIME})\]?(?:: | ?[-|] )? *")
_ESCAPED_BYTE = re.compile(r"\\x([0-9a-f]{2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLine:
    """One line. None or "" where its form does not state a value.

    `microseconds` count from boot. `wall_time` is in ISO 8601; without a zone it is of this machine's zone. `level` is 0
    (emergency) to 7 (debug), `sequence` the kernel's own number of the record. Any program may write into the kernel's log, so
    a line with `is_from_kernel` False proves no fault.
    """

    text: str
    microseconds: int | None = None
    wall_time: str = ""
    level: int | None = None
    sequence: int | None = None
    is_from_kernel: bool = True


def parse_kernel_line(line: str) -> KernelLine:
    """Take one line apart; a line of no known form is all text."""
    if kmsg := _KMSG.match(line):
        priority = int(kmsg["priority"])
        return KernelLine(
            text=_unescaped(kmsg["text"]).rstrip(),
            microseconds=int(kmsg["microseconds"]),
            level=priority & 7,
            sequence=int(kmsg["sequence"]),
            is_from_kernel=priority <= 7,
        )
    wall_time, rest = "", line
    if syslog := _SYSLOG.match(line):
        wall_time, rest = syslog["iso"] or "", line[syslog.end() :]
    match = _DMESG.match(rest)
    # Every part of the pattern is optional.
    assert match is not None
    text, priority = match["text"], int(match["priority"] or 0)
    is_stamped = match["seconds"] is not None
    if not is_stamped and (wall := _WALL_TIME.match(text)):
        wall_time = wall_time or wall["iso"] or iso_of_ctime(wall["ctime"])
        text = text[wall.end() :]
    level = None if match["priority"] is None else priority & 7
    return KernelLine(
        text=text.rstrip(),
        microseconds=int(match["seconds"] + match["microseconds"]) if is_stamped else None,
        wall_time=wall_time.replace(" +", "+").replace(" -", "-"),
        level=LEVELS.index(match["level"]) if match["level"] else level,
        is_from_kernel=priority <= 7
        and (match["facility"] or "kern") == "kern"
        and _SYSLOG_OF_PROGRAM.match(line) is None,
    )


def iso_of_ctime(ctime: str) -> str:
    """Write "Thu Jan  2 03:04:05 2025" as "2025-01-02T03:04:05"."""
    _, month, day, clock, year = ctime.split()
    return f"{year}-{MONTHS.index(month) + 1:02}-{int(day):02}T{clock}"


def _unescaped(text: str) -> str:
    """Undo the escapes of /dev/kmsg: hexadecimal bytes for what is not printable, and for a line's end within a record."""
    if "\\x" not in text:
        return text
    raw = _ESCAPED_BYTE.sub(lambda match: chr(int(match[1], 16)), text)
    try:
        return raw.encode("latin-1").decode(errors="replace")
    except UnicodeEncodeError:
        return raw
