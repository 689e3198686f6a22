"""Lines without their wrapping: what a program said, and which rank, node and moment the launchers around it wrote before it.

Wrappings nest (a container's time, srun's task, torchrun's rank), so they are taken off one after the other, the outermost first.
Only what cannot be anything else is taken for one. A bare number or name ("12: ", "node7: ", of `srun -l` and pdsh) can be
anything, so a single line never decides about it: `bare_prefix` looks at many, and its answer is handed to `unwrapped`.

A number that torchrun writes ("[default3]:", "[3]:") counts ranks on one node: it is `local_rank`. Times without a zone are of this
machine's zone, as in `healthchecks/kernel_log`; times without a year, or since boot, are taken off and give no `at`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from runner.rootcause.kernel_lines import CTIME, ISO_TIME, MONTHS, iso_of_ctime

# of a line that are looked at, the first ones; chosen, not measured
MAX_LINE_BYTES = 64 * 1024
# wrappings around one line; chosen
MAX_NESTING = 6
# lines that decide whether a bare number is a rank; chosen
MIN_LINES = 4
# of these lines that must begin with one; chosen
BARE_SHARE = 0.9
# a number with more is no rank; chosen
MAX_RANK_DIGITS = 6

Bare = Literal["rank", "node"]

ANSI = re.compile(
    r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9]|[=>78])"
)
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_HOST = r"[A-Za-z0-9][\w.\-]*"
_ISO = ISO_TIME
_MONTHS = "|".join(MONTHS)
_LEVELS = r"(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL)\b"
_DIGITS = rf"\d{{1,{MAX_RANK_DIGITS}}}"

# What may stand before a line. Groups: rank, local, node, time (ISO), ctime; "task" is a rank unless a line within says another.
WRAPPINGS: tuple[re.Pattern[str], ...] = tuple(
    re.compile(pattern)
    for pattern in (
        # torch
        rf"\[rank(?P<rank>{_DIGITS})\]: ?",
        # torchrun, --role "host:"
        rf"\[(?P<node>[A-Za-z][\w.\-]*):(?P<local>{_DIGITS})\]:? ?",
        # torchrun: role and local rank
        rf"\[[A-Za-z][A-Za-z_\-]*(?P<local>{_DIGITS})\]: ?",
        # torchrun without a role; not "[1]:" of its summary, nor "[1]: " of a list
        rf"\[(?P<local>{_DIGITS})\]:(?=\S|  )",
        # mpirun --tag-output
        rf"\[\d+,(?P<rank>{_DIGITS})\]<std(?:out|err)>: ?",
        # srun -l around torch
        rf"(?P<task> *{_DIGITS}): (?=\[rank{_DIGITS}\]:)",
        # Ray
        r"\((?:[\w:.<>]+ )?pid=\d+(?:, ip=(?P<node>[\w.:\-]+))?\) ?",
        # containerd, CRI-O
        rf"(?P<time>{_ISO}) std(?:out|err) [FP] ",
        # kubectl logs --prefix
        rf"\[pod/(?P<node>{_HOST})/{_HOST}\] ?",
        # NCCL: host, process, thread, device
        rf"(?P<node>{_HOST}):\d+:\d+ \[-?\d+\] (?=.*NCCL )",
        # syslog
        rf"(?:<\d+>)?(?:{_MONTHS}) [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)? (?P<node>{_HOST}) (?:kernel: )?",
        # rsyslog
        rf"(?:<\d+>1 )?(?P<time>{_ISO}) (?!{_LEVELS})(?P<node>{_HOST}) (?:kernel: |(?=[\w.\-/]+\[\d+\]: ))",
        # dmesg -T
        rf"\[(?P<ctime>{CTIME})\] ?",
        # dmesg
        r"(?:<\d+>)?\[ *\d+\.\d{6}\](?:\[ *[TC]\d+\])? ?",
        # log4j, Python's logging, everybody
        rf"\[?(?P<time>{_ISO})\]?(?:: | ?[-|] )? *",
    )
)
_BARE = {
    "rank": re.compile(rf" *(?P<task>{_DIGITS}):(?: |$)"),
    "node": re.compile(r"(?P<node>(?=[A-Za-z.\-]*\d)[A-Za-z][\w.\-]*):(?: |$)"),
}
# Slurm's own words stand among lines with ranks, and bear none.
_SLURM = re.compile(r"(?:srun|slurmstepd|scancel|salloc): ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What a program said. `rank` counts in the gang, `local_rank` on one node; `at`: Unix seconds; None: nothing is said of it."""

    text: str
    rank: int | None = None
    local_rank: int | None = None
    node: str | None = None
    at: float | None = None


