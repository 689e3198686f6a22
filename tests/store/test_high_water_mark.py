"""A store that came back with less: noticed by this machine's mark, by a lease whose token fell, by numbers seen before."""

from pathlib import Path

import pytest

from runner.errors import Fenced, PermanentError, StoreRolledBack
from runner.facts.messages.records import JournalEntry, Settle
from runner.facts.store_names import JOURNAL
from runner.journal.archive import Archive
from runner.journal.high_water_mark import HighWaterFile, HighWaterMark, read_high_water
from runner.journal.journal import Journal
from runner.store.memory.store import MemoryStore
from runner.store.protocol import Store


def entry(sequence: int, now: float = 0.0) -> JournalEntry:
    """Make an entry."""
    return JournalEntry(sequence=sequence, now=now, input=Settle())


def written(store: Store, mark: Path, total: int, *, now: float = 0.0) -> Journal:
    """Write on to `total` entries as a supervisor of this machine does."""
    lease = store.acquire_lease("lead", "a", ttl_seconds=5)
    journal = Journal(store, lease, mark=HighWaterFile(mark))
    for sequence in range(journal.last() + 1, total + 1):
        journal.append(entry(sequence, now))
        journal.persist_high_water(next_generation=sequence)
    return journal


def beginning(store: Store, mark: Path) -> Journal:
    """Open a journal as the next supervisor of this machine does, and check whether the store lost entries."""
    journal = Journal(store, mark=HighWaterFile(mark))
    journal.check_high_water()
    return journal


def test_a_mark_is_one_sector_that_is_overwritten(tmp_path: Path) -> None:
    """It has its full size from the start, reads the same after a restart, and is the same file after a thousand entries."""
    path = tmp_path / "mark"
    mark = HighWaterFile(path)
    assert path.stat().st_size == 512
    inode = path.stat().st_ino
    for sequence in range(1, 1001):
        mark.persist(HighWaterMark(sequence=sequence, sha256="f" * 64, next_generation=10**12))
    assert (path.stat().st_size, path.stat().st_ino) == (512, inode)
    assert read_high_water(path).sequence == 1000
    assert HighWaterFile(path).newest == read_high_water(path)


def test_a_mark_that_is_none_is_refused_and_one_never_written_is_empty(tmp_path: Path) -> None:
    """A machine that died between making the file and writing it knows nothing; anything else is not passed over."""
    (tmp_path / "mark").write_bytes(b"")
    assert read_high_water(tmp_path / "mark") == HighWaterMark()
    (tmp_path / "mark").write_bytes(b"\0" * 512)
    assert read_high_water(tmp_path / "mark") == HighWaterMark()
    (tmp_path / "mark").write_text("never mind")
    with pytest.raises(PermanentError, match="cannot be read"):
        read_high_water(tmp_path / "mark")


def test_a_journal_that_goes_on_is_believed(store: Store, tmp_path: Path) -> None:
    """The same journal, one with an entry that was never acknowledged, and one that others wrote on are as they should be."""
    written(store, tmp_path / "mark", 5)
    beginning(store, tmp_path / "mark")
    lease = store.acquire_lease("lead", "a", ttl_seconds=5)
    Journal(store, lease).append(entry(6))
    beginning(store, tmp_path / "mark")


def test_a_journal_that_ends_before_the_mark_is_refused(tmp_path: Path) -> None:
    """The numbers show an empty store, or one with some entries less."""
    written(MemoryStore(), tmp_path / "mark", 5)
    with pytest.raises(
        StoreRolledBack, match="ends at entry 0, but the store acknowledged entry 5"
    ):
        beginning(MemoryStore(), tmp_path / "mark")
    shorter = MemoryStore()
    written(shorter, tmp_path / "other mark", 4)
    with pytest.raises(StoreRolledBack, match="1 entries are gone"):
        beginning(shorter, tmp_path / "mark")


