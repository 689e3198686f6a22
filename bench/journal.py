"""How long a fsynced journal append takes, beside the disk alone for the same bytes; what its codes cost; and how long a million
entries take a supervisor that starts without a snapshot.
"""

import argparse
import gc
import itertools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.long_journal import LongJournal
from bench.reference_loop import ReferenceLoop
from bench.report import SCALE, Report, microseconds, quantile
from runner.decide.controller import Controller
from runner.facts import wire
from runner.facts.messages.records import JournalEntry, NodeChanged, Settle
from runner.facts.specs.cluster import ClusterSpec
from runner.journal.journal import Journal
from runner.signer import UNSIGNED, Signer
from runner.store.memory.store import MemoryStore
from runner.store.sqlite.store import SqliteStore
from runner.supervisor.decisions import DecisionLog, policy_of
from runner.supervisor.main import GC_THRESHOLDS

NUM_APPENDS = 3000
NUM_WARM_UPS = 200
MEDIAN_LIMIT_MS = 1.0
P99_LIMIT_MS = 10.0
NUM_REPLAYED = 1_000_000
REPLAY_ROUNDS = 5
REPLAY_LIMIT_SECONDS = 20.0
REPLAY_LIMIT_MB = 500.0
# Between two samples of the reference loop: they take 0.3 % of the time; chosen.
ENTRIES_PER_SAMPLE = 50_000
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


def timed_ms(write: Callable[[int], object], num_appends: int) -> list[float]:
    """Return the milliseconds of each call, in order, without those of the warm-up."""
    taken_ms = []
    for number in range(1, NUM_WARM_UPS + num_appends + 1):
        started = time.perf_counter()
        write(number)
        taken_ms.append((time.perf_counter() - started) * 1e3)
    return taken_ms[NUM_WARM_UPS:]


def floor_ms(folder: Path, num_appends: int) -> list[float]:
    """Time a bare write and fdatasync of the same bytes, appended to one file."""
    payload = wire.encode(entry(1))
    descriptor = os.open(folder / "floor", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)

    def write(_number: int) -> None:
        os.write(descriptor, payload)
        os.fdatasync(descriptor)

    try:
        return timed_ms(write, num_appends)
    finally:
        os.close(descriptor)


