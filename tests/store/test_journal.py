"""The journal on every kind of store: entries once and in order, snapshots believed only when they verify."""

import hashlib
import itertools
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from runner.errors import Fenced, PermanentError, StoreCorrupt, StoreUnavailable
from runner.facts import wire
from runner.facts.messages.cluster_status import ClusterStatus
from runner.facts.messages.records import (
    CorrelatedSilenceRecorded,
    DecisionFailed,
    JournalEntry,
    NodeChanged,
    Settle,
)
from runner.facts.store_names import JOURNAL, SNAPSHOTS
from runner.journal.journal import Journal
from runner.store.memory.faults import Crash, Faults, StoreFault, single_faults
from runner.store.memory.store import MemoryStore
from runner.store.protocol import Batch, Store
from runner.store.sqlite.store import SqliteStore

T = TypeVar("T")


def entry(sequence: int) -> JournalEntry:
    """Make an entry with a record in it."""
    record = NodeChanged(node=f"n{sequence}", state="active", reason="it joined")
    return JournalEntry(
        sequence=sequence, now=sequence / 10, input=Settle(), cursor=sequence, records=(record,)
    )


def state(sequence: int) -> ClusterStatus:
    """Make a message for the state after an entry."""
    return ClusterStatus(cluster="c", now=sequence / 10, wall=0.0, journal_sequence=sequence)


def leading(store: Store, holder: str = "a") -> Journal:
    """Open a journal to write."""
    return Journal(store, store.acquire_lease("lead", holder, ttl_seconds=5))


def damage(store: Store, register: str) -> None:
    """Flip one bit in the middle of a register."""
    found = store.get(register)
    assert found is not None
    payload = bytearray(found.payload)
    payload[len(payload) // 2] ^= 1
    store.put(register, bytes(payload))


def test_entries_come_back_as_they_were_written(store: Store) -> None:
    """Replay yields equal entries, nested messages included, from any number on, and a reader needs no lease."""
    journal = leading(store)
    written = [entry(sequence) for sequence in range(1, 6)]
    for each in written:
        journal.append(each)
    reader = Journal(store)
    assert list(reader.replay()) == written
    assert list(reader.replay(4)) == written[3:]
    assert list(reader.replay(6)) == []
    assert reader.last() == 5


def test_a_large_entry_is_taken(store: Store) -> None:
    """An entry may be far larger than a message; past 16 MiB it is refused by name and size."""
    journal = leading(store)
    large = JournalEntry(sequence=1, now=0.0, input=DecisionFailed(error="x" * 10_000_000))
    journal.append(large)
    assert list(journal.replay()) == [large]
    with pytest.raises(PermanentError, match="'journal': payload of 17"):
        journal.append(
            JournalEntry(sequence=2, now=0.0, input=DecisionFailed(error="x" * 17_000_000))
        )


def test_replay_crosses_the_limit_of_one_read(store: Store) -> None:
    """More entries than one read returns are yielded without a seam."""
    journal = leading(store)
    store.append_many(JOURNAL, [wire.encode(entry(sequence)) for sequence in range(1, 2502)])
    assert [each.sequence for each in journal.replay()] == list(range(1, 2502))
    assert [each.sequence for each in journal.replay(2500)] == [2500, 2501]


class _WrittenBetween(MemoryStore):
    """A store on which another program appends entry 3 in the instant after each read that found nothing."""

    def read(self, **what: Any) -> Batch:
        batch = super().read(**what)
        if not batch and self.last(JOURNAL) < 3:
            self.append(JOURNAL, wire.encode(entry(3)), at=3)
        return batch


def test_a_reader_at_the_end_misses_nothing_that_is_written_just_then() -> None:
    """An entry appended between two of a reader's reads is not lost: it comes with the next replay."""
    store = _WrittenBetween()
    for sequence in (1, 2):
        store.append(JOURNAL, wire.encode(entry(sequence)))
    reader = Journal(store)
    assert [each.sequence for each in reader.replay()] == [1, 2]
    assert [each.sequence for each in reader.replay(3)] == [3]


def test_only_the_lease_holder_writes(store: Store) -> None:
    """A journal opened to read refuses to write; a holder that was replaced is fenced and changes nothing."""
    with pytest.raises(PermanentError, match="needs the lease"):
        Journal(store).append(entry(1))
    old = leading(store)
    old.append(entry(1))
    store.break_lease("lead", "a")
    new = leading(store, "b")
    writes: list[Callable[[], None]] = [
        lambda: old.append(entry(2)),
        lambda: old.write_snapshot(state(1), 1),
    ]
    for write in writes:
        with pytest.raises(Fenced):
            write()
    new.append(entry(2))
    assert [each.sequence for each in new.replay()] == [1, 2]
    assert new.latest_snapshot().state is None


def test_an_entry_out_of_turn_is_refused(store: Store) -> None:
    """A number that holds another entry, or does not follow the last, is not written."""
    journal = leading(store)
    journal.append(entry(1))
    journal.append(entry(1))
    with pytest.raises(StoreCorrupt, match="item 1: another payload"):
        journal.append(JournalEntry(sequence=1, now=9.9, input=Settle()))
    with pytest.raises(StoreCorrupt, match="item 3"):
        journal.append(entry(3))
    assert list(journal.replay()) == [entry(1)]


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"{torn", "entry 2 cannot be read: .*lead this cluster with that version"),
        (
            b'{"v":1,"kind":"nonsense"}',
            "entry 2 cannot be read: .*lead this cluster with that version",
        ),
        (wire.encode(CorrelatedSilenceRecorded()), "entry 2 is a CorrelatedSilenceRecorded"),
        (wire.encode(entry(7)), "entry 2 has the number 7"),
    ],
)
def test_an_entry_that_is_none_is_named(store: Store, payload: bytes, reason: str) -> None:
    """Replay yields what is before it and stops there, with the number of the bad entry."""
    leading(store).append(entry(1))
    store.append(JOURNAL, payload)
    replay = Journal(store).replay()
    assert next(replay) == entry(1)
    with pytest.raises(StoreCorrupt, match=reason):
        next(replay)


