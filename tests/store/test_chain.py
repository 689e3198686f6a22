"""The chain of the journal: who has the store and not the token can change nothing unnoticed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from runner.errors import Forged, StoreCorrupt
from runner.facts import wire
from runner.facts.messages.records import JournalEntry, RunAdmitted, Settle
from runner.facts.messages.store_rollback import AcceptedRollbacks
from runner.facts.specs.run import RunSpec
from runner.facts.store_names import ACCEPTED, JOURNAL, SNAPSHOTS
from runner.journal.archive import Archive
from runner.journal.chain import split
from runner.journal.journal import Journal
from runner.signer import UNSIGNED, Signer
from runner.store.memory.store import MemoryStore
from runner.store.protocol import Store
from tests.store.test_journal import entry, state

TOKEN, OTHER = Signer(b"t" * 32), Signer(b"o" * 32)
LAST = 8


def led(store: Store, signer: Signer = TOKEN, **more: object) -> Journal:
    """Open a journal to write."""
    lease = store.acquire_lease("lead", "a", ttl_seconds=3600)
    return Journal(store, lease, signer=signer, **more)  # type: ignore[arg-type]


@pytest.fixture
def store() -> MemoryStore:
    """Give a store with a journal of eight entries, one of them written alone, and a snapshot after the fourth."""
    store = MemoryStore()
    journal = led(store)
    journal.append_many([entry(number) for number in range(1, 5)])
    journal.write_snapshot(state(4), 4)
    journal.append(entry(5))
    journal.append_many([entry(number) for number in range(6, LAST + 1)])
    return store


def payloads(store: Store) -> list[bytes]:
    """Return the entries as the store has them."""
    batch = store.read(streams={JOURNAL: 0}, registers={}, timeout_seconds=0)
    return [item.payload for item in batch.items[JOURNAL]]


def rewritten(store: Store, entries: list[bytes]) -> MemoryStore:
    """Return another store with these entries, and the registers as they are."""
    other = MemoryStore()
    other.append_many(JOURNAL, entries)
    for name, register in store.registers("").items():
        other.put(name, register.payload)
    return other


def followed(store: Store, signer: Signer = TOKEN, *, snapshot: bool = False) -> list[int]:
    """Read the journal as the next supervisor does; return the numbers of the entries."""
    journal = Journal(store, signer=signer)
    begin = journal.latest_snapshot().through + 1 if snapshot else 1
    return [each.sequence for each in journal.replay(begin)]


def test_entries_are_read_back_from_the_start_and_from_a_snapshot(store: MemoryStore) -> None:
    """By the next supervisor, which goes on; and by who has no token, who checks nothing."""
    assert followed(store) == followed(store, UNSIGNED) == list(range(1, LAST + 1))
    assert followed(store, snapshot=True) == [5, 6, 7, 8]
    journal = led(store)
    journal.append(entry(LAST + 1))
    assert followed(store)[-1] == LAST + 1


def test_a_repeated_append_is_written_once(store: MemoryStore) -> None:
    """After a lost acknowledgment the same entry has the same code."""
    lease = store.acquire_lease("lead", "a", ttl_seconds=3600)
    for _ in range(2):
        Journal(store, lease, signer=TOKEN).append(entry(LAST + 1))
    assert followed(store) == list(range(1, LAST + 2))


def forged() -> bytes:
    """Return the entry of an attacker who has the store's password: a run with a command of theirs."""
    admitted = RunAdmitted(run=7, spec=RunSpec(name="x", command=("sh", "-c", "id")), user="eve")
    return wire.encode(
        JournalEntry(sequence=LAST + 1, now=1e3, input=Settle(), records=(admitted,))
    )


@pytest.mark.parametrize(
    ("code", "word"),
    [
        (b"", "carries no code"),
        (b" " + b"0" * 64, "does not verify"),
        (b" " + OTHER.link(b"", b"x"), "does not verify"),
    ],
)
def test_an_entry_written_without_the_token_is_refused_by_number(
    store: MemoryStore, code: bytes, word: str
) -> None:
    """Appended at the end, with the store's password alone; from the start and from a snapshot."""
    store.append(JOURNAL, forged() + code)
    for snapshot in (False, True):
        with pytest.raises(StoreCorrupt, match=f"journal entry {LAST + 1} {word}"):
            followed(store, snapshot=snapshot)


