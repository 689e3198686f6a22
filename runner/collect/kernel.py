"""The kernel's log: /dev/kmsg, or a file of kernel lines that stands in for it (kern.log, the output of dmesg).

Given are records of this boot, since a moment, of the kernel itself: what programs write into the log is left out and counted, for
whoever may write there could pretend a fault. Records that say the same but for times in their text are folded into the first of
them within one look; records that the kernel had overwritten before they were read are counted from their numbers.

The device holds this boot only. A file may hold several: where its clock falls back, or the kernel tells its version, a boot began
and what stands before it is of an earlier one; a record from a moment that this boot has not reached yet is none of it either. A
line that bears no time might be new, so it counts.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from runner.collect.lines import decoded, unix_seconds, unwrapped
from runner.collect.tails.tail import Position, Tail
from runner.rootcause.kernel_lines import MAX_RECORD_BYTES, MAX_RECORDS, parse_kernel_line

DEVICE = Path("/dev/kmsg")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# CPUs do not agree to the microsecond: a clock that falls back by more than this was set to zero by a boot; chosen, not measured
FALL_BACK_MICROSECONDS = 10_000_000
# By which the kernel's clock may be ahead of ours: nobody sets it right, so it drifts; chosen.
SLACK_MICROSECONDS, SLACK_SHARE = 10_000_000, 1e-3

# kmsg adds lines on the device that a record is about
_DEVICE_OF = re.compile(r" [A-Z_]+=")
_TIMES = re.compile(
    r"\[ *\d+\.\d{3,9}\]|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?|\b\d\d:\d\d:\d\d(?:\.\d+)?\b"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRecord:
    """What the kernel said. `microseconds` since boot, or Unix seconds `at`, or neither; `level` 0 (emergency) to 7 (debug).

    `num_alike`: how often it was said in this look, the last time at `last_microseconds`. `num_lost_before`: records between the
    one before and this one that nobody can read any more.
    """

    text: str
    microseconds: int | None = None
    at: float | None = None
    level: int | None = None
    sequence: int | None = None
    num_alike: int = 1
    last_microseconds: int | None = None
    num_lost_before: int = 0
    is_from_kernel: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelPosition:
    """How far a kernel's log was read, to be stored durably: a record of /dev/kmsg, or a position in a file."""

    boot_id: str
    sequence: int | None = None
    file: Position | None = None


def this_boot(path: Path = BOOT_ID) -> str:
    """Return the id of the boot that this machine is in. Raises OSError."""
    return path.read_text().strip()


