"""kernel_log: in the last hour the kernel reported no fault of processors, memory, disks, accelerators or network cards.

It reads /dev/kmsg, or a file of kernel lines in any form that `runner.kernel_lines` knows. A line without a time may be
recent, so it counts; one from before the boot does not. A log that may not be read, or that holds no line, is UNKNOWN. The lines
are those of the table that diagnosis uses, `runner.rootcause.signatures`. What is a lasting sign there fails by one line; other
faults of devices may be a program's, and fail when they repeat. What programs cause, what follows from another line and what the
table calls harmless is counted, not judged. What was corrected fails by its rate alone.
"""

import os
import re
import stat
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cache

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

# One line of the EDAC drivers may report several errors.
_NUM_ERRORS = re.compile(r"EDAC MC\d+: (\d+) [CU]E\b")
# A monitor may cause these by asking for what the card does not have (gpud, issue 1164).
_BY_MONITORS = re.compile(r"mlx5_\w+.*\bACCESS_REG\b")
# Faults of accelerators and of the links between them.
_ACCELERATORS = ("gpu_ecc", "gpu_lost", "nvlink_error", "thermal_power", "gpu_xid_other")
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


def _accelerators(*, is_lasting: bool, layers: tuple[str, ...]) -> tuple[str, ...]:
    """Return the rows about faults of accelerators and of the links between them, of one kind."""
    return tuple(
        row.name
        for row in SIGNATURES
        if row.fault in _ACCELERATORS and row.is_lasting == is_lasting and row.layer in layers
    )


@cache
def _patterns() -> dict[str, re.Pattern[str]]:
    """Return the pattern of each row. Compiling them takes longer than all else here, and other checks need none."""
    return {row.name: re.compile(row.pattern) for row in SIGNATURES}


_HARDWARE = ("device", "link")
# The first class that matches a line counts.
CLASSES = (
    LineClass(
        name="corrected PCIe error",
        signatures=("pcie-corrected",),
        limit="kernel_log.corrected_pcie_errors",
    ),
    LineClass(
        name="corrected accelerator error",
        signatures=("amd-corrected",),
        limit="kernel_log.corrected_accelerator_errors",
    ),
    LineClass(
        name="harmless accelerator event",
        signatures=tuple(
            row.name for row in SIGNATURES if row.weight == "benign" and row.layer in _HARDWARE
        ),
    ),
    LineClass(
        name="accelerator fault",
        # The driver's own verdict has the layer of a consequence, and lasts all the same.
        signatures=_accelerators(is_lasting=True, layers=(*_HARDWARE, "consequence")),
        limit="kernel_log.accelerator_faults",
    ),
    LineClass(
        name="accelerator error",
        signatures=_accelerators(is_lasting=False, layers=_HARDWARE),
        limit="kernel_log.accelerator_errors",
    ),
    LineClass(
        name="accelerator event of a program",
        signatures=_accelerators(is_lasting=False, layers=("consequence",)),
    ),
    LineClass(
        name="network card error",
        signatures=("nic-failed", "nic-broken"),
        limit="kernel_log.network_card_errors",
    ),
    LineClass(
        name="link down",
        signatures=("link-down",),
        limit="kernel_log.links_down",
    ),
    # Elsewhere than at an accelerator; a warning about power comes at every boot of some machines.
    LineClass(
        name="PCIe error",
        signatures=("pcie-uncorrected-elsewhere", "pcie-fatal-elsewhere", "device-removed"),
        limit="kernel_log.pcie_errors",
    ),
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
        signatures=("kernel-stopped", "processor-stuck", "task-blocked"),
        limit="kernel_log.lockups",
    ),
    LineClass(
        name="storage error",
        signatures=("file-system-error",),
        limit="kernel_log.storage_errors",
    ),
)


