"""The kernel's log: /dev/kmsg, or a file of kernel lines in its place (kern.log, the output of dmesg).

A poll returns the kernel's records of this boot, since a moment. Records of programs are dropped and counted: any program may
write to the log and pretend a fault. Records of one poll that differ only in times within their text are merged into the first.
Records that the kernel overwrote before they were read are counted by their sequence numbers.

The device holds this boot only; a file may hold several. Where its clock falls back, or the kernel
prints its version, a boot began, and earlier records belong to another boot; so does a record later
than this boot's clock. A line without a time counts as new.
"""

import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import structs

from runner.collect.lines import decode_line, unix_seconds, unwrapped
from runner.collect.tails.tail import Tail
from runner.facts.messages.log_search import LogPosition
from runner.kernel_lines import MAX_RECORD_BYTES, MAX_RECORDS, KernelLine, parse_kernel_line

DEVICE = Path("/dev/kmsg")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# CPUs do not agree to the microsecond; a clock that falls back further was reset by a boot; chosen.
FALL_BACK_MICROSECONDS = 10_000_000
# How far the kernel's clock, which is never adjusted, may be ahead of ours; chosen.
SLACK_MICROSECONDS, SLACK_SHARE = 10_000_000, 1e-3
# /dev/kmsg adds lines that name a record's device.
_DEVICE_OF = re.compile(r" [A-Z_]+=")
_TIMES = re.compile(
    r"\[ *\d+\.\d{3,9}\]|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?|\b\d\d:\d\d:\d\d(?:\.\d+)?\b"
)


@dataclass(slots=True, kw_only=True)
class KernelRecord:
    """One line; `at`: Unix seconds, where it states a wall clock's time.

    `num_repeats`: how many records of this poll it replaces, the last one at `last_microseconds`.
    `num_lost_before`: records between the one before and this one that were overwritten.
    """

    line: KernelLine
    at: float | None = None
    num_repeats: int = 1
    last_microseconds: int | None = None
    num_lost_before: int = 0


def this_boot(path: Path = BOOT_ID) -> str:
    """Return the id of the boot that this machine is in. Raises OSError."""
    return path.read_text().strip()


