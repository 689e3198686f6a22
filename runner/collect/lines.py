"""Lines without their wrapping: a program's text, and the rank, node and time that launchers wrote before it.

Wrappings nest (a container's time, srun's task, torchrun's rank), so they are removed one after the other, the outermost first.
Only an unambiguous prefix counts as one. A bare number or name ("12: ", "node7: ", of `srun -l` and pdsh) is ambiguous in a
single line: `bare_prefix` decides by many lines, and the caller passes its answer to `unwrapped`.

A number of torchrun ("[default3]:", "[3]:") counts ranks on one node: it is `local_rank`. Times
without a zone are of this machine's zone; times without a year, or since boot, give no `at`.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from runner.facts.wording import valid_text
from runner.kernel_lines import CTIME, ISO_TIME, MONTHS, iso_of_ctime

# All chosen, not measured.
MAX_LINE_BYTES = 64 * 1024
MAX_WRAPPINGS = 6
SHOWN_BYTES_AROUND_MATCH = 2048
MAX_RANK_DIGITS = 6
# A bare number is a rank if at least so many lines, and this ratio of all, begin with one.
MIN_LINES, BARE_RATIO = 4, 0.9

Bare = Literal["rank", "node"]

ANSI = re.compile(
    r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9]|[=>78])"
)
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_HOST = r"[A-Za-z0-9][\w.\-]*"
_MONTHS = "|".join(MONTHS)
_LEVELS = r"(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|CRITICAL|FATAL)\b"
_DIGITS = rf"\d{{1,{MAX_RANK_DIGITS}}}"

# Writer -> the prefix of its lines. Groups: rank, local, node, time (ISO), ctime; "task" is a rank
# unless a wrapping within names another.
_WRAPPINGS = {
    "torch": rf"\[rank(?P<rank>{_DIGITS})\]: ?",
    "torchrun --role host:": rf"\[(?P<node>[A-Za-z][\w.\-]*):(?P<local>{_DIGITS})\]:? ?",
    "torchrun, a role and the local rank": rf"\[[A-Za-z][A-Za-z_\-]*(?P<local>{_DIGITS})\]: ?",
    # Not "[1]:" of its summary, nor "[1]: " of a list.
    "torchrun without a role": rf"\[(?P<local>{_DIGITS})\]:(?=\S|  )",
    "mpirun --tag-output": rf"\[\d+,(?P<rank>{_DIGITS})\]<std(?:out|err)>: ?",
    "srun -l around torch": rf"(?P<task> *{_DIGITS}): (?=\[rank{_DIGITS}\]:)",
    "Ray": r"\((?:[\w:.<>]+ )?pid=\d+(?:, ip=(?P<node>[\w.:\-]+))?\) ?",
    "containerd, CRI-O": rf"(?P<time>{ISO_TIME}) std(?:out|err) [FP] ",
    "kubectl logs --prefix": rf"\[pod/(?P<node>{_HOST})/{_HOST}\] ?",
    "NCCL: host, process, thread, device": rf"(?P<node>{_HOST}):\d+:\d+ \[-?\d+\] (?=.*NCCL )",
    "syslog": rf"(?:<\d+>)?(?:{_MONTHS}) [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)? (?!{_LEVELS})(?P<node>{_HOST}) (?:kernel: )?",
    "rsyslog": rf"(?:<\d+>1 )?(?P<time>{ISO_TIME}) (?!{_LEVELS})(?P<node>{_HOST}) (?:kernel: |(?=[\w.\-/]+\[\d+\]: ))",
    "dmesg -T": rf"\[(?P<ctime>{CTIME})\] ?",
    "dmesg": r"(?:<\d+>)?\[ *\d+\.\d{6}\](?:\[ *[TC]\d+\])? ?",
    "log4j, Python's logging, and most others": rf"\[?(?P<time>{ISO_TIME})\]?(?:: | ?[-|] )? *",
}
WRAPPINGS = tuple(re.compile(pattern) for pattern in _WRAPPINGS.values())
_BARE = {
    "rank": re.compile(rf" *(?P<task>{_DIGITS}):(?: |$)"),
    "node": re.compile(r"(?P<node>(?=[A-Za-z.\-]*\d)[A-Za-z][\w.\-]*):(?: |$)"),
}
# Slurm's own messages have no rank.
_SLURM = re.compile(r"(?:srun|slurmstepd|scancel|salloc): ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A program's text. `rank` counts in the gang, `local_rank` on one node; `at`: Unix seconds. None: unknown."""

    text: str
    rank: int | None = None
    local_rank: int | None = None
    node: str | None = None
    at: float | None = None


