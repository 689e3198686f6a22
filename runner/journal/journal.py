"""The journal: the controller's inputs and decisions, one entry per turn, and snapshots of its state.

Entry N is item N of the stream `journal`, one wire message. It is appended at its own number, so sending it again after a
lost acknowledgment cannot double it. Entries that both snapshots contain move to files (`archive`), in this order: the file
is durable and read back; the register `journal.archive` names it, under the lease; the stream is trimmed. A crash between
any two steps needs no repair: the next move begins with the missing step. Replay reads files and stream as one.

With the cluster's token each entry carries a code that covers the one before it (`chain`), and snapshots are signed: who has the
store's password alone can add nothing that is believed.

A journal with a high-water mark records on its own machine how far the store got, and refuses one that comes back with less.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from runner.errors import (
    Forged,
    PermanentError,
    StoreRolledBack,
)
from runner.facts import wire
from runner.facts.messages.records import JournalEntry
from runner.facts.messages.store_rollback import AcceptedRollbacks
from runner.facts.store_names import ACCEPTED, ARCHIVE_INDEX, JOURNAL, SNAPSHOTS
from runner.journal import chain
from runner.journal.archive import SEGMENT_ENTRIES, Archive, ArchiveIndex
from runner.journal.chain import Chain
from runner.journal.high_water_mark import HighWaterFile, HighWaterMark
from runner.journal.kept_entries import KeptEntries, decode_entry
from runner.journal.snapshots import Snapshot, Snapshots, sha256
from runner.signer import UNSIGNED, Signer
from runner.store.protocol import Lease, Store


class Journal:
    """The journal of a store. With a lease, appends and snapshots are fenced by it; without, it can only be read.

    `signer`: makes and checks the codes of entries.
    `archive`: where old entries are; without it no entry moves, and moved ones cannot be read. One thread appends; another may
    write snapshots and archive.
    """

    def __init__(
        self,
        store: Store,
        lease: Lease | None = None,
        *,
        signer: Signer = UNSIGNED,
        archive: Archive | None = None,
        mark: HighWaterFile | None = None,
        segment_entries: int = SEGMENT_ENTRIES,
    ) -> None:
        self._store = store
        self._lease = lease
        self._signer, self._chain = signer, Chain(signer)
        self._archive, self._kept = archive, KeptEntries(store, archive)
        self._snapshots = Snapshots(store, signer)
        self._mark = mark
        self._segment_entries = segment_entries
        self._newest_unpersisted: HighWaterMark | None = None
        self._num_accepted = 0
        # The entry appended last, successfully or not, and the token that signed then: repeated, it has the same code.
        self._attempted, self._token = 0, 0
        # Of entries appended or replayed here, and of the last snapshot written or read here.
        self.passed_bytes = self.snapshot_bytes = 0

    def append(self, entry: JournalEntry) -> None:
        """Make an entry durable.

        After StoreUnavailable, append the same entry again: it is written once. Raises Fenced when another supervisor
        took over, StoreCorrupt when the entry's number holds another entry, StoreRolledBack when entries before it are gone.
        """
        self.append_many((entry,))

    def append_many(self, entries: Sequence[JournalEntry]) -> None:
        """Make entries that follow each other durable, all or none; see `append`."""
        first, last = entries[0].sequence, entries[-1].sequence
        self._follow_from(first)
        if first != self._attempted:
            self._attempted, self._token = first, self._signer.number
        if self._token != self._chain.token:
            self._sign_kept_again()
        messages = [wire.encode(entry) for entry in entries]
        payloads, code = self._chain.extended(messages, self._token)
        self._store.append_many(JOURNAL, payloads, fence=self._writing_lease(), at=first)
        self._chain.start_after(last, code, self._token)
        self.passed_bytes += sum(map(len, payloads))
        if self._mark is not None:
            self._newest_unpersisted = HighWaterMark(sequence=last, sha256=sha256(payloads[-1]))

    def persist_high_water(self, *, next_generation: int) -> None:
        """Persist the newest acknowledged entry on this machine, and the next generation; does nothing without a mark.

        Raises StoreUnavailable when this machine's disk fails.
        """
        if self._mark is not None and self._newest_unpersisted is not None:
            newest, accepted = self._newest_unpersisted, self._num_accepted
            self._mark.persist(replace(newest, next_generation=next_generation, accepted=accepted))
            self._newest_unpersisted = None

    def check_high_water(self) -> None:
        """Raise StoreRolledBack if the journal ends before this machine's mark, or has another entry at its number."""
        if self._mark is None:
            return
        newest, last, accepted = self._mark.newest, self.last(), self.accepted()
        self._num_accepted = accepted.count
        is_given_up = newest.accepted < accepted.count and newest.sequence >= accepted.sequence
        if is_given_up or not newest.sequence:
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
        if register is None:
            return AcceptedRollbacks()
        try:
            found = wire.decode(self._signer.verify_kept(ACCEPTED, register.payload)[0])
        except Forged:
            # An earlier release wrote it, or a program without the token: it gives up nothing.
            return AcceptedRollbacks()
        return found if isinstance(found, AcceptedRollbacks) else AcceptedRollbacks()

    def accept(self, entry: JournalEntry, *, next_generation: int, unsigned_through: int) -> None:
        """Append the entry by which a person accepts the store as it is; older high-water marks lose their effect."""
        self.append(entry)
        marked = self._mark.newest.accepted if self._mark is not None else 0
        before = self.accepted()
        self._num_accepted = max(before.count, marked) + 1
        accepted = AcceptedRollbacks(
            count=self._num_accepted,
            sequence=entry.sequence,
            unsigned_through=max(before.unsigned_through, unsigned_through),
        )
        payload = self._signer.sign(ACCEPTED, wire.encode(accepted))
        self._store.put(ACCEPTED, payload, fence=self._writing_lease())
        self.persist_high_water(next_generation=next_generation)

    def last(self) -> int:
        """Return the number of the newest entry; 0 if there is none."""
        return self._kept.last()

    def first_stored(self) -> int:
        """Return the number of the oldest entry that the store itself still has; the next one's if it has none."""
        return self._kept.first_stored()

    def begins_at(self) -> int:
        """Return the first entry that can be read here: 1, or later where the archive is out of reach."""
        return self._kept.begins_at()

    def since(self, moment: float) -> int:
        """Return an entry from which replay covers all after `moment`, without the files before."""
        return max(self.index().since(moment), self.begins_at())

    def payload(self, number: int) -> bytes | None:
        """Return an entry's bytes; None when it was never written, or is in a file that cannot be read here."""
        return self._kept.payload(number)

    def index(self) -> ArchiveIndex:
        """Return the files that hold old entries."""
        return self._kept.index()

    def replay(self, from_number: int = 1, *, unsigned_through: int = 0) -> Iterator[JournalEntry]:
        """Yield all entries from that number on, in order; raise StoreCorrupt at the first that is missing or does not verify.

        Entries up to `unsigned_through` may lack a code: for a reader of history, who acts on nothing.
        """
        number = from_number - 1
        if number > self.last():
            raise StoreRolledBack(
                f"the journal ends at entry {self.last()}, yet entry {number} was written once: the store lost entries; "
                f"put back a newer copy"
            )
        self._follow_from(from_number)
        self._chain.unsigned_through = unsigned_through
        while True:
            # Before the read: an entry appended after it was not trimmed.
            last = self.last()
            items = self._kept.stored_after(number)
            stored_from = items[0].number if items else last + 1
            if stored_from > number + 1:
                # The next look may find the stream trimmed further.
                items = self._kept.from_files(number + 1, stored_from)
            if not items:
                return
            self.passed_bytes += sum([len(item.payload) for item in items])
            for message in self._chain.pass_many(number, items):
                number += 1
                yield decode_entry(number, message)

    def is_without_codes(self) -> bool:
        """Whether this cluster has a token, and an earlier release, which made no codes, wrote all that there is."""
        if not self._signer.is_active or not self.last() or self._snapshots.good()[0]:
            return False
        return not any(map(self._code_of, (self.first_stored(), self.last())))

    def is_of_another_cluster(self) -> bool:
        """Whether codes of other tokens alone are in what there is: its first entry, its last, and the snapshots."""
        last, first = self.last(), self.first_stored()
        if not self._signer.is_active:
            return bool(self._code_of(last))
        for number in (last, min(last, max(first, 2))) if last else ():
            if not self._code_of(number) or self._token_of(number) is not None:
                return False
        return last > 0 and not self._snapshots.good()[0]

    def _follow_from(self, number: int) -> None:
        """Let the chain go on from this entry: after the one passed last, or after the one that the store has before it."""
        if self._chain.is_active and self._chain.number != number - 1:
            self._chain.start_after(number - 1, self._code_of(number - 1))

    def _code_of(self, number: int) -> bytes:
        """Return an entry's code; b"" if it has none, or cannot be read here."""
        return chain.split(self.payload(number) or b"")[1] if number > 0 else b""

    def _token_of(self, number: int) -> int | None:
        """Return the number of the token that made an entry; None: none of ours, or the entry cannot be read here."""
        message, code = chain.split(self.payload(number) or b"")
        return self._signer.token_of_link(self._code_of(number - 1), message, code)

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
            good, _ = self._snapshots.good()
            through = good[-1].seal.through if len(good) == len(SNAPSHOTS) else 0
        while through - index.last >= self._segment_entries:
            payloads, ended = self._kept.segment_after(index.last, self._segment_entries)
            seal = self._archive.write(index.last + 1, payloads, ended=ended)
            index = ArchiveIndex(segments=(*index.segments, seal))
            self._store.put(ARCHIVE_INDEX, wire.encode(index), fence=self._writing_lease())
            self._store.trim(JOURNAL, index.last, fence=self._writing_lease())
        return max(0, index.last + 1 - first)

    def trim_inputs(self, cursors: Mapping[str, int]) -> None:
        """Trim messages that the journal contains: no process reads them again, and they fill the store's memory."""
        for stream, through in cursors.items():
            self._store.trim(stream, through, fence=self._writing_lease())

    def write_snapshot(self, state: object, through: int) -> None:
        """Write `state`, a registered message, as of entry `through`; the newest good snapshot stays.

        After StoreUnavailable, write the same snapshot again.
        """
        self.write_encoded_snapshot(wire.encode(state), through)

    def write_encoded_snapshot(self, body: bytes, through: int) -> None:
        """Write a state that was encoded already; see `write_snapshot`."""
        code = self._code_of(through).decode() if self._signer.is_active else ""
        self._snapshots.write(body, through=through, code=code, fence=self._writing_lease())
        self.snapshot_bytes = len(body)

    def _sign_kept_again(self) -> None:
        """Before the first entry of a token: what earlier ones signed is believed from then on with this one's code only."""
        for name in (*SNAPSHOTS, ACCEPTED):
            register = self._store.get(name)
            with contextlib.suppress(Forged):
                if register is not None:
                    message, token = self._signer.verify_kept(name, register.payload)
                    if token < self._token:
                        payload = self._signer.sign(name, message)
                        self._store.put(name, payload, fence=self._writing_lease())

    def latest_snapshot(self, *, at_most: int | None = None) -> Snapshot:
        """Return the newest snapshot that verifies; entries after its `through` are still to be applied.

        `at_most`: skip those that contain later entries than this one.
        """
        # Read before the snapshots: they are signed again before the first entry of a newer token. Doubt helps no attacker.
        newest = self._token_of(self.last())
        newest = self._signer.number if newest is None else newest
        found = self._snapshots.newest(at_most=at_most, least_token=newest)
        self.snapshot_bytes = found.bytes
        if found.state is not None:
            made_by = self._token_of(found.through)
            made_by = found.token if made_by is None else made_by
            self._chain.start_after(found.through, found.code.encode(), made_by)
        return found

    def _writing_lease(self) -> Lease:
        if self._lease is None:
            raise PermanentError("this journal was opened for reading; writing needs the lease")
        return self._lease