@pytest.mark.parametrize("snapshot", [False, True])
def test_entries_before_a_bad_one_are_passed(store: MemoryStore, snapshot: bool) -> None:
    """Also where all of a batch are checked at once; the error names the first that is bad, and not its followers."""
    entries = payloads(store)
    entries[6] = entries[6].replace(b'"sequence":7', b'"sequence":8')
    journal = Journal(rewritten(store, entries), signer=TOKEN)
    begin = journal.latest_snapshot().through + 1 if snapshot else 1
    passed = journal.replay(begin)
    assert [next(passed).sequence for _ in range(begin, 7)] == list(range(begin, 7))
    with pytest.raises(StoreCorrupt, match="journal entry 7 does not verify"):
        next(passed)


def test_with_another_token_nothing_verifies(store: MemoryStore) -> None:
    """Two clusters of one name that reach one store: the second refuses what the first wrote."""
    with pytest.raises(StoreCorrupt, match="journal entry 1 does not verify"):
        followed(store, OTHER)
    assert not Journal(store, signer=OTHER).latest_snapshot().through


CHANGES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "a byte changed": lambda all_: [*all_[:5], all_[5].replace(b"n6", b"n9"), *all_[6:]],
    "an entry dropped": lambda all_: all_[:5] + all_[6:],
    "two exchanged": lambda all_: [*all_[:5], all_[6], all_[5], *all_[7:]],
    "one repeated": lambda all_: [*all_[:6], all_[5], *all_[6:]],
    "its code cut off": lambda all_: [*all_[:5], split(all_[5])[0], *all_[6:]],
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_in_the_middle_is_refused_by_number(store: MemoryStore, what: str) -> None:
    """Whatever it is, the first entry that does not continue the chain is named."""
    changed = rewritten(store, CHANGES[what](payloads(store)))
    number = 7 if what == "one repeated" else 6
    for snapshot in (False, True):
        with pytest.raises(StoreCorrupt, match=f"journal entry {number} "):
            followed(changed, snapshot=snapshot)


def test_a_snapshot_of_others_is_passed_over(store: MemoryStore) -> None:
    """Unsigned, signed for the other register, or with a code that its entries do not continue."""
    register = store.get(SNAPSHOTS[0])
    assert register is not None
    genuine = register.payload
    for payload in (genuine.rpartition(b"\n")[0], OTHER.sign(SNAPSHOTS[0], genuine), b"x"):
        store.put(SNAPSHOTS[0], payload)
        found = Journal(store, signer=TOKEN).latest_snapshot()
        assert (found.through, len(found.refused)) == (0, 1)
    store.put(SNAPSHOTS[1], genuine)
    assert not Journal(store, signer=TOKEN).latest_snapshot().through


def test_an_older_snapshot_put_back_leads_to_the_same_state(store: MemoryStore) -> None:
    """It is followed by its own entries, which continue its chain; trimmed, they are missing by number."""
    older = store.get(SNAPSHOTS[0])
    assert older is not None
    journal = led(store)
    journal.write_snapshot(state(LAST), LAST)
    for name in SNAPSHOTS:
        store.put(name, TOKEN.sign(name, TOKEN.verify(SNAPSHOTS[0], older.payload)))
    assert followed(store, snapshot=True) == [5, 6, 7, 8]
    store.trim(JOURNAL, 6)
    with pytest.raises(StoreCorrupt, match="journal entry 5 is missing"):
        followed(store, snapshot=True)