class KernelLog:
    """Follows a kernel's log."""

    def __init__(
        self,
        path: Path,
        boot_id: str,
        *,
        since_microseconds: int = 0,
        since: float | None = None,
        position: KernelPosition | None = None,
    ) -> None:
        """Take records since `since_microseconds` after boot, and of those that bear a wall clock's time since `since` (Unix)."""
        self.path = path
        self.boot_id = boot_id
        # records that were overwritten before they were read
        self.num_lost = 0
        # records that the kernel did not write
        self.num_foreign = 0
        # of an earlier boot, or before the moment
        self.num_earlier = 0
        # why nothing can be read at the moment
        self.trouble = ""
        self._since_microseconds = since_microseconds
        self._since = since
        same_boot = position is not None and position.boot_id == boot_id
        self._sequence = position.sequence if position and same_boot else None
        self._tail = Tail(path, position.file if position else None)
        self._device: int | None = None
        # of the last record
        self._clock = 0

    @property
    def position(self) -> KernelPosition:
        """Where the next look goes on."""
        return KernelPosition(
            boot_id=self.boot_id, sequence=self._sequence, file=self._tail.position
        )

    @property
    def descriptor(self) -> int | None:
        """That of the device, which can be read once the kernel has spoken; None: it is a file, or was not looked at yet."""
        return self._device

    def close(self) -> None:
        """Let go of device and file."""
        self._tail.close()
        if self._device is not None:
            os.close(self._device)
            self._device = None

    def look(self, now: float) -> list[KernelRecord]:
        """Return what is new, folded. `now`: seconds since boot."""
        self.trouble = ""
        try:
            if stat.S_ISCHR(os.stat(self.path).st_mode):
                return fold(self._since_then(self._from_device()))
        except OSError as error:
            self.trouble = f"{self.path} cannot be read: {error}; run as root, or name a file"
            return []
        raw = [line for block in self._tail.look(now) for line in block.data.split(b"\n")]
        lines = [line for line in map(decoded, raw) if line.strip() and not _DEVICE_OF.match(line)]
        self.trouble = self._tail.trouble
        return fold(self._since_then(self._of_this_boot(lines, now)))

    def _from_device(self) -> Iterator[KernelRecord]:
        if self._device is None:
            self._device = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        for _ in range(MAX_RECORDS):
            try:
                raw = os.read(self._device, MAX_RECORD_BYTES)
            except BlockingIOError:
                return
            except BrokenPipeError:
                # records were overwritten while we read; the next read gives the oldest that is left
                continue
            if not raw:
                return
            record = parse(raw.decode(errors="replace"))
            record = None if record is None else self._counted(record)
            if record is not None:
                yield record

    def _counted(self, record: KernelRecord) -> KernelRecord | None:
        """Count what is missing before a record; None: it was read before."""
        if record.sequence is None:
            return record
        before, self._sequence = self._sequence, record.sequence
        if before is None:
            return record
        if record.sequence <= before:
            self._sequence = before
            return None
        lost = record.sequence - before - 1
        self.num_lost += lost
        return replace(record, num_lost_before=lost)

    def _of_this_boot(self, lines: Iterable[str], now: float) -> list[KernelRecord]:
        found: list[KernelRecord] = []
        for line in lines:
            record = parse(line)
            if record is None:
                self.num_foreign += 1
                continue
            micros = record.microseconds
            if micros is not None:
                fell_back = micros < self._clock - FALL_BACK_MICROSECONDS
                if fell_back or (micros < self._clock and record.text.startswith("Linux version ")):
                    self.num_earlier += len(found)
                    self._sequence = None
                    found.clear()
                self._clock = micros
            counted = self._counted(record)
            if counted is not None:
                found.append(counted)
        limit = int(now * 1e6 * (1 + SLACK_SHARE)) + SLACK_MICROSECONDS
        reached = [record for record in found if (record.microseconds or 0) <= limit]
        self.num_earlier += len(found) - len(reached)
        return reached

    def _since_then(self, records: Iterable[KernelRecord]) -> Iterator[KernelRecord]:
        for record in records:
            if not record.is_from_kernel:
                self.num_foreign += 1
            elif self._is_before(record):
                self.num_earlier += 1
            else:
                yield record

    def _is_before(self, record: KernelRecord) -> bool:
        if record.microseconds is not None:
            return record.microseconds < self._since_microseconds
        return record.at is not None and self._since is not None and record.at < self._since


def parse(line: str) -> KernelRecord | None:
    """Read one line of any form; None: a program wrote it. Only a program's record of kmsg is returned, to count its number."""
    parsed = parse_kernel_line(line)
    if not parsed.is_from_kernel and parsed.sequence is None:
        return None
    text, at = parsed.text, unix_seconds(parsed.wall_time)
    if parsed.microseconds is None:
        inner = unwrapped(text)
        text, at = inner.text.rstrip(), inner.at if at is None else at
    return KernelRecord(
        text=text,
        microseconds=parsed.microseconds,
        at=at,
        level=parsed.level,
        sequence=parsed.sequence,
        is_from_kernel=parsed.is_from_kernel,
    )


def fold(records: Iterable[KernelRecord]) -> list[KernelRecord]:
    """Fold records that say the same, times in their text apart, into the first of them."""
    folded: dict[tuple[int | None, str], KernelRecord] = {}
    for record in records:
        key = (record.level, _TIMES.sub("#", record.text))
        first = folded.get(key)
        if first is None:
            folded[key] = replace(record, last_microseconds=record.microseconds)
        else:
            folded[key] = replace(
                first,
                num_alike=first.num_alike + 1,
                last_microseconds=record.microseconds or first.last_microseconds,
                num_lost_before=first.num_lost_before + record.num_lost_before,
            )
    return list(folded.values())