def test_a_beginning_that_was_trimmed_is_a_gap(store: Store) -> None:
    """Replaying from an entry that is in no file and was trimmed names the missing entry."""
    journal = leading(store)
    for sequence in range(1, 5):
        journal.append(entry(sequence))
    store.trim(JOURNAL, 2)
    with pytest.raises(StoreCorrupt, match="entry 1 is missing, 3 follows"):
        list(journal.replay())
    assert [each.sequence for each in journal.replay(3)] == [3, 4]


def test_a_journal_shorter_than_its_snapshot_is_refused(store: Store) -> None:
    """Entries that a snapshot contains must have been there: a shorter journal is an old copy."""
    journal = leading(store)
    journal.append(entry(1))
    journal.write_snapshot(state(5), 5)
    with pytest.raises(StoreCorrupt, match="ends at entry 1, yet entry 5 was written"):
        list(journal.replay(journal.latest_snapshot().through + 1))


def test_the_newest_snapshot_is_found(store: Store) -> None:
    """Snapshots take turns; without any, recovery starts at the very beginning."""
    journal = leading(store)
    assert (journal.latest_snapshot().state, journal.latest_snapshot().through) == (None, 0)
    for through in (10, 20, 30):
        journal.write_snapshot(state(through), through)
        latest = journal.latest_snapshot()
        assert (latest.state, latest.through, latest.refused) == (state(through), through, ())
    assert sorted(store.registers("journal.")) == sorted(SNAPSHOTS)


def test_a_damaged_snapshot_gives_way_to_the_one_before(store: Store) -> None:
    """One bit is enough; the reason is reported, and the damaged one is the next to be overwritten."""
    journal = leading(store)
    journal.write_snapshot(state(10), 10)
    journal.write_snapshot(state(20), 20)
    damage(store, SNAPSHOTS[1])
    latest = journal.latest_snapshot()
    assert (latest.state, latest.through) == (state(10), 10)
    assert len(latest.refused) == 1
    assert SNAPSHOTS[1] in latest.refused[0]
    journal.write_snapshot(state(30), 30)
    damage(store, SNAPSHOTS[1])
    assert journal.latest_snapshot().through == 10
    damage(store, SNAPSHOTS[0])
    latest = journal.latest_snapshot()
    assert (latest.state, latest.through, len(latest.refused)) == (None, 0, 2)


def test_a_snapshot_of_another_shape_is_refused(store: Store) -> None:
    """Any content of a snapshot's register gives a reason and not an error."""
    journal = leading(store)
    for payload in (b"", b"\n", b"nonsense", b"[1]\n{}", wire.encode(Settle()) + b"\n{}"):
        store.put(SNAPSHOTS[0], payload)
        latest = journal.latest_snapshot()
        assert (latest.through, len(latest.refused)) == (0, 1)