_EXCUSED = {"storage error": _NO_DISK, "network card error": _BY_MONITORS}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgedLine:
    """One line of the kernel. `age_seconds` is None when it bears no time."""

    text: str
    age_seconds: float | None
    is_of_this_boot: bool = True


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
    events: set[tuple[str, ...]] = set()
    num_recent = 0
    for line in lines:
        is_old = line.age_seconds is not None and line.age_seconds > WINDOW_SECONDS
        if is_old or not line.is_of_this_boot:
            continue
        num_recent += 1
        matched = classify(line.text)
        if matched is not None and not _is_repeated(line, matched, events):
            counts[matched.name] += num_errors(line.text)
            newest[matched.name] = line.text[:MAX_QUOTED_CHARACTERS]
    yield Evidence(name="kernel_log.recent_lines", value=num_recent, unit="lines", subject=subject)
    for line_class in CLASSES:
        count, quoted = counts[line_class.name], newest.get(line_class.name, "")
        if line_class.limit:
            yield judge(line_class.limit, count, subject=subject, note=quoted)
        else:
            name = f"kernel_log.{line_class.name.lower().replace(' ', '_')}"
            yield Evidence(name=name, value=count, unit="lines", subject=subject, note=quoted)


def _is_repeated(line: AgedLine, matched: LineClass, events: set[tuple[str, ...]]) -> bool:
    """Whether a device reported the same event within the same second already; one fault may print thousands of lines."""
    found = next(
        (m for name in matched.signatures if (m := _patterns()[name].search(line.text))), None
    )
    named = {} if found is None else found.groupdict()
    if line.age_seconds is None or not any(named.values()):
        return False
    # Alternatives of a pattern may name the same device in groups of their own.
    values = (value for value in named.values() if value)
    event = (matched.name, f"{line.age_seconds:.0f}", *values)
    is_repeated = event in events
    events.add(event)
    return is_repeated


def classify(text: str) -> LineClass | None:
    """Return the class of a kernel line; None for a line that shows no fault of the node."""
    for line_class in CLASSES:
        if line_class.word in text and any(
            _patterns()[name].search(text) for name in line_class.signatures
        ):
            excused = _EXCUSED.get(line_class.name)
            return line_class if excused is None or excused.search(text) is None else None
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
    if age is None:
        return AgedLine(text=parsed.text, age_seconds=None)
    is_of_this_boot = age <= now.boot_seconds
    return AgedLine(text=parsed.text, age_seconds=max(0.0, age), is_of_this_boot=is_of_this_boot)


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
        "kernel_log.accelerator_faults": at_most(
            0, "events", "a lasting sign in the table of signatures", most=1e6
        ),
        "kernel_log.accelerator_errors": at_most(5, "events", CHOSEN, most=1e6),
        "kernel_log.corrected_pcie_errors": at_most(
            480, "events", "DCGM: 32 a minute for 15 minutes; here in an hour", most=1e6
        ),
        "kernel_log.corrected_accelerator_errors": at_most(100, "events", CHOSEN, most=1e6),
        "kernel_log.network_card_errors": at_most(5, "lines", CHOSEN, most=1e6),
        "kernel_log.links_down": at_most(
            4, "lines", "azurehpc-health-checks: five lost carriers in a day fail", most=1e6
        ),
        "kernel_log.pcie_errors": at_most(5, "lines", CHOSEN, most=1e6),
        "kernel_log.machine_checks": at_most(0, "lines", CHOSEN, most=1e6),
        "kernel_log.uncorrected_memory_errors": at_most(0, "errors", CHOSEN, most=1e6),
        "kernel_log.corrected_memory_errors": at_most(100, "errors", CHOSEN, most=1e9),
        "kernel_log.out_of_memory_kills": at_most(0, "lines", CHOSEN, most=1e6),
        "kernel_log.lockups": at_most(0, "lines", CHOSEN, most=1e6),
        "kernel_log.storage_errors": at_most(0, "lines", CHOSEN, most=1e6),
    },
)
