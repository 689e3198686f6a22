"""kernel_log: the kernel has not lately told of machine checks, memory errors, kills for want of memory, lockups or bad disks.

Read is /dev/kmsg, or a file of kernel lines in the form of dmesg, of kmsg, or with ISO times. Lines older than an hour do not
count: what was put right must not fail a node for ever. A line without a time might be new, so it counts. A log that may not
be read, or in which the kernel has not said a single word, is unknown.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from healthchecks.check import Evidence, Judge, NodeFacts, Verdict
from healthchecks.signatures import SIGNATURES, classify

NAME = "kernel_log"
# how old a line may be; chosen
WINDOW_SECONDS = 3600.0
# a read of /dev/kmsg returns one whole record and refuses shorter buffers
MAX_RECORD_BYTES = 8192
# more than any ring buffer holds; a device that never ends is not read for ever
MAX_RECORDS = 100_000
# the newest part of a file; chosen
MAX_FILE_BYTES = 16 << 20
# characters of a line that are quoted
MAX_QUOTED = 200

KMSG = re.compile(r"\d+,\d+,(?P<micros>\d+),[^;]*;(?P<text>.*)")
DMESG = re.compile(r"(?:<\d+>)?\[\s*(?P<seconds>\d+\.\d+)\]\s?(?P<text>.*)")
ISO = re.compile(r"(?P<moment>\d{4}-\d\d-\d\d[T ]\S+)\s(?P<text>.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the kernel. `age_seconds` is None when it bears no time."""

    text: str
    age_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """This moment by both reckonings: seconds since boot, and seconds since 1970."""

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
    return Verdict(check=NAME, evidence=tuple(weigh(lines, judge, subject=node.kernel_log)))


def weigh(lines: Iterable[Line], judge: Judge, *, subject: str) -> Iterator[Evidence]:
    """Count recent lines by class and judge each class; the newest line of a class is quoted."""
    counts: Counter[str] = Counter()
    newest: dict[str, str] = {}
    num_recent = 0
    for line in lines:
        if line.age_seconds is not None and line.age_seconds > WINDOW_SECONDS:
            continue
        num_recent += 1
        found = classify(line.text)
        if found is not None:
            signature, count = found
            counts[signature.name] += count
            newest[signature.name] = line.text[:MAX_QUOTED]
    yield Evidence(name="kernel_log.recent_lines", value=num_recent, unit="lines", subject=subject)
    for signature in SIGNATURES:
        count, quoted = counts[signature.name], newest.get(signature.name, "")
        if signature.limit:
            yield judge(signature.limit, count, subject=subject, note=quoted)
        else:
            name = f"kernel_log.{signature.name.replace(' ', '_')}"
            yield Evidence(name=name, value=count, unit="lines", subject=subject, note=quoted)


def parse(line: str, now: Now) -> Line:
    """Take a line apart into text and age."""
    if match := KMSG.match(line):
        age = now.boot_seconds - int(match["micros"]) / 1e6
        return Line(text=match["text"], age_seconds=max(0.0, age))
    if match := DMESG.match(line):
        return Line(
            text=match["text"], age_seconds=max(0.0, now.boot_seconds - float(match["seconds"]))
        )
    if match := ISO.match(line):
        try:
            # Without a zone it is local time.
            moment = datetime.fromisoformat(match["moment"].replace(",", ".")).timestamp()
            return Line(text=match["text"], age_seconds=max(0.0, now.wall - moment))
        except ValueError:
            pass
    return Line(text=line, age_seconds=None)


def read_lines(path: str) -> list[str]:
    """Read all lines there are now; of a long file the newest. Raises OSError."""
    # Non-blocking: neither the end of /dev/kmsg nor a pipe without a writer may hold us.
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
            # records were overwritten while we read; the next read gives the oldest that is left
            continue
        if not record:
            return
        yield record.decode(errors="replace")
