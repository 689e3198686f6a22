"""The journal: the controller's inputs and decisions, one entry per turn, and snapshots of its state.

Entry N is item N of the stream `journal`, one wire message. It is appended at its own number, so sending it again after a
lost acknowledgment cannot double it. Entries that both snapshots contain move to files (`archive`), in this order: the file
is durable and read back; the register `journal.archive` names it, under the lease; the stream is trimmed. A crash between
any two steps needs no repair: the next move begins with the missing step. Replay reads files and stream as one.

A journal with a high-water mark records on its own machine how far the store got, and refuses one that comes back with less.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from runner.errors import PermanentError, StoreCorrupt, StoreRolledBack, StoreUnavailable, WireError
from runner.facts import wire
from runner.facts.messages.records import JournalEntry
from runner.facts.messages.store_rollback import AcceptedRollbacks
from runner.facts.store_names import ACCEPTED, ARCHIVE_INDEX, JOURNAL, SNAPSHOTS
from runner.journal.archive import SEGMENT_BYTES, SEGMENT_ENTRIES, Archive, ArchiveIndex
from runner.journal.high_water_mark import HighWaterFile, HighWaterMark
from runner.journal.snapshots import (
    Snapshot,
    good_snapshots,
    latest_snapshot,
    register_for,
    sealed,
    sha256,
)
from runner.store.protocol import MAX_LARGE_BYTES, Item, Lease, Store

_LOG = logging.getLogger("stoker")


class Journal:
    """The journal of a store. With a lease, appends and snapshots are fenced by it; without, it can only be read.

    `archive`: where old entries are; without it no entry moves, and moved ones cannot be read. One thread appends; another may
    write snapshots and archive.
    """

    def __init__(
        self,
        store: Store,
        lease: Lease | None = None,
        *,
        archive: Archive | None = None,
        mark: HighWaterFile | None = None,
        segment_entries: int = SEGMENT_ENTRIES,
    ) -> None:
        self._store = store
        self._lease = lease
        self._archive = archive
        self._mark = mark
        self._segment_entries = segment_entries
        # acknowledged, and not persisted yet
        self._newest: HighWaterMark | None = None
        # how often a person accepted a rolled-back store
        self._num_accepted = 0
        # of entries appended or replayed here
        self.passed_bytes = 0
        # of the last snapshot written or read here
        self.snapshot_bytes = 0

    def append(self, entry: JournalEntry) -> None:
        """Make an entry durable.

        After StoreUnavailable, append the same entry again: it is written once. Raises Fenced when another supervisor
        took over, StoreCorrupt when the entry's number holds another entry, StoreRolledBack when entries before it are gone.
        """
        self.append_many((entry,))

    def append_many(self, entries: Sequence[JournalEntry]) -> None:
        """Make entries that follow each other durable, all or none; see `append`."""
        payloads = [wire.encode(entry) for entry in entries]
        fence, first, last = self._writing_lease(), entries[0].sequence, entries[-1].sequence
        if len(payloads) == 1:
            self._store.append(JOURNAL, payloads[0], fence=fence, at=first)
        else:
            self._store.append_many(JOURNAL, payloads, fence=fence, at=first)
        self.passed_bytes += sum(map(len, payloads))
        if self._mark is not None:
            self._newest = HighWaterMark(sequence=last, sha256=sha256(payloads[-1]))

    def persist_high_water(self, *, next_generation: int) -> None:
        """Persist the newest acknowledged entry on this machine, and the next generation; does nothing without a mark.

        Raises StoreUnavailable when this machine's disk fails.
        """
        if self._mark is not None and self._newest is not None:
            self._mark.persist(
                replace(self._newest, next_generation=next_generation, accepted=self._num_accepted)
            )
            self._newest = None

    def check_high_water(self) -> None:
        """Raise StoreRolledBack if the journal ends before this machine's mark, or has another entry at its number."""
        if self._mark is None:
            return
        newest, last = self._mark.newest, self.last()
        accepted = self.accepted()
        self._num_accepted = accepted.count
        if newest.accepted < accepted.count and newest.sequence >= accepted.sequence:
            # of the past that a person gave up
            return
        if not newest.sequence:
            return
        if last < newest.sequence:
            raise StoreRolledBack(
                f"the journal ends at entry {last}, but the store acknowledged entry {newest.sequence} ({self._mark.path}): "
                f"{newest.sequence - last} entries are gone"
            )
        found = self.payload(newest.sequence)
        if found is not None and sha256(found) != newest.sha256:
            raise StoreRolledBack(
                f"journal entry {newest.sequence} is another one than the store acknowledged ({self._mark.path}): it came back "
                "with less and was written on"
            )

    def accepted(self) -> AcceptedRollbacks:
        """Return how often a person accepted this store after a rollback, and the entry of the last time."""
        register = self._store.get(ACCEPTED)
        found = wire.decode(register.payload) if register is not None else AcceptedRollbacks()
        return found if isinstance(found, AcceptedRollbacks) else AcceptedRollbacks()

    def accept(self, entry: JournalEntry, *, next_generation: int) -> None:
        """Append the entry by which a person accepts a rolled-back store; older high-water marks lose their effect."""
        self.append(entry)
        marked = self._mark.newest.accepted if self._mark is not None else 0
        self._num_accepted = max(self.accepted().count, marked) + 1
        accepted = AcceptedRollbacks(count=self._num_accepted, sequence=entry.sequence)
        self._store.put(ACCEPTED, wire.encode(accepted), fence=self._writing_lease())
        self.persist_high_water(next_generation=next_generation)

    def last(self) -> int:
        """Return the number of the newest entry; 0 if there is none."""
        return self._store.last(JOURNAL)

    def first_stored(self) -> int:
        """Return the number of the oldest entry that the store itself still has; the next one's if it has none."""
        batch = self._store.read(streams={JOURNAL: 0}, registers={}, timeout_seconds=0, limit=1)
        return batch.items[JOURNAL][0].number if batch else self.last() + 1

    def begins_at(self) -> int:
        """Return the first entry that can be read here: 1, or later where the archive is out of reach."""
        first = self.first_stored()
        if first == 1 or (self._archive is not None and self._archive.is_here()):
            return 1
        return first

    def since(self, moment: float) -> int:
        """Return an entry from which replay covers all after `moment`, without the files before."""
        return max(self.index().since(moment), self.begins_at())

    def payload(self, number: int) -> bytes | None:
        """Return an entry's bytes; None when it was never written, or is in a file that cannot be read here.

        A supervisor on another machine, without a shared folder, archives to files of its own.
        """
        batch = self._store.read(
            streams={JOURNAL: min(number - 1, self.last())},
            registers={},
            timeout_seconds=0,
            limit=1,
        )
        if batch and batch.items[JOURNAL][0].number == number:
            return batch.items[JOURNAL][0].payload
        segment = self.index().holding(number)
        if segment is None or self._archive is None or not self._archive.is_here():
            return None
        try:
            return self._archive.read(segment)[number - segment.first]
        except (StoreCorrupt, StoreUnavailable) as error:
            _LOG.warning("journal entry %d cannot be read: %s", number, error)
            return None

    def replay(self, from_number: int = 1) -> Iterator[JournalEntry]:
        """Yield all entries from that number on, in order; raise StoreCorrupt at the first that is missing or unreadable."""
        number = from_number - 1
        if number > self.last():
            raise StoreRolledBack(
                f"the journal ends at entry {self.last()}, yet entry {number} was written once: the store lost entries; "
                f"put back a newer copy"
            )
        while True:
            # Before the read: an entry appended after it was not trimmed.
            last = self.last()
            batch = self._store.read(streams={JOURNAL: number}, registers={}, timeout_seconds=0)
            items = batch.items[JOURNAL] if batch else ()
            stored_from = items[0].number if items else last + 1
            if stored_from > number + 1:
                for item in self._from_files(number + 1, stored_from):
                    number = item.number
                    self.passed_bytes += len(item.payload)
                    yield decode_entry(item)
                # The stream may have been trimmed further meanwhile.
                continue
            if not items:
                return
            for item in items:
                number += 1
                if item.number != number:
                    raise StoreCorrupt(f"journal entry {number} is missing, {item.number} follows")
                self.passed_bytes += len(item.payload)
                yield decode_entry(item)

    def index(self) -> ArchiveIndex:
        """Return the files that hold old entries."""
        register = self._store.get(ARCHIVE_INDEX)
        if register is None:
            return ArchiveIndex()
        try:
            found = wire.decode(register.payload, limit_bytes=MAX_LARGE_BYTES)
        except WireError as error:
            raise StoreCorrupt(f"register {ARCHIVE_INDEX!r} cannot be read: {error}") from error
        if not isinstance(found, ArchiveIndex):
            raise StoreCorrupt(f"register {ARCHIVE_INDEX!r} holds a {type(found).__name__}")
        return found

    def archive(self) -> int:
        """Move whole segments of entries that both snapshots contain to files; return the number of entries trimmed.

        After StoreUnavailable, do it again. Entries are good in the stream until they fill a segment.
        """
        if self._archive is None:
            return 0
        index, first = self.index(), self.first_stored()
        # Finishes a move that was interrupted.
        if first <= index.last:
            self._store.trim(JOURNAL, index.last, fence=self._writing_lease())
        through = 0
        # Snapshots are read only when a segment is full.
        if self.last() - index.last >= self._segment_entries:
            good, _ = good_snapshots(self._store)
            through = good[-1].seal.through if len(good) == len(SNAPSHOTS) else 0
        while through - index.last >= self._segment_entries:
            payloads, ended = self._segment_after(index.last)
            seal = self._archive.write(index.last + 1, payloads, ended=ended)
            index = ArchiveIndex(segments=(*index.segments, seal))
            self._store.put(ARCHIVE_INDEX, wire.encode(index), fence=self._writing_lease())
            self._store.trim(JOURNAL, index.last, fence=self._writing_lease())
        return max(0, index.last + 1 - first)

    def trim_inputs(self, cursors: Mapping[str, int]) -> None:
        """Trim messages that the journal contains: no process reads them again, and they fill the store's memory."""
        for stream, through in cursors.items():
            self._store.trim(stream, through, fence=self._writing_lease())

    def _segment_after(self, number: int) -> tuple[list[bytes], float]:
        """Return the entries of the segment that begins after an entry, and when its last one was written."""
        payloads: list[bytes] = []
        room_bytes = SEGMENT_BYTES
        while len(payloads) < self._segment_entries and room_bytes > 0:
            limit = min(1000, self._segment_entries - len(payloads))
            batch = self._store.read(
                streams={JOURNAL: number}, registers={}, timeout_seconds=0, limit=limit
            )
            if not batch:
                raise StoreCorrupt(f"journal entry {number + 1} is missing: the journal ends there")
            for item in batch.items[JOURNAL]:
                number += 1
                if item.number != number or b"\n" in item.payload:
                    raise StoreCorrupt(
                        f"journal entry {number} is missing or no line: {item.number} of {len(item.payload)} bytes follows"
                    )
                newest = item
                payloads.append(item.payload)
                room_bytes -= len(item.payload)
                if room_bytes <= 0:
                    break
        return payloads, decode_entry(newest).now

    def _from_files(self, first: int, stored_from: int) -> Iterator[Item]:
        """Yield the entries of one segment, from `first` on, that the stream does not have any more."""
        segment = self.index().holding(first)
        if segment is None:
            raise StoreCorrupt(
                f"journal entry {first} is missing, {stored_from} follows; it was lost, or trimmed by another program"
            )
        if self._archive is None:
            raise StoreUnavailable(
                f"journal entry {first} is in file {segment.name} of the journal's folder, which cannot be seen from here"
            )
        payloads = self._archive.read(segment)
        for number in range(first, segment.last + 1):
            yield Item(number, payloads[number - segment.first])

    def write_snapshot(self, state: object, through: int) -> None:
        """Write `state`, a registered message, as of entry `through`; the newest good snapshot stays.

        After StoreUnavailable, write the same snapshot again.
        """
        self.write_encoded_snapshot(wire.encode(state), through)

    def write_encoded_snapshot(self, body: bytes, through: int) -> None:
        """Write a state that was encoded already; see `write_snapshot`."""
        good, _ = good_snapshots(self._store)
        register = register_for(good, through)
        self._store.put(register, sealed(body, through), fence=self._writing_lease())
        self.snapshot_bytes = len(body)

    def latest_snapshot(self, *, at_most: int | None = None) -> Snapshot:
        """Return the newest snapshot that verifies; entries after its `through` are still to be applied.

        `at_most`: skip those that contain later entries than this one.
        """
        found = latest_snapshot(self._store, at_most=at_most)
        self.snapshot_bytes = found.bytes
        return found

    def _writing_lease(self) -> Lease:
        if self._lease is None:
            raise PermanentError("this journal was opened for reading; writing needs the lease")
        return self._lease


def decode_entry(item: Item) -> JournalEntry:
    """Decode an item of the stream `journal`; raise StoreCorrupt if it is not the entry with that number."""
    try:
        entry = wire.decode(item.payload, limit_bytes=MAX_LARGE_BYTES)
    except WireError as error:
        raise StoreCorrupt(
            f"journal entry {item.number} cannot be read: {error}; it is damaged, or another version of Stoker wrote it: "
            "lead this cluster with that version, or start a new cluster"
        ) from error
    if not isinstance(entry, JournalEntry):
        raise StoreCorrupt(f"journal entry {item.number} is a {type(entry).__name__}, not an entry")
    if entry.sequence != item.number:
        raise StoreCorrupt(f"journal entry {item.number} has the number {entry.sequence}")
    return entry
