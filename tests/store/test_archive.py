"""Old entries in files: written before they are trimmed, read as one with the store, and never a gap in silence."""

import gzip
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from runner.errors import Fenced, StoreCorrupt, StoreUnavailable, UserError
from runner.facts import wire
from runner.facts.messages.cluster_status import ClusterStatus
from runner.facts.messages.records import JournalEntry, NodeChanged, Settle
from runner.facts.store_names import ARCHIVE_INDEX, JOURNAL, SNAPSHOTS
from runner.journal.archive import OWNER_FILE, Archive, ArchiveIndex, Segment
from runner.journal.journal import Journal
from runner.store.memory.faults import Crash, Faults, StoreFault, single_faults
from runner.store.memory.store import MemoryStore
from runner.store.protocol import Lease, Store

T = TypeVar("T")
# entries in a segment, so that a short journal has several
SIZE = 5


def entry(sequence: int) -> JournalEntry:
    """Make an entry with a record in it."""
    record = NodeChanged(node=f"n{sequence}", state="active", reason="it joined")
    return JournalEntry(sequence=sequence, now=sequence / 10, input=Settle(), records=(record,))


def state(sequence: int) -> ClusterStatus:
    """Make a message for the state after an entry."""
    return ClusterStatus(cluster="c", now=sequence / 10, wall=0.0, journal_sequence=sequence)


def opened(store: Store, folder: Path, lease: Lease | None = None) -> Journal:
    """Open a journal with its past in `folder`."""
    return Journal(store, lease, archive=Archive(folder, "c"), segment_entries=SIZE)


def leading(store: Store, folder: Path, holder: str = "a") -> Journal:
    """Open a journal to write."""
    return opened(store, folder, store.acquire_lease("lead", holder, ttl_seconds=5))


def written(store: Store, folder: Path, total: int) -> Journal:
    """Write a journal with a snapshot and a move after every third entry."""
    journal = leading(store, folder)
    for sequence in range(1, total + 1):
        journal.append(entry(sequence))
        if sequence % 3 == 0:
            journal.write_snapshot(state(sequence), sequence)
            journal.archive()
    return journal


def files(folder: Path) -> list[str]:
    """Return the names of the files in a journal's folder, without the owner file."""
    return sorted(path.name for path in folder.iterdir() if path.name != OWNER_FILE)


def numbers(journal: Journal, from_number: int = 1) -> list[int]:
    """Replay, and return the entries' numbers."""
    return [each.sequence for each in journal.replay(from_number)]


def stored(store: Store) -> list[int]:
    """Return the numbers of the entries that the store itself still has."""
    batch = store.read(streams={JOURNAL: 0}, registers={}, timeout_seconds=0)
    return [item.number for item in batch.items.get(JOURNAL, ())]


