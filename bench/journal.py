"""How long a fsynced journal append takes, beside what the disk alone takes for the same bytes."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.report import Report, quantile
from runner.facts import wire
from runner.facts.messages.records import JournalEntry, NodeChanged, Settle
from runner.journal.journal import Journal
from runner.store.sqlite.store import SqliteStore

NUM_APPENDS = 3000
NUM_WARM_UPS = 200
MEDIAN_LIMIT_MS = 1.0
P99_LIMIT_MS = 10.0


def entry(sequence: int) -> JournalEntry:
    """Make an entry of usual size: an input and three records, about 500 bytes."""
    records = tuple(
        NodeChanged(node=f"n{number}", state="active", reason="it was assigned an attempt")
        for number in range(3)
    )
    return JournalEntry(
        sequence=sequence, now=1.7e9 + sequence, input=Settle(), stream="inbox", records=records
    )


def timed_ms(write: Callable[[int], object]) -> list[float]:
    """Return the milliseconds of each call, in order, without those of the warm-up."""
    taken_ms = []
    for number in range(1, NUM_WARM_UPS + NUM_APPENDS + 1):
        started = time.perf_counter()
        write(number)
        taken_ms.append((time.perf_counter() - started) * 1e3)
    return taken_ms[NUM_WARM_UPS:]


def floor_ms(folder: Path) -> list[float]:
    """Time a bare write and fdatasync of the same bytes, appended to one file."""
    payload = wire.encode(entry(1))
    descriptor = os.open(folder / "floor", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)

    def write(_number: int) -> None:
        os.write(descriptor, payload)
        os.fdatasync(descriptor)

    try:
        return timed_ms(write)
    finally:
        os.close(descriptor)


def main(parent: str | None = None) -> int:
    """Measure in a folder on the disk of `parent` (default: where temporary files go); return the number of misses."""
    with tempfile.TemporaryDirectory(prefix="stoker-bench-", dir=parent) as name:
        folder = Path(name)
        before_ms = floor_ms(folder)
        store = SqliteStore(folder / "store")
        journal = Journal(store, store.acquire_lease("lead", "bench", ttl_seconds=3600))
        append_ms = timed_ms(lambda number: journal.append(entry(number)))
        volatile_ms = timed_ms(lambda _number: store.append("heartbeats", b"x" * 500))
        store.close()
        after_ms = floor_ms(folder)
    report = Report(
        "journal append",
        f"{NUM_APPENDS} appends of {len(wire.encode(entry(1)))} bytes after {NUM_WARM_UPS} to warm up, one after the other, "
        f"fenced, SQLite WAL with synchronous=FULL; floor: bare write + fdatasync on the same disk, before and after",
    )
    report.figure("floor, median before", quantile(before_ms, 0.5), "ms")
    report.figure("floor, p99 before", quantile(before_ms, 0.99), "ms")
    report.figure("floor, median after", quantile(after_ms, 0.5), "ms")
    report.figure("floor, p99 after", quantile(after_ms, 0.99), "ms")
    report.figure("journal append, median", quantile(append_ms, 0.5), "ms", at_most=MEDIAN_LIMIT_MS)
    report.figure("journal append, p99", quantile(append_ms, 0.99), "ms", at_most=P99_LIMIT_MS)
    report.figure("volatile append, median", quantile(volatile_ms, 0.5), "ms")
    return report.num_missed


if __name__ == "__main__":
    sys.exit(1 if main(*sys.argv[1:2]) else 0)
