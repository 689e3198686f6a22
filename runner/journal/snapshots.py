"""Snapshots: two registers written in turn, each with its hash, so that one good snapshot always remains."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from runner.errors import StoreCorrupt, WireError
from runner.facts import wire
from runner.facts.store_names import SNAPSHOTS
from runner.facts.wire import Value
from runner.store.protocol import MAX_LARGE_BYTES, Store


class SnapshotSeal(Value, kind="snapshot_seal"):
    """The first line of a snapshot's register; the state's message follows on the second."""

    # number of the last entry that the state contains
    through: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Where recovery starts: `state` as of entry `through`; None and 0 stand for an empty journal.

    `refused`: the reason for each snapshot that did not verify.
    """

    state: object | None = None
    through: int = 0
    # of the encoded state
    bytes: int = 0
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodSnapshot:
    """A snapshot whose hash is right."""

    register: str
    seal: SnapshotSeal
    body: bytes


def sealed(body: bytes, through: int) -> bytes:
    """Return a register's payload: the seal, and the encoded state as of entry `through`."""
    seal = SnapshotSeal(through=through, bytes=len(body), sha256=sha256(body))
    return wire.encode(seal) + b"\n" + body


def register_for(good: list[GoodSnapshot], through: int) -> str:
    """Return the register of the next snapshot: not that of the newest good one, unless it is the same one, repeated."""
    if not good:
        return SNAPSHOTS[0]
    if good[0].seal.through == through:
        return good[0].register
    return next(name for name in SNAPSHOTS if name != good[0].register)


def good_snapshots(store: Store) -> tuple[list[GoodSnapshot], list[str]]:
    """Return the snapshots whose hash is right, newest first, and why others were refused."""
    good, refused = [], []
    for name in SNAPSHOTS:
        try:
            register = store.get(name)
            if register is not None:
                good.append(_opened(name, register.payload))
        except (WireError, StoreCorrupt) as error:
            refused.append(f"{name} does not verify: {error}")
    return sorted(good, key=lambda each: each.seal.through, reverse=True), refused


def latest_snapshot(store: Store, *, at_most: int | None = None) -> Snapshot:
    """Return the newest snapshot that verifies and can be read; of those through entry `at_most`, where that is given."""
    good, refused = good_snapshots(store)
    for candidate in good:
        if at_most is not None and candidate.seal.through > at_most:
            continue
        try:
            state = wire.decode(candidate.body, limit_bytes=MAX_LARGE_BYTES)
        except WireError as error:
            refused.append(f"{candidate.register} cannot be read: {error}")
            continue
        return Snapshot(
            state=state,
            through=candidate.seal.through,
            bytes=candidate.seal.bytes,
            refused=tuple(refused),
        )
    return Snapshot(refused=tuple(refused))


def _opened(register: str, payload: bytes) -> GoodSnapshot:
    """Check a snapshot's seal; raise WireError if it is not the one written."""
    head, _, body = payload.partition(b"\n")
    seal = wire.decode(head)
    if not isinstance(seal, SnapshotSeal):
        raise WireError(f"its first line is a {type(seal).__name__}, not a seal")
    found = sha256(body)
    if found != seal.sha256:
        raise WireError(
            f"{len(body)} bytes with sha256 {found[:16]}, sealed were {seal.bytes} with {seal.sha256[:16]}"
        )
    return GoodSnapshot(register=register, seal=seal, body=body)


def sha256(data: bytes) -> str:
    """Return the hash of seals and high-water marks."""
    return hashlib.sha256(data).hexdigest()
