"""How long a fsynced journal append takes, beside the disk alone for the same bytes; and what the codes of its chain cost."""

import gc
import itertools
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bench.long_journal import LongJournal
from bench.report import Report, quantile
from runner.decide.controller import Controller
from runner.facts import wire
from runner.facts.messages.records import JournalEntry, NodeChanged, Settle
from runner.facts.specs.cluster import ClusterSpec
from runner.journal.journal import Journal
from runner.signer import UNSIGNED, Signer
from runner.store.memory.store import MemoryStore
from runner.store.sqlite.store import SqliteStore
from runner.supervisor.decisions import DecisionLog, policy_of

NUM_APPENDS = 3000
NUM_WARM_UPS = 200
MEDIAN_LIMIT_MS = 1.0
P99_LIMIT_MS = 10.0
NUM_REPLAYED = 1_000_000
REPLAY_ROUNDS = 5
REPLAY_LIMIT_SECONDS = 20.0
REPLAY_LIMIT_MB = 500.0
# Of a replay with codes to one without.
CODES_LIMIT_RATIO = 1.1
SIGNERS = {"without codes": UNSIGNED, "with codes": Signer(b"a token of the benchmark's own")}


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
        append_ms = {name: appended_ms(folder / name, SIGNERS[name]) for name in SIGNERS}
        store = SqliteStore(folder / "store")
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
    for name, taken_ms in append_ms.items():
        what, median_ms, p99_ms = (
            f"journal append, {name}",
            quantile(taken_ms, 0.5),
            quantile(taken_ms, 0.99),
        )
        report.figure(f"{what}, median", median_ms, "ms", at_most=MEDIAN_LIMIT_MS)
        report.figure(f"{what}, p99", p99_ms, "ms", at_most=P99_LIMIT_MS)
    report.figure("volatile append, median", quantile(volatile_ms, 0.5), "ms")
    return report.num_missed + replay() + replay_from_disk(parent)


def appended_ms(folder: Path, signer: Signer) -> list[float]:
    """Time appends to a journal of its own."""
    store = SqliteStore(folder)
    lease = store.acquire_lease("lead", "bench", ttl_seconds=3600)
    journal = Journal(store, lease, signer=signer)
    taken_ms = timed_ms(lambda number: journal.append(entry(number)))
    store.close()
    return taken_ms


def replay() -> int:
    """Time the recovery of a long journal from its first entry; return the number of misses."""
    report = Report(
        "journal replay",
        f"the first {NUM_REPLAYED} entries of 60 days at 2000 nodes (bench/long_journal.py), read from memory, decoded and applied "
        f"to a controller's state and the ledger, from entry 1 on and without a snapshot; {REPLAY_ROUNDS} alternating rounds; "
        f"the ratio is one of processor time, round by round, since other machines of the host take turns with this one",
    )
    stores = {name: MemoryStore() for name in SIGNERS}
    journals = {
        name: Journal(
            store, store.acquire_lease("lead", "bench", ttl_seconds=36_000), signer=SIGNERS[name]
        )
        for name, store in stores.items()
    }
    entries = itertools.islice(LongJournal().entries(), NUM_REPLAYED)
    while group := list(itertools.islice(entries, 1000)):
        for journal in journals.values():
            journal.append_many(group)
    policy = policy_of(ClusterSpec(name="bench", state="/bench"))
    taken: dict[str, list[float]] = {name: [] for name in SIGNERS}
    used: dict[str, list[float]] = {name: [] for name in SIGNERS}
    for _ in range(REPLAY_ROUNDS):
        for name, store in stores.items():
            gc.collect()
            log = DecisionLog(Controller(policy), Journal(store, signer=SIGNERS[name]))
            started, used_before = time.perf_counter(), time.process_time()
            assert log.recover() == NUM_REPLAYED
            taken[name].append(time.perf_counter() - started)
            used[name].append(time.process_time() - used_before)
    for name, seconds in taken.items():
        limit = REPLAY_LIMIT_SECONDS if SIGNERS[name].is_active else None
        report.figure_of(f"replay, {name}", seconds, "s", at_most=limit)
    ratios = [signed / plain for plain, signed in zip(*used.values(), strict=True)]
    report.figure_of("with codes to without", ratios, "x", at_most=CODES_LIMIT_RATIO)
    return report.num_missed


def replay_from_disk(parent: str | None = None) -> int:
    """Time the same recovery in a process of its own, from a store on disk, with its memory; return the number of misses."""
    report = Report(
        "journal replay from disk",
        f"the same {NUM_REPLAYED} entries, with codes, in SQLite; a fresh process opens the store and recovers from entry 1 on "
        "without a snapshot, as a supervisor does; memory: the most that this process had resident, interpreter included",
    )
    with tempfile.TemporaryDirectory(prefix="stoker-bench-", dir=parent) as name:
        store = SqliteStore(Path(name))
        lease = store.acquire_lease("lead", "bench", ttl_seconds=36_000)
        journal = Journal(store, lease, signer=SIGNERS["with codes"])
        entries = itertools.islice(LongJournal().entries(), NUM_REPLAYED)
        while group := list(itertools.islice(entries, 1000)):
            journal.append_many(group)
        store.close()
        program = [sys.executable, "-m", "bench.journal", "--recover", name]
        done = subprocess.run(program, check=True, capture_output=True, text=True)
        seconds, megabytes = (float(field) for field in done.stdout.split())
    report.figure("replay from disk", seconds, "s", at_most=REPLAY_LIMIT_SECONDS)
    report.figure("its memory", megabytes, "MB", at_most=REPLAY_LIMIT_MB)
    return report.num_missed


def recover(folder: str) -> None:
    """Recover from a store on disk; print the seconds that it took and the megabytes that were resident at most."""
    started = time.perf_counter()
    policy = policy_of(ClusterSpec(name="bench", state="/bench"))
    journal = Journal(SqliteStore(Path(folder)), signer=SIGNERS["with codes"])
    log = DecisionLog(Controller(policy), journal)
    assert log.recover() == NUM_REPLAYED
    most_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(time.perf_counter() - started, most_kb / 1024)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--recover"]:
        recover(sys.argv[2])
        sys.exit(0)
    sys.exit(1 if main(*sys.argv[1:2]) else 0)
