"""kernel_log: the kernel reported no machine check, memory error, out-of-memory kill, lockup or failing disk in the last hour.

It reads /dev/kmsg, or a file of kernel lines in any form that `runner.kernel_lines` knows. A line without a time may be
recent, so it counts. A log that may not be read, or that holds no line, is UNKNOWN. The lines are those of the table that
diagnosis uses, `runner.rootcause.signatures`; rows about accelerators and network cards are left to checks of their own.
"""

import os
import re
import stat
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from healthchecks.check import Evidence, Judge, NodeFacts, Verdict
from healthchecks.declaration import CHOSEN, HealthCheck, at_most
from runner.kernel_lines import MAX_RECORD_BYTES, MAX_RECORDS, parse_kernel_line
from runner.rootcause.signatures import SIGNATURES

NAME = "kernel_log"
# Older lines do not count: a fault that was repaired must not fail a node for ever. Chosen, not measured.
WINDOW_SECONDS = 3600.0
# Of a longer file the newest part is read. Chosen, not measured.
MAX_FILE_BYTES = 16 << 20
MAX_QUOTED_CHARACTERS = 200

_PATTERNS = {row.name: re.compile(row.pattern) for row in SIGNATURES}
# One line of the EDAC drivers may report several errors.
_NUM_ERRORS = re.compile(r"EDAC MC\d+: (\d+) [CU]E\b")
# Loop devices, floppies and CD-ROMs report errors for harmless reasons, such as a missing medium.
_NO_DISK = re.compile(r"\b(?:loop|fd|sr)\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class LineClass:
    """A class of kernel lines: rows of the table of signatures, of which only lines with `word` in them count.

    `limit` is the limit on their number; without one they are reported, not judged.
    """

    name: str
    signatures: tuple[str, ...]
    word: str = ""
    limit: str = ""


# The first class that matches a line counts.
CLASSES = (
    LineClass(
        name="machine check",
        signatures=("machine-check", "machine-check-logged"),
        word="mce: ",
        limit="kernel_log.machine_checks",
    ),
    LineClass(
        name="uncorrected memory error",
        signatures=("machine-check", "memory-failure"),
        limit="kernel_log.uncorrected_memory_errors",
    ),
    LineClass(
        name="corrected memory error",
        signatures=("memory-corrected",),
        limit="kernel_log.corrected_memory_errors",
    ),
    # Exceeding a control group's own limit is a fault of the job in it, not of the node.
    LineClass(
        name="control group out of memory",
        signatures=("oom-kill",),
        word="Memory cgroup out of memory: Killed process",
    ),
    LineClass(
        name="out of memory",
        signatures=("oom-kill",),
        word="Out of memory",
        limit="kernel_log.out_of_memory_kills",
    ),
    LineClass(
        name="lockup",
        signatures=("kernel-stopped", "task-blocked"),
        limit="kernel_log.lockups",
    ),
    LineClass(
        name="storage error",
        signatures=("file-system-error",),
        limit="kernel_log.storage_errors",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgedLine:
    """One line of the kernel. `age_seconds` is None when it bears no time."""

    text: str
    age_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """This moment by two clocks: seconds since boot, and Unix seconds."""

    boot_seconds: float
    wall: float


def check(node: NodeFacts, judge: Judge) -> Verdict:
    """Read `node.kernel_log` and count recent lines by class."""
    try:
        raw = read_lines(node.kernel_log)
    except OSError as error:
        return Verdict(check=NAME, trouble=f"{node.kernel_log} cannot be read: {error}")
    now = Now(boot_seconds=time.clock_gettime(time.CLOCK_BOOTTIME), wall=time.time())
    lines = [parse(line, now) for line in raw if line.strip()]
    if not lines:
        return Verdict(check=NAME, trouble=f"{node.kernel_log} holds no line of the kernel")
    return Verdict(check=NAME, evidence=tuple(count_lines(lines, judge, subject=node.kernel_log)))


def count_lines(lines: Iterable[AgedLine], judge: Judge, *, subject: str) -> Iterator[Evidence]:
    """Count recent lines by class and judge each class; the newest line of a class is quoted."""
    counts: Counter[str] = Counter()
    newest: dict[str, str] = {}
    num_recent = 0
    for line in lines:
        if line.age_seconds is not None and line.age_seconds > WINDOW_SECONDS:
            continue
        num_recent += 1
        matched = classify(line.text)
        if matched is not None:
            counts[matched.name] += num_errors(line.text)
            newest[matched.name] = line.text[:MAX_QUOTED_CHARACTERS]
    yield Evidence(name="kernel_log.recent_lines", value=num_recent, unit="lines", subject=subject)
    for line_class in CLASSES:
        count, quoted = counts[line_class.name], newest.get(line_class.name, "")
        if line_class.limit:
            yield judge(line_class.limit, count, subject=subject, note=quoted)
        else:
            name = f"kernel_log.{line_class.name.replace(' ', '_')}"
            yield Evidence(name=name, value=count, unit="lines", subject=subject, note=quoted)


def classify(text: str) -> LineClass | None:
    """Return the class of a kernel line; None for a line that shows no fault of the node."""
    for line_class in CLASSES:
        if line_class.word in text and any(
            _PATTERNS[name].search(text) for name in line_class.signatures
        ):
            is_disk = line_class.name != "storage error" or _NO_DISK.search(text) is None
            return line_class if is_disk else None
    return None


def num_errors(text: str) -> int:
    """Return how many errors a line reports."""
    match = _NUM_ERRORS.search(text)
    return 1 if match is None else int(match[1])


def parse(line: str, now: Now) -> AgedLine:
    """Take a line apart into text and age. A line that a program wrote counts too: some forms do not distinguish it."""
    parsed = parse_kernel_line(line)
    age = None
    if parsed.microseconds is not None:
        age = now.boot_seconds - parsed.microseconds / 1e6
    elif parsed.wall_time:
        try:
            # Without a zone it is local time.
            moment = datetime.fromisoformat(parsed.wall_time.replace(",", "."))
            age = now.wall - moment.timestamp()
        except ValueError:
            pass
    return AgedLine(text=parsed.text, age_seconds=None if age is None else max(0.0, age))


def read_lines(path: str) -> list[str]:
    """Read all lines there are now; of a long file the newest. Raises OSError."""
    # Non-blocking: the end of /dev/kmsg, or a pipe without a writer, would block for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        if stat.S_ISCHR(os.fstat(descriptor).st_mode):
            return [record.partition("\n")[0] for record in _records(descriptor)]
        size = os.fstat(descriptor).st_size
        text = os.pread(descriptor, MAX_FILE_BYTES, max(0, size - MAX_FILE_BYTES))
        return text.decode(errors="replace").splitlines()
    finally:
        os.close(descriptor)


def _records(descriptor: int) -> Iterator[str]:
    for _ in range(MAX_RECORDS):
        try:
            record = os.read(descriptor, MAX_RECORD_BYTES)
        except BlockingIOError:
            return
        except BrokenPipeError:
            # Records were overwritten in the meantime; the next read returns the oldest that remains.
            continue
        if not record:
            return
        yield record.decode(errors="replace")


CHECK = HealthCheck(
    name=NAME,
    position=70,
    run=check,
    seconds={"passive": 0.5},
    needs=("kernel_log",),
    # Most users may not read the kernel's log: UNKNOWN costs a node nothing, and a FAIL counts.
    is_required=False,
    limits={
        "kernel_log.machine_checks": at_most(0, "lines", CHOSEN, most=1e6),
        "kernel_log.uncorrected_memory_errors": at_most(0, "errors", CHOSEN, most=1e6),
        "kernel_log.corrected_memory_errors": at_most(100, "errors", CHOSEN, most=1e9),
        "kernel_log.out_of_memory_kills": at_most(0, "lines", CHOSEN, most=1e6),
        "kernel_log.lockups": at_most(0, "lines", CHOSEN, most=1e6),
        "kernel_log.storage_errors": at_most(0, "lines", CHOSEN, most=1e6),
    },
)