def damage(store: Store, register: str) -> None:
    """Flip one bit in the middle of a register."""
    found = store.get(register)
    assert found is not None
    payload = bytearray(found.payload)
    payload[len(payload) // 2] ^= 1
    store.put(register, bytes(payload))


def test_files_and_store_read_as_one(store: Store, tmp_path: Path) -> None:
    """What both snapshots contain is in files of whole segments, the rest in the store, and replay knows no seam."""
    journal = written(store, tmp_path / "past", 32)
    assert files(tmp_path / "past") == [
        f"{first:012d}-{first + 4:012d}.jsonl.gz" for first in (1, 6, 11, 16, 21)
    ]
    assert stored(store) == list(range(26, 33))
    for reader in (journal, opened(store, tmp_path / "past")):
        assert list(reader.replay()) == [entry(sequence) for sequence in range(1, 33)]
        for begin in (4, 5, 6, 24, 25, 26, 32, 33):
            assert numbers(reader, begin) == list(range(begin, 33))
    assert journal.begins_at() == 1
    assert [journal.payload(n) for n in (3, 30)] == [wire.encode(entry(n)) for n in (3, 30)]
    assert journal.payload(33) is None


def test_the_tail_is_read_without_the_files_before_it(store: Store, tmp_path: Path) -> None:
    """Where only recent entries are requested, older files are not opened: they may even be gone."""
    journal = written(store, tmp_path / "past", 32)
    begin = journal.since(1.75)
    assert begin == 11
    for name in files(tmp_path / "past")[:2]:
        (tmp_path / "past" / name).unlink()
    assert numbers(journal, begin) == list(range(11, 33))
    assert journal.since(0.0) == 1
    assert journal.since(99.0) == 21


def test_a_move_waits_for_two_good_snapshots(store: Store, tmp_path: Path) -> None:
    """With less than two snapshots that verify nothing moves; entries that fill no segment stay where they are."""
    journal = leading(store, tmp_path)
    for sequence in range(1, 31):
        journal.append(entry(sequence))
    assert journal.archive() == 0
    journal.write_snapshot(state(12), 12)
    assert journal.archive() == 0
    journal.write_snapshot(state(28), 28)
    damage(store, SNAPSHOTS[1])
    assert journal.archive() == 0
    journal.write_snapshot(state(28), 28)
    assert journal.archive() == 10
    assert stored(store) == list(range(11, 31))
    assert journal.archive() == 0
    latest = journal.latest_snapshot()
    assert numbers(journal, latest.through + 1) == [29, 30]
    damage(store, SNAPSHOTS[1])
    assert numbers(journal, journal.latest_snapshot().through + 1) == list(range(13, 31))
    damage(store, SNAPSHOTS[0])
    assert journal.latest_snapshot().through == 0
    assert numbers(journal) == list(range(1, 31))


def spoilt(path: Path, how: str) -> None:
    """Damage a file as disks and operators do."""
    data = path.read_bytes()
    plain = gzip.decompress(data)
    if how == "missing":
        path.unlink()
    elif how == "cut":
        path.write_bytes(data[:-20])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "one bit":
        path.write_bytes(data[:100] + bytes([data[100] ^ 4]) + data[101:])
    elif how == "an entry less":
        path.write_bytes(gzip.compress(b"\n".join(plain.split(b"\n")[:-2]) + b"\n"))
    elif how == "a word altered":
        path.write_bytes(gzip.compress(plain.replace(b"it joined", b"it jumped", 1)))
    elif how == "another seal":
        path.write_bytes(gzip.compress(plain.replace(b'"ended":1.0', b'"ended":2.0', 1)))
    else:
        shutil.copy(path.with_name(files(path.parent)[0]), path)


@pytest.mark.parametrize(
    "how",
    [
        "missing",
        "cut",
        "empty",
        "one bit",
        "an entry less",
        "a word altered",
        "another seal",
        "of other entries",
    ],
)
def test_a_spoilt_file_is_named(tmp_path: Path, how: str) -> None:
    """Replay yields nothing of such a file, names it, and never goes on behind it."""
    store = MemoryStore()
    journal = written(store, tmp_path, 32)
    name = files(tmp_path)[1]
    spoilt(tmp_path / name, how)
    found: list[int] = []
    with pytest.raises(StoreCorrupt, match=name):
        found.extend(each.sequence for each in journal.replay())
    assert found == [1, 2, 3, 4, 5]
    assert numbers(journal, 11) == list(range(11, 33))


def test_where_the_folder_is_not_seen_only_the_past_is_missing(tmp_path: Path) -> None:
    """On a host that does not see the folder, snapshots, tail and writing work; the journal names its first entry."""
    store = MemoryStore()
    written(store, tmp_path / "past", 32)
    lease = store.acquire_lease("lead", "a", ttl_seconds=5)
    # of a file system that is not mounted
    (tmp_path / "mount point").mkdir()
    for journal in (
        opened(store, tmp_path / "elsewhere", lease),
        opened(store, tmp_path / "mount point", lease),
        Journal(store, lease),
    ):
        begin = journal.begins_at()
        assert begin == 26
        assert numbers(journal, begin) == list(range(26, 33))
        assert journal.latest_snapshot().through == 30
        with pytest.raises(StoreUnavailable, match="cannot be seen from here"):
            numbers(journal)
        assert journal.since(0.0) == 26


def test_a_folder_of_another_cluster_is_refused(tmp_path: Path) -> None:
    """Two clusters never mix their past."""
    Archive(tmp_path, "other").prepare()
    store = MemoryStore()
    with pytest.raises(UserError, match="belongs to cluster 'other', this is 'c'"):
        written(store, tmp_path, 32)
    assert stored(store)[0] == 1


def test_a_folder_that_cannot_be_written_keeps_the_entries_in_the_store(tmp_path: Path) -> None:
    """Nothing is trimmed before its file is there; once it can be, everything moves."""
    store = MemoryStore()
    (tmp_path / "past").write_text("in the way")
    journal = leading(store, tmp_path / "past")
    for sequence in range(1, 21):
        journal.append(entry(sequence))
    for through in (18, 20):
        journal.write_snapshot(state(through), through)
    with pytest.raises(StoreUnavailable, match="past"):
        journal.archive()
    assert stored(store) == list(range(1, 21))
    (tmp_path / "past").unlink()
    assert journal.archive() == 15
    assert numbers(journal) == list(range(1, 21))


def test_a_supervisor_that_was_replaced_moves_nothing(tmp_path: Path) -> None:
    """The register and the stream are fenced; a file it may have written is the same as its successor's."""
    store = MemoryStore()
    old = leading(store, tmp_path)
    for sequence in range(1, 21):
        old.append(entry(sequence))
    for through in (18, 20):
        old.write_snapshot(state(through), through)
    store.break_lease("lead", "a")
    new = leading(store, tmp_path, "b")
    with pytest.raises(Fenced):
        old.archive()
    assert stored(store) == list(range(1, 21))
    assert store.get(ARCHIVE_INDEX) is None
    assert new.archive() == 15
    assert numbers(new) == list(range(1, 21))


def test_a_reader_that_is_overtaken_by_a_move_goes_on_in_the_files(tmp_path: Path) -> None:
    """What is trimmed under a reader's hands it reads from the file instead."""
    store = MemoryStore()
    journal = leading(store, tmp_path)
    # more than one read returns
    total = 2600
    store.append_many(JOURNAL, [wire.encode(entry(n)) for n in range(1, total + 1)])
    reader = opened(store, tmp_path).replay()
    first = [next(reader).sequence for _ in range(10)]
    for through in (total - 1, total):
        journal.write_snapshot(state(through), through)
    assert journal.archive() == 2595
    assert [*first, *(each.sequence for each in reader)] == list(range(1, total + 1))


def test_an_entry_is_found_in_the_index() -> None:
    """Every number is found in the segment that holds it, and in no other."""
    segments = tuple(
        Segment(first=n * 5 + 1, last=n * 5 + 5, count=5, bytes=1, sha256="") for n in range(7)
    )
    index = ArchiveIndex(segments=segments)
    for number in range(1, 36):
        found = index.holding(number)
        assert found is not None
        assert found.first <= number <= found.last
    assert index.holding(0) is None
    assert index.holding(36) is None
    assert ArchiveIndex().holding(1) is None


# ---- dying between any two steps ------------------------------------------------------------------------------------


def persist(store: Store, folder: Path, holder: str, total: int) -> None:
    """Bring the journal to `total` entries, as a supervisor does that sends again what was not acknowledged."""
    lease = insist(partial(store.acquire_lease, "lead", holder, ttl_seconds=5))
    journal = Journal(store, lease, archive=Archive(folder, "c"), segment_entries=2)
    for sequence in range(journal.last() + 1, total + 1):
        insist(partial(journal.append, entry(sequence)))
        if sequence % 2 == 0:
            insist(partial(journal.write_snapshot, state(sequence), sequence))
            insist(journal.archive)


def insist(write: Callable[[], T]) -> T:
    """Send until it is acknowledged."""
    while True:
        try:
            return write()
        except StoreUnavailable:
            continue


def test_no_fault_of_the_store_loses_an_entry_on_its_way_to_a_file(tmp_path: Path) -> None:
    """Every single fault at every operation: the journal is whole for every reader, then and after a restart."""
    total = 9
    calm = MemoryStore()
    persist(calm, tmp_path / "calm", "a", total)
    methods = [method for method, _ in calm.faults.operations]
    assert methods.count("trim") == 3
    for number, faults in enumerate(single_faults(len(methods) + 1)):
        folder = tmp_path / str(number)
        store = MemoryStore(faults=Faults(plan=faults.plan))
        try:
            persist(store, folder, "a", total)
        except Crash:
            store = store.another()
            store.break_lease("lead", "a")
            looked = list(opened(store, folder).replay())
            assert looked == [entry(n) for n in range(1, len(looked) + 1)]
            persist(store, folder, "b", total)
        store = store.another()
        store.break_lease("lead", "a")
        store.break_lease("lead", "b")
        lease = store.acquire_lease("lead", "c", ttl_seconds=5)
        journal = Journal(store, lease, archive=Archive(folder, "c"), segment_entries=2)
        # as every supervisor does when it begins
        journal.archive()
        assert list(journal.replay()) == [entry(n) for n in range(1, total + 1)]
        # 5, where one instance ended before the snapshot of an entry that the next one did not write again.
        assert stored(store)[0] in (5, 7), faults.plan


@pytest.mark.parametrize("left", ["nothing", "half a file beside its place", "the whole file"])
def test_dying_while_a_file_is_written_leaves_nothing_to_repair(tmp_path: Path, left: str) -> None:
    """A partly written file does not count before the register names it, and is made again."""
    store = MemoryStore(faults=Faults())
    journal = leading(store, tmp_path)
    for sequence in range(1, 13):
        journal.append(entry(sequence))
    for through in (11, 12):
        journal.write_snapshot(state(through), through)
    at = len(store.faults.operations) + 1
    # the register, just after the file
    store.faults.plan = {at: StoreFault.CRASH_BEFORE}
    with pytest.raises(Crash):
        journal.archive()
    [name] = files(tmp_path)
    whole = (tmp_path / name).read_bytes()
    if left != "the whole file":
        (tmp_path / name).unlink()
    if left == "half a file beside its place":
        (tmp_path / f"{name}.part").write_bytes(whole[:50])
    after = store.another()
    assert numbers(opened(after, tmp_path)) == list(range(1, 13))
    assert leading(after, tmp_path).archive() == 10
    assert (tmp_path / name).read_bytes() == whole
    assert numbers(opened(after, tmp_path)) == list(range(1, 13))
