"""Snapshots: two registers written in turn, each with a seal, so that one good snapshot always remains.

What is too large for one register is written in parts: registers of their own, and the seal after the last of them. The seal's hash
covers them all, so a set that is torn, or of two snapshots, is refused. The seal of the snapshot in whose place the parts go is
deleted before the first. A crash between any two steps needs no repair: the other snapshot is good, and the next one begins here
again.
"""

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from runner.errors import PermanentError, StoreCorrupt, WireError
from runner.facts import wire
from runner.facts.store_names import SNAPSHOTS, snapshot_part
from runner.facts.wire import Value
from runner.signer import SIGNATURE_BYTES, UNSIGNED, Signer
from runner.store.protocol import MAX_LARGE_BYTES, Lease, Register, Store

# Of a register with a part; a snapshot that fits into one is not divided. Parts and looks are chosen, not measured.
PART_BYTES = MAX_LARGE_BYTES
MAX_PARTS = 64
MAX_SNAPSHOT_BYTES = MAX_PARTS * MAX_LARGE_BYTES
# A reader whose snapshot is replaced while it reads the parts begins again this often.
_LOOKS = 3


class SnapshotSeal(Value, kind="snapshot_seal"):
    """The first line of a snapshot's register; the rest is the state's message, as of entry `through`, or in `parts` registers."""

    through: int
    bytes: int
    sha256: str
    # Of entry `through` in the chain; "" in a journal without codes.
    code: str = ""
    parts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Where recovery starts: `state` as of entry `through`; None and 0 stand for an empty journal.

    `code`: of entry `through`. `token`: the number of the token that signed it. `refused`: the reason for each snapshot that did
    not verify.
    """

    state: object | None = None
    through: int = 0
    bytes: int = 0
    code: str = ""
    token: int = 0
    refused: tuple[str, ...] = ()


class GoodSnapshot(NamedTuple):
    """A snapshot whose hash is right."""

    register: str
    seal: SnapshotSeal
    body: bytes
    # The number of the token that signed it.
    token: int


class Snapshots:
    """The two snapshots of a store's journal."""

    def __init__(self, store: Store, signer: Signer = UNSIGNED) -> None:
        self._store, self._signer = store, signer

    def good(self) -> tuple[list[GoodSnapshot], list[str]]:
        """Return the snapshots whose hash and signature are right, newest first, and why others were refused."""
        good, refused = [], []
        for name in SNAPSHOTS:
            try:
                found = self._read(name)
            except (WireError, StoreCorrupt) as error:
                refused.append(f"{name} does not verify: {error}")
            else:
                good += [found] if found is not None else []
        return sorted(good, key=lambda each: each.seal.through, reverse=True), refused

    def newest(self, *, at_most: int | None, least_token: int) -> Snapshot:
        """Return the newest that can be read, contains no entry after `at_most`, and is signed with this token or a newer one."""
        good, refused = self.good()
        for register, seal, body, token in good:
            if at_most is not None and seal.through > at_most:
                continue
            if token < least_token:
                refused.append(f"{register} is signed with an earlier token than the newest entry")
                continue
            try:
                state = wire.decode(body, limit_bytes=MAX_SNAPSHOT_BYTES)
            except WireError as error:
                refused.append(f"{register} cannot be read: {error}")
                continue
            return Snapshot(
                state=state,
                through=seal.through,
                bytes=seal.bytes,
                code=seal.code,
                token=token,
                refused=tuple(refused),
            )
        return Snapshot(refused=tuple(refused))

    def write(self, body: bytes, *, through: int, code: str, fence: Lease) -> None:
        """Write a state's message as of entry `through`, whose code is given; the newest good snapshot stays until it is whole.

        After StoreUnavailable, write the same snapshot again.
        """
        good, _ = self.good()
        newest = good[0] if good else None
        seal = SnapshotSeal(through=through, bytes=len(body), sha256=sha256(body), code=code)
        payload = wire.encode(seal) + b"\n" + body
        if len(payload) + SIGNATURE_BYTES > PART_BYTES:
            seal = replace(seal, parts=_num_parts(body))
            payload = wire.encode(seal)
        if newest is not None and newest.seal.through == through:
            # the same one, repeated
            name = newest.register
        else:
            name = next(name for name in SNAPSHOTS if newest is None or name != newest.register)
        # Parts that are in their places already stay: the snapshot is good all the time.
        if newest is None or newest.seal != seal:
            self._put_parts(name, body, seal.parts, fence)
        self._store.put(name, self._signer.sign(name, payload), fence=fence)
        self._delete_parts(name, seal.parts, fence)

    def delete(self, name: str, fence: Lease) -> None:
        """Remove a snapshot."""
        self._store.delete(name, fence=fence)
        self._delete_parts(name, 0, fence)

    def _put_parts(self, name: str, body: bytes, num_parts: int, fence: Lease) -> None:
        if num_parts:
            self._store.delete(name, fence=fence)
        for number in range(1, num_parts + 1):
            part = body[(number - 1) * PART_BYTES : number * PART_BYTES]
            self._store.put(snapshot_part(name, number), part, fence=fence)

    def _delete_parts(self, name: str, kept: int, fence: Lease) -> None:
        """Remove the parts after that number, of an earlier snapshot; the last one first, so that a crash leaves no gap."""
        last = kept
        while self._store.get(snapshot_part(name, last + 1)) is not None:
            last += 1
        for number in range(last, kept, -1):
            self._store.delete(snapshot_part(name, number), fence=fence)

    def _read(self, name: str) -> GoodSnapshot | None:
        """Return a snapshot, None if there is none; raise WireError or StoreCorrupt if it is not the one sealed."""
        register = self._store.get(name)
        for _ in range(_LOOKS):
            if register is None:
                return None
            try:
                return self._opened(name, register)
            except (WireError, StoreCorrupt):
                after = self._store.get(name)
                if after is not None and after.version == register.version:
                    raise
                register = after
        raise StoreCorrupt(f"it was replaced {_LOOKS} times while it was read; read it again")

    def _opened(self, name: str, register: Register) -> GoodSnapshot:
        payload, token = self._signer.verify_kept(name, register.payload)
        head, _, body = payload.partition(b"\n")
        seal = wire.decode(head)
        if not isinstance(seal, SnapshotSeal):
            raise WireError(f"its first line is a {type(seal).__name__}, not a seal")
        if seal.parts:
            body = self._joined(name, seal.parts)
        found = sha256(body)
        if found != seal.sha256:
            raise WireError(
                f"{len(body)} bytes with sha256 {found[:16]}, sealed were {seal.bytes} with {seal.sha256[:16]}"
            )
        return GoodSnapshot(register=name, seal=seal, body=body, token=token)

    def _joined(self, name: str, num_parts: int) -> bytes:
        if not 0 < num_parts <= MAX_PARTS:
            raise WireError(f"its seal names {num_parts} parts; a snapshot has at most {MAX_PARTS}")
        parts = []
        for number in range(1, num_parts + 1):
            register = self._store.get(snapshot_part(name, number))
            if register is None:
                raise WireError(f"part {number} of {num_parts} is missing")
            parts.append(register.payload)
        return b"".join(parts)


def _num_parts(body: bytes) -> int:
    """Return how many registers a state's message needs; raise PermanentError if that is too many."""
    if len(body) > MAX_PARTS * PART_BYTES:
        raise PermanentError(
            f"a snapshot of {len(body)} bytes; at most {MAX_PARTS * PART_BYTES} are written: retire nodes that are gone, or "
            "divide the cluster"
        )
    return -(-len(body) // PART_BYTES)


def sha256(data: bytes) -> str:
    """Return the hash of seals and high-water marks."""
    return hashlib.sha256(data).hexdigest()