def decoded(raw: bytes) -> str:
    """Make text of the bytes of a line: no more than MAX_LINE_BYTES, and what is no UTF-8 replaced."""
    return raw[:MAX_LINE_BYTES].decode(errors="replace")


def plain(text: str) -> str:
    """Take colours and control characters off, tabs and carriage returns apart."""
    if "\x1b" in text:
        text = ANSI.sub("", text)
    return CONTROL.sub("", text)


def segment(text: str, at: int | None = None) -> str:
    """Return one picture of a progress bar: the one that `at` stands in, else the last that is not empty."""
    if "\r" not in text:
        return text
    if at is not None:
        end = text.find("\r", at)
        return text[text.rfind("\r", 0, at) + 1 : len(text) if end < 0 else end]
    return next((part for part in reversed(text.split("\r")) if part.strip()), "")


def bare_prefix(lines: Iterable[str]) -> Bare | None:
    """Say whether the lines of a log begin with a bare rank or node. None: they do not, or there is no telling.

    They do when nearly all of them begin with one and at least one comes twice. Numbered lines (of `grep -n`, of a list) count up
    and never repeat; a name needs a digit in it, so "INFO: " and "ValueError: " are none.
    """
    asked = [plain(line) for line in lines]
    asked = [line for line in asked if line.strip() and not _SLURM.match(line)]
    if len(asked) < MIN_LINES:
        return None
    kinds: tuple[Bare, ...] = ("rank", "node")
    for kind in kinds:
        found = [match[1] for line in asked if (match := _BARE[kind].match(line))]
        if len(found) >= BARE_SHARE * len(asked) and max(Counter(found).values()) > 1:
            return kind
    return None


def unwrapped(text: str, bare: Bare | None = None) -> Line:
    """Take the wrapping off a line. `bare`: what `bare_prefix` said of the log that it stands in."""
    rest = plain(text[:MAX_LINE_BYTES].rstrip("\r\n"))
    said: dict[str, str] = {}
    for _ in range(MAX_NESTING):
        if rest.startswith('{"log":'):
            rest = _docker(rest, said)
        match = _wrapping(rest, bare)
        if match is None:
            break
        if "task" in match.groupdict():
            # a second number is the program's own
            bare = None
        _note(match, said)
        rest = rest[match.end() :]
    task = None if "rank" in said or "local" in said else said.get("task")
    rank = said.get("rank", task)
    return Line(
        text=segment(rest),
        rank=None if rank is None else int(rank),
        local_rank=int(said["local"]) if "local" in said else None,
        node=said.get("node"),
        at=unix_seconds(said.get("time", "")),
    )


def _wrapping(rest: str, bare: Bare | None) -> re.Match[str] | None:
    for pattern in WRAPPINGS:
        match = pattern.match(rest)
        if match is not None:
            return match
    return None if bare is None else _BARE[bare].match(rest)


def _note(match: re.Match[str], said: dict[str, str]) -> None:
    """Keep what a wrapping says: of ranks the innermost, of all else the outermost."""
    for name, value in match.groupdict().items():
        if name == "ctime" and value is not None:
            name, value = "time", iso_of_ctime(value)
        if value is not None and (name == "rank" or name not in said):
            said[name] = value


def _docker(rest: str, said: dict[str, str]) -> str:
    """Take the JSON of Docker's log files off; text that only looks like it stays as it is."""
    try:
        entry = json.loads(rest)
    except (ValueError, RecursionError):
        return rest
    log, time = entry.get("log"), entry.get("time")
    if not isinstance(log, str) or not isinstance(time, str):
        return rest
    said.setdefault("time", time)
    return plain(log.rstrip("\r\n"))


def unix_seconds(iso_time: str) -> float | None:
    """Return the moment that an ISO 8601 time names; None: it only looks like one, such as 2025-13-45."""
    try:
        return datetime.fromisoformat(iso_time.replace(" +", "+")).timestamp()
    except (ValueError, OverflowError):
        return None