def test_the_chain_goes_on_through_files(tmp_path: Path) -> None:
    """Entries that moved to files verify with those in the store; a file that was written again does not."""
    store, archive = MemoryStore(), Archive(tmp_path, "c")
    journal = led(store, archive=archive, segment_entries=3)
    for number in range(1, 9):
        journal.append(entry(number))
        journal.write_snapshot(state(number), number)
    assert journal.archive() == 6
    reader = Journal(store, signer=TOKEN, archive=archive)
    assert [each.sequence for each in reader.replay()] == list(range(1, 9))
    segment = journal.index().segments[0]
    entries = archive.read(segment)
    entries[1] = entries[1].replace(b"n2", b"n7")
    changed = archive.write(1, entries, ended=segment.ended)
    index = wire.encode(type(journal.index())(segments=(changed, *journal.index().segments[1:])))
    store.put("journal.archive", index)
    with pytest.raises(StoreCorrupt, match="journal entry 2 does not verify"):
        list(Journal(store, signer=TOKEN, archive=archive).replay())


def test_a_journal_without_codes_is_told_apart_and_accepted_once() -> None:
    """An earlier release wrote it: refused by a supervisor, read for history once a person has accepted it."""
    store = MemoryStore()
    journal = led(store, UNSIGNED)
    journal.append_many([entry(number) for number in range(1, 4)])
    journal.write_snapshot(state(3), 3)
    with pytest.raises(StoreCorrupt, match="journal entry 1 carries no code"):
        followed(store, snapshot=True)
    signed = led(store)
    assert signed.is_without_codes()
    signed.accept(entry(4), next_generation=1, unsigned_through=3)
    signed.write_snapshot(state(4), 4)
    signed.append(entry(5))
    assert not Journal(store, signer=TOKEN).is_without_codes()
    assert followed(store, snapshot=True) == [5]
    reader = Journal(store, signer=TOKEN)
    through = reader.accepted().unsigned_through
    assert [each.sequence for each in reader.replay(unsigned_through=through)] == [1, 2, 3, 4, 5]
    with pytest.raises(StoreCorrupt, match="journal entry 1 carries no code"):
        followed(store)


def test_what_a_person_accepted_is_believed_with_the_token_only(store: MemoryStore) -> None:
    """Else the password alone would be enough to accept a rollback."""
    claim = wire.encode(AcceptedRollbacks(count=9, sequence=LAST, unsigned_through=LAST))
    store.put(ACCEPTED, claim)
    assert Journal(store, signer=TOKEN).accepted() == AcceptedRollbacks()
    store.put(ACCEPTED, TOKEN.sign(ACCEPTED, claim))
    assert Journal(store, signer=TOKEN).accepted().count == 9


def test_after_a_change_of_the_token_old_entries_verify_and_no_new_one_is_made_with_the_old_token(
    store: MemoryStore,
) -> None:
    """The file holds the new token above the old one; who has the old one alone can add nothing."""
    both = Signer(b"n" * 32, [b"t" * 32])
    assert followed(store, both, snapshot=True) == [5, 6, 7, 8]
    led(store, both).append(entry(LAST + 1))
    assert followed(store, both) == list(range(1, LAST + 2))
    led(store, TOKEN).append(entry(LAST + 2))
    with pytest.raises(StoreCorrupt, match=f"journal entry {LAST + 2} does not verify"):
        followed(store, both)
    with pytest.raises(Forged):
        both.verify("signals", TOKEN.sign("signals", b"{}"))


def test_a_journal_of_another_cluster_is_told_from_one_that_was_tampered_with(
    store: MemoryStore,
) -> None:
    """Another's are all of its codes; after an attack, and after a change of the token, some are ours; one entry is enough."""
    lone = MemoryStore()
    led(lone).append(entry(1))
    for written in (store, lone):
        for signer, is_others in ((TOKEN, False), (OTHER, True), (UNSIGNED, True)):
            assert Journal(written, signer=signer).is_of_another_cluster() == is_others
    assert not Journal(store, signer=Signer(b"a new token", [b"t" * 32])).is_of_another_cluster()
    assert not Journal(MemoryStore(), signer=TOKEN).is_of_another_cluster()
    *kept, last = payloads(store)
    for tampered in (last.replace(b"8", b"9"), split(last)[0]):
        assert not led(rewritten(store, [*kept, tampered])).is_of_another_cluster()