def measure_appends(folder: Path | None, num_appends: int) -> int:
    """Time appends one after the other; return the number of misses."""
    with tempfile.TemporaryDirectory(prefix="stoker-bench-", dir=folder) as name:
        scratch = Path(name)
        before_ms = floor_ms(scratch, num_appends)
        append_ms = {
            name: appended_ms(scratch / name, SIGNERS[name], num_appends) for name in SIGNERS
        }
        store = SqliteStore(scratch / "store")
        volatile_ms = timed_ms(lambda _number: store.append("heartbeats", b"x" * 500), num_appends)
        store.close()
        after_ms = floor_ms(scratch, num_appends)
    report = Report(
        "journal append",
        f"{num_appends} appends of {len(wire.encode(entry(1)))} bytes after {NUM_WARM_UPS} to warm up, one after the other, "
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
    return report.num_missed


def appended_ms(folder: Path, signer: Signer, num_appends: int) -> list[float]:
    """Time appends to a journal of its own."""
    store = SqliteStore(folder)
    lease = store.acquire_lease("lead", "bench", ttl_seconds=3600)
    journal = Journal(store, lease, signer=signer)
    taken_ms = timed_ms(lambda number: journal.append(entry(number)), num_appends)
    store.close()
    return taken_ms


def replay(num_entries: int, num_rounds: int) -> int:
    """Time the recovery of a long journal from its first entry; return the number of misses."""
    report = Report(
        "journal replay",
        f"the first {num_entries} entries of 60 days at 2000 nodes (bench/long_journal.py), read from memory, decoded and applied "
        f"to a controller's state and the ledger, from entry 1 on and without a snapshot; {num_rounds} alternating rounds; "
        f"the ratio is one of processor time, round by round, since other machines of the host take turns with this one",
    )
    stores = {name: MemoryStore() for name in SIGNERS}
    journals = {
        name: Journal(
            store, store.acquire_lease("lead", "bench", ttl_seconds=36_000), signer=SIGNERS[name]
        )
        for name, store in stores.items()
    }
    entries = itertools.islice(LongJournal().entries(), num_entries)
    while group := list(itertools.islice(entries, 1000)):
        for journal in journals.values():
            journal.append_many(group)
    policy = policy_of(ClusterSpec(name="bench", state="/bench"))
    taken: dict[str, list[float]] = {name: [] for name in SIGNERS}
    used: dict[str, list[float]] = {name: [] for name in SIGNERS}
    for _ in range(num_rounds):
        for name, store in stores.items():
            gc.collect()
            log = DecisionLog(Controller(policy), Journal(store, signer=SIGNERS[name]))
            started, used_before = time.perf_counter(), time.process_time()
            assert log.recover() == num_entries
            taken[name].append(time.perf_counter() - started)
            used[name].append(time.process_time() - used_before)
    for name, seconds in taken.items():
        limit = REPLAY_LIMIT_SECONDS if SIGNERS[name].is_active else None
        report.figure_of(f"replay, {name}", seconds, "s", at_most=limit)
    ratios = [signed / plain for plain, signed in zip(*used.values(), strict=True)]
    report.figure_of("with codes to without", ratios, "x", at_most=CODES_LIMIT_RATIO)
    return report.num_missed


def replay_from_disk(folder: Path | None, num_entries: int) -> int:
    """Time the same recovery in a process of its own, from a store on disk, with its memory; return the number of misses."""
    report = Report(
        "journal replay from disk",
        f"the same {num_entries} entries, with codes, in SQLite; a fresh process opens the store and recovers from entry 1 on "
        "without a snapshot, as a supervisor does: it reads and checks each entry, and applies it to state and ledger; memory: the "
        f"most that this process had resident, interpreter included; {SCALE}",
    )
    with tempfile.TemporaryDirectory(prefix="stoker-bench-", dir=folder) as name:
        store = SqliteStore(Path(name))
        lease = store.acquire_lease("lead", "bench", ttl_seconds=36_000)
        journal = Journal(store, lease, signer=SIGNERS["with codes"])
        entries = itertools.islice(LongJournal().entries(), num_entries)
        while group := list(itertools.islice(entries, 1000)):
            journal.append_many(group)
        store.close()
        program = [sys.executable, "-m", "bench.journal", "--recover", name]
        done = subprocess.run(program, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout)
    assert found["entries"] == num_entries
    report.figure("replay from disk", found["seconds"], "s", at_most=REPLAY_LIMIT_SECONDS)
    report.figure("its memory", found["megabytes"], "MB", at_most=REPLAY_LIMIT_MB)
    loop = ReferenceLoop(is_hot=True, samples_us=found["loop_us"])
    report.cost("its processor time, an entry", microseconds(found["used_us"] / num_entries), loop)
    return report.num_missed


def recover(folder: str) -> None:
    """Recover from a store on disk; print how many entries, in which time, and the megabytes that were resident at most."""
    # As the supervisor's process does.
    gc.set_threshold(*GC_THRESHOLDS)
    loop = ReferenceLoop(is_hot=True)
    started, used = time.perf_counter(), time.process_time()
    policy = policy_of(ClusterSpec(name="bench", state="/bench"))
    journal = Journal(SqliteStore(Path(folder)), signer=SIGNERS["with codes"])
    log = DecisionLog(
        Controller(policy),
        journal,
        on_entry=lambda entry: None if entry.sequence % ENTRIES_PER_SAMPLE else loop.sample(),
    )
    found = {"entries": log.recover(), "seconds": time.perf_counter() - started}
    found["used_us"] = (time.process_time() - used) * 1e6
    loop.sample()
    found["megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    print(json.dumps({**found, "loop_us": loop.samples_us}))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return 1 if a limit was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.journal", description=__doc__)
    parser.add_argument("--folder", type=Path, help="on the disk to measure; default: temporary")
    parser.add_argument("--appends", type=int, default=NUM_APPENDS, help="of each kind")
    parser.add_argument("--entries", type=int, default=NUM_REPLAYED, help="that are replayed")
    parser.add_argument("--rounds", type=int, default=REPLAY_ROUNDS, help="of replays from memory")
    parser.add_argument("--recover", metavar="STORE", help="only recover, as a process of its own")
    given = parser.parse_args(arguments)
    if given.recover:
        recover(given.recover)
        return 0
    num_missed = measure_appends(given.folder, given.appends)
    num_missed += replay_from_disk(given.folder, given.entries)
    num_missed += replay(given.entries, given.rounds)
    return min(num_missed, 1)


if __name__ == "__main__":
    sys.exit(main())
