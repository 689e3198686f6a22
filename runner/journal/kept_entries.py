"""The entries of a journal as they are kept: old ones in files, the rest in the stream of the store. Others check their codes."""

import logging

from runner.errors import StoreCorrupt, StoreUnavailable, WireError
from runner.facts import wire
from runner.facts.messages.records import JournalEntry
from runner.facts.store_names import ARCHIVE_INDEX, JOURNAL
from runner.journal import chain
from runner.journal.archive import SEGMENT_BYTES, Archive, ArchiveIndex
from runner.store.protocol import MAX_LARGE_BYTES, READ_LIMIT, Item, Store

_LOG = logging.getLogger("stoker")


class KeptEntries:
    """Reads the entries of a store and of its archive; without an archive, those that moved cannot be read."""

    def __init__(self, store: Store, archive: Archive | None) -> None:
        self._store, self._archive = store, archive

    def last(self) -> int:
        """Return the number of the newest entry; 0 if there is none."""
        return self._store.last(JOURNAL)

    def first_stored(self) -> int:
        """Return the number of the oldest entry that the store itself still has; the next one's if it has none."""
        items = self.stored_after(0, limit=1)
        return items[0].number if items else self.last() + 1

    def begins_at(self) -> int:
        """Return the first entry that can be read here: 1, or later where the archive is out of reach."""
        first = self.first_stored()
        if first == 1 or (self._archive is not None and self._archive.is_here()):
            return 1
        return first

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

    def payload(self, number: int) -> bytes | None:
        """Return an entry's bytes; None when it was never written, or is in a file that cannot be read here.

        A supervisor on another machine, without a shared folder, archives to files of its own.
        """
        items = self.stored_after(min(number - 1, self.last()), limit=1)
        if items and items[0].number == number:
            return items[0].payload
        segment = self.index().holding(number)
        if segment is None or self._archive is None or not self._archive.is_here():
            return None
        try:
            return self._archive.read(segment)[number - segment.first]
        except (StoreCorrupt, StoreUnavailable) as error:
            _LOG.warning("journal entry %d cannot be read: %s", number, error)
            return None

    def stored_after(self, number: int, *, limit: int = READ_LIMIT) -> tuple[Item, ...]:
        """Return the next entries that the store itself has, without waiting."""
        batch = self._store.read(
            streams={JOURNAL: number}, registers={}, timeout_seconds=0, limit=limit
        )
        return batch.items.get(JOURNAL, ())

    def from_files(self, first: int, stored_from: int) -> tuple[Item, ...]:
        """Return the entries of one segment, from `first` on, that the stream does not have any more."""
        segment = self.index().holding(first)
        if segment is None:
            raise StoreCorrupt(
                f"journal entry {first} is missing, {stored_from} follows; it was lost, or trimmed by another program"
            )
        if self._archive is None:
            raise StoreUnavailable(
                f"journal entry {first} is in file {segment.name} of the journal's folder, which cannot be seen from here"
            )
        payloads = self._archive.read(segment)[first - segment.first :]
        return tuple(Item(number, payload) for number, payload in enumerate(payloads, first))

    def segment_after(self, number: int, num_entries: int) -> tuple[list[bytes], float]:
        """Return the entries of the segment that begins after an entry, and when its last one was written."""
        payloads: list[bytes] = []
        room_bytes = SEGMENT_BYTES
        while len(payloads) < num_entries and room_bytes > 0:
            limit = min(READ_LIMIT, num_entries - len(payloads))
            items = self.stored_after(number, limit=limit)
            if not items:
                raise StoreCorrupt(f"journal entry {number + 1} is missing: the journal ends there")
            for item in items:
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
        return payloads, decode_entry(newest.number, chain.split(newest.payload)[0]).now


def decode_entry(number: int, message: bytes) -> JournalEntry:
    """Decode an entry's message; raise StoreCorrupt if it is not the entry with that number."""
    try:
        entry = wire.decode(message, limit_bytes=MAX_LARGE_BYTES)
    except WireError as error:
        raise StoreCorrupt(
            f"journal entry {number} cannot be read: {error}; it is damaged, or another version of Stoker wrote it: "
            "lead this cluster with that version, or start a new cluster"
        ) from error
    # Of a million: no `isinstance`, which asks the class's metaclass.
    if type(entry) is not JournalEntry:
        raise StoreCorrupt(f"journal entry {number} is a {type(entry).__name__}, not an entry")
    if entry.sequence != number:
        raise StoreCorrupt(f"journal entry {number} has the number {entry.sequence}")
    return entry
