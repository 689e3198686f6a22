"""The journal: what the controller was told and what it decided, one entry per turn, and snapshots of its state.

Entry N is item N of the stream `journal`, one wire message. Since an entry is appended at its own number, sending it again
after a lost acknowledgment cannot double it. Snapshots take turns in two registers, each with its hash, so that there is one
to fall back on; entries are trimmed only as far as the older of the two.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from runner.errors import PermanentError, StoreCorrupt, WireError
from runner.facts import wire
from runner.facts.records import JournalEntry
from runner.store.store import JOURNAL, MAX_LARGE_BYTES, Item, Lease, Store

SNAPSHOTS = ("journal.snapshot.0", "journal.snapshot.1")


@wire.message("snapshot_seal")
@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSeal:
    """The first line of a snapshot's register; the state's message follows on the second."""

    through: int  # number of the last entry that the state contains
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Where recovery starts: `state` as it was after entry `through`; None and 0 stand for the very beginning.

    `refused`: why each snapshot that did not verify was passed over.
    """

    state: object | None = None
    through: int = 0
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    register: str
    seal: SnapshotSeal
    body: bytes


class Journal:
    """The journal of a store. With a lease, appends and snapshots are fenced by it; without, it can only be read."""

    def __init__(self, store: Store, lease: Lease | None = None) -> None:
        self._store = store
        self._lease = lease

    def append(self, entry: JournalEntry) -> None:
        """Make an entry durable.

        After StoreUnavailable, append the same entry again: it is written once. Raises Fenced when another supervisor
        took over, StoreCorrupt when the entry's number holds another entry or does not follow the last.
        """
        self._store.append(
            JOURNAL, wire.encode(entry), fence=self._writing_lease(), at=entry.sequence
        )

    def last(self) -> int:
        """Return the number of the newest entry; 0 if there is none."""
        return self._store.last(JOURNAL)

    def replay(self, from_number: int = 1) -> Iterator[JournalEntry]:
        """Yield all entries from that number on, in order; raise StoreCorrupt at the first that is missing or unreadable."""
        number = from_number - 1
        if number > self.last():
            raise StoreCorrupt(
                f"the journal ends at entry {self.last()}, yet entry {number} was written once: the store lost entries; "
                f"put back a newer copy"
            )
        while batch := self._store.read(streams={JOURNAL: number}, registers={}, timeout_seconds=0):
            for item in batch.items[JOURNAL]:
                number += 1
                if item.number != number:
                    raise StoreCorrupt(
                        f"journal entry {number} is missing, {item.number} follows; it was trimmed or lost"
                    )
                yield decode_entry(item)

    def write_snapshot(self, state: object, through: int) -> None:
        """Keep `state`, a registered message, as it is after entry `through`, beside the newest good snapshot.

        After StoreUnavailable, write the same snapshot again.
        """
        body = wire.encode(state)
        sha256 = hashlib.sha256(body).hexdigest()
        seal = SnapshotSeal(through=through, bytes=len(body), sha256=sha256)
        kept, _ = self._kept()
        register = SNAPSHOTS[0]
        if kept and kept[0].seal.through == through:
            register = kept[0].register  # the same one, sent again
        elif kept:
            register = next(name for name in SNAPSHOTS if name != kept[0].register)
        self._store.put(register, wire.encode(seal) + b"\n" + body, fence=self._writing_lease())

    def latest_snapshot(self) -> Snapshot:
        """Return the newest snapshot that verifies; entries after its `through` are still to be applied."""
        kept, refused = self._kept()
        for candidate in kept:
            try:
                state = wire.decode(candidate.body, limit_bytes=MAX_LARGE_BYTES)
            except WireError as error:
                refused.append(f"{candidate.register} cannot be read: {error}")
                continue
            return Snapshot(state=state, through=candidate.seal.through, refused=tuple(refused))
        return Snapshot(refused=tuple(refused))

    def trim(self) -> int:
        """Forget the entries that both snapshots contain; return the last one's number, 0 with less than two snapshots."""
        kept, _ = self._kept()
        if len(kept) < len(SNAPSHOTS):
            return 0
        through = kept[-1].seal.through
        self._store.trim(JOURNAL, through, fence=self._writing_lease())
        return through

    def _kept(self) -> tuple[list[_Kept], list[str]]:
        """Return the snapshots whose hash is right, newest first, and why others were refused."""
        kept, refused = [], []
        for name in SNAPSHOTS:
            try:
                register = self._store.get(name)
                if register is not None:
                    kept.append(_opened(name, register.payload))
            except (WireError, StoreCorrupt) as error:
                refused.append(f"{name} does not verify: {error}")
        return sorted(kept, key=lambda each: each.seal.through, reverse=True), refused

    def _writing_lease(self) -> Lease:
        if self._lease is None:
            raise PermanentError("this journal was opened to be read; writing needs the lease")
        return self._lease


def decode_entry(item: Item) -> JournalEntry:
    """Decode an item of the stream `journal`; raise StoreCorrupt if it is not the entry with that number."""
    try:
        entry = wire.decode(item.payload, limit_bytes=MAX_LARGE_BYTES)
    except WireError as error:
        raise StoreCorrupt(f"journal entry {item.number} cannot be read: {error}") from error
    if not isinstance(entry, JournalEntry):
        raise StoreCorrupt(f"journal entry {item.number} is a {type(entry).__name__}, not an entry")
    if entry.sequence != item.number:
        raise StoreCorrupt(f"journal entry {item.number} says it is entry {entry.sequence}")
    return entry


def _opened(register: str, payload: bytes) -> _Kept:
    """Check a snapshot's seal; raise WireError if it is not the one written."""
    head, _, body = payload.partition(b"\n")
    seal = wire.decode(head)
    if not isinstance(seal, SnapshotSeal):
        raise WireError(f"its first line is a {type(seal).__name__}, not a seal")
    sha256 = hashlib.sha256(body).hexdigest()
    if sha256 != seal.sha256:
        raise WireError(
            f"{len(body)} bytes with sha256 {sha256[:16]}, sealed were {seal.bytes} with {seal.sha256[:16]}"
        )
    return _Kept(register=register, seal=seal, body=body)