class KernelLog:
    """Follows a kernel's log. `trouble`: why nothing can be read now.

    It counts records that were overwritten before they were read (`num_lost`), that programs wrote
    (`num_foreign`), and that are of an earlier boot or from before the moment (`num_earlier`).
    """

    def __init__(
        self,
        path: Path,
        boot_id: str,
        *,
        since_microseconds: int = 0,
        since: float | None = None,
        position: LogPosition | None = None,
    ) -> None:
        """Read records since `since_microseconds` after boot, or, with a wall clock's time only, since `since` (Unix seconds)."""
        self.path = path
        self.boot_id = boot_id
        self.num_lost = self.num_foreign = self.num_earlier = 0
        self.trouble = ""
        self._since_microseconds = since_microseconds
        self._since = since
        same_boot = position is not None and position.boot_id == boot_id
        self._sequence = position.sequence if position and same_boot else None
        self._tail = Tail(path, position if position and position.inode else None)
        self._device: int | None = None
        self._last_microseconds = 0

    @property
    def position(self) -> LogPosition:
        """Where the next poll continues."""
        in_file = self._tail.position or LogPosition()
        return structs.replace(in_file, boot_id=self.boot_id, sequence=self._sequence)

    @property
    def num_lost_bytes(self) -> int:
        """Bytes of a file that were seen, and lost in a truncation before they were read."""
        return self._tail.num_lost_bytes

    @property
    def descriptor(self) -> int | None:
        """The device's descriptor, readable when there is a record; None: it is a file, or was not polled yet."""
        return self._device

    def close(self) -> None:
        """Close device and file."""
        self._tail.close()
        if self._device is not None:
            os.close(self._device)
            self._device = None

    def poll(self, now: float) -> list[KernelRecord]:
        """Return new records, merged. `now`: seconds since boot."""
        self.trouble = ""
        try:
            if stat.S_ISCHR(os.stat(self.path).st_mode):
                return merge(self._since_then(self._from_device()))
        except OSError as error:
            self.trouble = f"{self.path} cannot be read: {error}; run as root, or name a file"
            return []
        raw = [line for block in self._tail.poll(now) for line in block.data.split(b"\n")]
        self.trouble = self._tail.trouble
        return merge(self._since_then(self._of_this_boot(map(decode_line, raw), now)))

    def _from_device(self) -> Iterator[KernelRecord]:
        if self._device is None:
            self._device = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        for _ in range(MAX_RECORDS):
            try:
                raw = os.read(self._device, MAX_RECORD_BYTES)
            except BlockingIOError:
                return
            except BrokenPipeError:
                # Records were overwritten meanwhile; the next read returns the oldest that is left.
                continue
            if not raw:
                return
            record = parse(raw.decode(errors="replace"))
            if record is not None and self._is_new(record):
                yield record

    def _is_new(self, record: KernelRecord) -> bool:
        """Count the missing records before one; False: it was read before."""
        before, sequence = self._sequence, record.line.sequence
        if sequence is None:
            return True
        if before is not None:
            if sequence <= before:
                return False
            record.num_lost_before = sequence - before - 1
            self.num_lost += record.num_lost_before
        self._sequence = sequence
        return True

    def _of_this_boot(self, lines: Iterable[str], now: float) -> list[KernelRecord]:
        records: list[KernelRecord] = []
        for line in lines:
            if not line.strip() or _DEVICE_OF.match(line):
                continue
            record = parse(line)
            if record is None:
                self.num_foreign += 1
                continue
            micros, text = record.line.microseconds, record.line.text
            if micros is not None:
                fell_back = micros < self._last_microseconds - FALL_BACK_MICROSECONDS
                is_earlier = micros < self._last_microseconds
                if fell_back or (is_earlier and text.startswith("Linux version ")):
                    self.num_earlier += len(records)
                    self._sequence = None
                    records.clear()
                self._last_microseconds = micros
            if self._is_new(record):
                records.append(record)
        limit = int(now * 1e6 * (1 + SLACK_SHARE)) + SLACK_MICROSECONDS
        reached = [record for record in records if (record.line.microseconds or 0) <= limit]
        self.num_earlier += len(records) - len(reached)
        return reached

    def _since_then(self, records: Iterable[KernelRecord]) -> Iterator[KernelRecord]:
        for record in records:
            if not record.line.is_from_kernel:
                self.num_foreign += 1
            elif self._is_before(record):
                self.num_earlier += 1
            else:
                yield record

    def _is_before(self, record: KernelRecord) -> bool:
        if record.line.microseconds is not None:
            return record.line.microseconds < self._since_microseconds
        return record.at is not None and self._since is not None and record.at < self._since


def parse(line: str) -> KernelRecord | None:
    """Read one line of any form; None: a program wrote it. Only a program's record of kmsg is returned, to count its number."""
    parsed = parse_kernel_line(line)
    if not parsed.is_from_kernel and parsed.sequence is None:
        return None
    at = unix_seconds(parsed.wall_time)
    if parsed.microseconds is None:
        inner = unwrapped(parsed.text)
        parsed, at = replace(parsed, text=inner.text.rstrip()), inner.at if at is None else at
    return KernelRecord(line=parsed, at=at, last_microseconds=parsed.microseconds)


def merge(records: Iterable[KernelRecord]) -> list[KernelRecord]:
    """Merge records of the same text, times in it apart, into the first of them."""
    merged: dict[tuple[int | None, str], KernelRecord] = {}
    for record in records:
        line = record.line
        first = merged.setdefault((line.level, _TIMES.sub("#", line.text)), record)
        if first is not record:
            first.num_repeats += 1
            first.last_microseconds = line.microseconds or first.last_microseconds
            first.num_lost_before += record.num_lost_before
    return list(merged.values())
