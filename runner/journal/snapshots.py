"""Snapshots: two registers written in turn, each with its hash, so that one good snapshot always remains."""

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

from runner.errors import StoreCorrupt, WireError
from runner.facts import wire
from runner.facts.store_names import SNAPSHOTS
from runner.facts.wire import Value
from runner.signer import UNSIGNED, Signer
from runner.store.protocol import Store


class SnapshotSeal(Value, kind="snapshot_seal"):
    """The first line of a snapshot's register; the second is the state's message, as of entry `through`."""

    through: int
    bytes: int
    sha256: str
    # Of entry `through` in the chain; "" in a journal without codes.
    code: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Where recovery starts: `state` as of entry `through`; None and 0 stand for an empty journal.

    `refused`: the reason for each snapshot that did not verify.
    """

    state: object | None = None
    through: int = 0
    refused: tuple[str, ...] = ()


class GoodSnapshot(NamedTuple):
    """A snapshot whose hash is right."""

    register: str
    seal: SnapshotSeal
    body: bytes
    # The number of the token that signed it.
    token: int


def good_snapshots(store: Store, signer: Signer = UNSIGNED) -> tuple[list[GoodSnapshot], list[str]]:
    """Return the snapshots whose hash and signature are right, newest first, and why others were refused."""
    good, refused = [], []
    for name in SNAPSHOTS:
        try:
            register = store.get(name)
            if register is not None:
                good.append(_opened(name, *signer.verify_kept(name, register.payload)))
        except (WireError, StoreCorrupt) as error:
            refused.append(f"{name} does not verify: {error}")
    return sorted(good, key=lambda each: each.seal.through, reverse=True), refused


def _opened(register: str, payload: bytes, token: int) -> GoodSnapshot:
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
    return GoodSnapshot(register=register, seal=seal, body=body, token=token)


def sha256(data: bytes) -> str:
    """Return the hash of seals and high-water marks."""
    return hashlib.sha256(data).hexdigest()