def test_a_journal_written_on_after_a_rollback_is_refused(tmp_path: Path) -> None:
    """It may be longer than the mark by now: the entry at the mark's number is another one."""
    written(MemoryStore(), tmp_path / "mark", 5)
    other = MemoryStore()
    written(other, tmp_path / "other mark", 9, now=1.0)
    with pytest.raises(StoreRolledBack, match="entry 5 is another one"):
        beginning(other, tmp_path / "mark")


def test_a_mark_whose_entry_is_in_a_file_is_compared_there(tmp_path: Path) -> None:
    """While this machine did not lead, others moved the entry; where their files are not seen, the number must do."""
    store = MemoryStore()
    written(store, tmp_path / "mark", 5)
    lease = store.acquire_lease("lead", "a", ttl_seconds=5)
    archive = Archive(tmp_path / "past", "c")
    journal = Journal(store, lease, archive=archive, segment_entries=5)
    for sequence in range(6, 12):
        journal.append(entry(sequence))
    for through in (10, 11):
        journal.write_snapshot(entry(through), through)
    assert journal.archive() == 10
    for where in (tmp_path / "past", tmp_path / "elsewhere"):
        reader = Journal(store, archive=Archive(where, "c"), mark=HighWaterFile(tmp_path / "mark"))
        reader.check_high_water()
    mark = HighWaterFile(tmp_path / "mark")
    mark.persist(HighWaterMark(sequence=4, sha256="0" * 64))
    with pytest.raises(StoreRolledBack, match="entry 4 is another one"):
        Journal(store, archive=archive, mark=mark).check_high_water()


def test_a_mark_whose_entry_is_in_a_file_of_another_machine_does_not_keep_a_supervisor_from_leading(
    tmp_path: Path,
) -> None:
    """Two machines with a folder each: entries that the other one moved out of the store are no sign of a rollback."""
    store = MemoryStore()
    ours, theirs = Archive(tmp_path / "ours", "c"), Archive(tmp_path / "theirs", "c")
    written(store, tmp_path / "mark", 25)
    ours.prepare()
    lease = store.acquire_lease("lead", "a", ttl_seconds=5)
    other = Journal(store, lease, archive=theirs, segment_entries=10)
    for sequence in range(26, 36):
        other.append(entry(sequence))
    other.write_snapshot(Settle(), 34)
    other.write_snapshot(Settle(), 35)
    assert other.archive() == 30
    Journal(store, archive=ours, mark=HighWaterFile(tmp_path / "mark")).check_high_water()


def test_what_was_not_acknowledged_is_not_marked(tmp_path: Path) -> None:
    """A refused append leaves the mark where it was."""
    store = MemoryStore()
    journal = written(store, tmp_path / "mark", 3)
    store.break_lease("lead", "a")
    with pytest.raises(Fenced):
        journal.append(entry(4))
    journal.persist_high_water(next_generation=9)
    assert read_high_water(tmp_path / "mark").sequence == 3


def test_an_append_to_a_store_rolled_back_is_refused(tmp_path: Path) -> None:
    """For the running supervisor, a store that lost its tail has no place for the next entry."""
    store = MemoryStore()
    lease = store.acquire_lease("lead", "a", ttl_seconds=5)
    with pytest.raises(StoreRolledBack, match="items before this one are missing"):
        Journal(store, lease).append(entry(4))


def test_a_lease_whose_token_fell_means_a_rollback(tmp_path: Path) -> None:
    """A token never falls: one that is lower than ours belongs to a store that did not exist when we got ours."""
    store, older = MemoryStore(), MemoryStore()
    for _ in range(3):
        lease = store.acquire_lease("lead", "a", ttl_seconds=5)
    older.acquire_lease("lead", "a", ttl_seconds=5)
    for other in (older, MemoryStore()):
        with pytest.raises(StoreRolledBack, match="was lost: the token is"):
            other.renew(lease)
        with pytest.raises(StoreRolledBack):
            other.append(JOURNAL, b"{}", fence=lease, at=1)