def test_a_snapshot_of_an_unknown_kind_is_refused(store: Store) -> None:
    """A state this version cannot read, though sealed well, gives way to an older one."""
    journal = leading(store)
    journal.write_snapshot(state(10), 10)
    journal.write_snapshot(state(20), 20)
    found = store.get(SNAPSHOTS[1])
    assert found is not None
    head, _, body = found.payload.partition(b"\n")
    other = body.replace(b'"kind":"status"', b'"kind":"wiew"')
    seal = json.loads(head)
    seal["sha256"] = hashlib.sha256(other).hexdigest()
    store.put(SNAPSHOTS[1], json.dumps(seal).encode() + b"\n" + other)
    latest = journal.latest_snapshot()
    assert latest.through == 10
    assert "wiew" in latest.refused[0]


def test_a_snapshot_sent_again_keeps_the_older_one(store: Store) -> None:
    """After a lost acknowledgment the same snapshot takes its own place, not that of the one to fall back on."""
    journal = leading(store)
    for through in (10, 20, 20, 20):
        journal.write_snapshot(state(through), through)
    damage(store, SNAPSHOTS[1])
    assert journal.latest_snapshot().through == 10


def persist(store: Store, holder: str, total: int) -> None:
    """Bring the journal to `total` entries with a snapshot at each third, as a supervisor does that sends again."""
    lease = insist(partial(store.acquire_lease, "lead", holder, ttl_seconds=5))
    journal = Journal(store, lease)
    for sequence in range(journal.last() + 1, total + 1):
        insist(partial(journal.append, entry(sequence)))
        if sequence % 3 == 0:
            insist(partial(journal.write_snapshot, state(sequence), sequence))


def insist(write: Callable[[], T]) -> T:
    """Send until it is acknowledged."""
    while True:
        try:
            return write()
        except StoreUnavailable:
            continue


def check_recovered(store: Store, total: int) -> None:
    """Check that a snapshot and the entries after it make up everything up to `total`, each once."""
    journal = Journal(store)
    latest = journal.latest_snapshot()
    assert latest.refused == ()
    assert latest.state == (state(latest.through) if latest.through else None)
    tail = list(journal.replay(latest.through + 1))
    assert tail == [entry(sequence) for sequence in range(latest.through + 1, total + 1)]


@pytest.mark.parametrize("num_faults", [1, 2])
def test_no_fault_loses_or_doubles_an_entry(num_faults: int) -> None:
    """Every single fault, and every pair of faults, at every operation: after a restart the journal is whole."""
    total = 7
    calm = MemoryStore()
    persist(calm, "a", total)
    num_operations = len(calm.faults.operations)
    assert num_operations > total
    plans = (
        [faults.plan for faults in single_faults(num_operations + 1)]
        if num_faults == 1
        else [
            {first: one, second: two}
            for first, second in itertools.combinations(range(1, num_operations + 2), 2)
            for one, two in itertools.product(StoreFault, StoreFault)
        ]
    )
    for plan in plans:
        store = MemoryStore(faults=Faults(plan=plan))
        try:
            persist(store, "a", total)
        except Crash:
            store = store.another()
            store.break_lease("lead", "a")
            persist(store, "b", total)
        check_recovered(store.another(), total)
        assert store.last(JOURNAL) == total


def test_a_snapshot_the_disk_changed_gives_way_to_the_one_before(tmp_path: Path) -> None:
    """What the store itself refuses to hand out is passed over like a snapshot with a wrong hash."""
    store = SqliteStore(tmp_path)
    journal = leading(store)
    journal.write_snapshot(state(10), 10)
    journal.write_snapshot(state(20), 20)
    with closing(sqlite3.connect(tmp_path / "store.db")) as other:
        other.execute("UPDATE registers SET payload = x'00' WHERE name = ?", (SNAPSHOTS[1],))
        other.commit()
    latest = journal.latest_snapshot()
    assert latest.through == 10
    assert "checksum" in latest.refused[0]
    store.close()


def test_the_journal_survives_its_process(tmp_path: Path) -> None:
    """On disk, what one handle wrote another recovers after the first was closed."""
    first = SqliteStore(tmp_path)
    persist(first, "a", 20)
    first.close()
    second = SqliteStore(tmp_path)
    check_recovered(second, 20)
    second.close()