def num_ends(block: bytes, first: int = 0, end: int | None = None) -> int:
    """Return how many lines end in a block, or in a part of it: faster than `bytes.count` of Python 3.11 unless they are short."""
    part = block[first:end]
    return len(part) - len(part.replace(b"\n", b""))


def decode_line(raw: bytes) -> str:
    """Decode the first MAX_LINE_BYTES of a line, invalid UTF-8 replaced."""
    return raw[:MAX_LINE_BYTES].decode(errors="replace")


def shown_part(line: bytes, end: int) -> bytes:
    """Return the part of a line around a match that ends at `end`: of a progress bar, its state there."""
    first = line.rfind(b"\r", 0, max(end - 1, 0)) + 1
    last = line.find(b"\r", end)
    state = line[first : len(line) if last < 0 else last]
    if len(state) <= 2 * SHOWN_BYTES_AROUND_MATCH:
        return state
    middle = end - first
    return state[max(0, middle - SHOWN_BYTES_AROUND_MATCH) : middle + SHOWN_BYTES_AROUND_MATCH]


def plain(text: str) -> str:
    """Remove colours and control characters, but no tabs and carriage returns."""
    if "\x1b" in text:
        text = ANSI.sub("", text)
    return CONTROL.sub("", text)


def segment(text: str, at: int | None = None) -> str:
    """Return one state of a progress bar: the one around offset `at`, else the last that is not empty."""
    if "\r" not in text:
        return text
    if at is not None:
        end = text.find("\r", at)
        return text[text.rfind("\r", 0, at) + 1 : len(text) if end < 0 else end]
    return next((part for part in reversed(text.split("\r")) if part.strip()), "")


def bare_prefix(lines: Iterable[str]) -> Bare | None:
    """Return whether the lines of a log begin with a bare rank or node; None: neither, or too few lines.

    They do when nearly all begin with one and at least one comes twice. Numbered lines (of `grep
    -n`, of a list) never repeat; a name needs a digit, so "INFO: " and "ValueError: " are none.
    """
    texts = [plain(line) for line in lines]
    texts = [line for line in texts if line.strip() and not _SLURM.match(line)]
    if len(texts) < MIN_LINES:
        return None
    kinds: tuple[Bare, ...] = ("rank", "node")
    for kind in kinds:
        prefixes = [match[1] for line in texts if (match := _BARE[kind].match(line))]
        if len(prefixes) >= BARE_RATIO * len(texts) and max(Counter(prefixes).values()) > 1:
            return kind
    return None


def unwrapped(text: str, bare: Bare | None = None) -> Line:
    """Remove the wrapping of a line. `bare`: the `bare_prefix` of its log."""
    rest = plain(text[:MAX_LINE_BYTES].rstrip("\r\n"))
    fields: dict[str, str] = {}
    for _ in range(MAX_WRAPPINGS):
        if rest.startswith('{"log":'):
            rest = _docker(rest, fields)
        match = _wrapping(rest, bare)
        if match is None:
            break
        if "task" in match.groupdict():
            # A second number is the program's own.
            bare = None
        _collect(match, fields)
        rest = rest[match.end() :]
    task = None if "rank" in fields or "local" in fields else fields.get("task")
    rank = fields.get("rank", task)
    return Line(
        text=segment(rest),
        rank=None if rank is None else int(rank),
        local_rank=int(fields["local"]) if "local" in fields else None,
        node=fields.get("node"),
        at=unix_seconds(fields.get("time", "")),
    )


def _wrapping(rest: str, bare: Bare | None) -> re.Match[str] | None:
    for pattern in WRAPPINGS:
        match = pattern.match(rest)
        if match is not None:
            return match
    return None if bare is None else _BARE[bare].match(rest)


def _collect(match: re.Match[str], fields: dict[str, str]) -> None:
    """Add the fields of a wrapping: the innermost rank counts, and the outermost of the others."""
    for name, value in match.groupdict().items():
        if name == "ctime" and value is not None:
            name, value = "time", iso_of_ctime(value)
        if value is not None and (name == "rank" or name not in fields):
            fields[name] = value


def _docker(rest: str, fields: dict[str, str]) -> str:
    """Remove the JSON of Docker's log files; text that only looks like it stays unchanged."""
    try:
        entry = json.loads(rest)
    except (ValueError, RecursionError):
        return rest
    log, time = entry.get("log"), entry.get("time")
    if not isinstance(log, str) or not isinstance(time, str):
        return rest
    fields.setdefault("time", time)
    return plain(valid_text(log).rstrip("\r\n"))


def unix_seconds(iso_time: str) -> float | None:
    """Return the moment that an ISO 8601 time names; None: it only looks like one, such as 2025-13-45."""
    try:
        return datetime.fromisoformat(iso_time.replace(" +", "+")).timestamp()
    except (ValueError, OverflowError):
        return None
