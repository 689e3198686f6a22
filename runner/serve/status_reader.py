"""What the supervisor published: the register `view`, read by everybody who only looks."""

from __future__ import annotations

import time
from dataclasses import dataclass

from runner.errors import PermanentError, WireError
from runner.facts import wire
from runner.facts.messages.cluster_status import ClusterStatus, StandbyStatus
from runner.facts.store_names import LEASE, STANDBY_PREFIX, STATUS
from runner.store.protocol import MAX_LARGE_BYTES, Store

# Without a word for so long, a standby counts as gone; it speaks about once a second; chosen, not measured.
STANDBY_GONE_SECONDS = 10.0


def read_status(store: Store) -> ClusterStatus | None:
    """Return the View; None when there is none (yet, or since the machine was restarted)."""
    register = store.get(STATUS)
    return None if register is None else decode_status(register.payload)


def decode_status(payload: bytes) -> ClusterStatus:
    """Decode the register; raise PermanentError when it holds something else."""
    try:
        view = wire.decode(payload, limit_bytes=MAX_LARGE_BYTES)
    except WireError as error:
        raise PermanentError(f"the register {STATUS!r} cannot be read: {error}") from error
    if not isinstance(view, ClusterStatus):
        raise PermanentError(f"the register {STATUS!r} holds a {type(view).__name__}, not a View")
    return view


def read_standbys(store: Store, *, wall: float) -> list[StandbyStatus]:
    """Return the supervisors that stand by, by name, without those not heard for a while at `wall` (seconds since the epoch)."""
    standbys = []
    for register in store.registers(STANDBY_PREFIX).values():
        try:
            found = wire.decode(register.payload)
        except WireError:
            # not written by a standby of ours: nothing depends on it
            continue
        if isinstance(found, StandbyStatus) and abs(wall - found.wall) < STANDBY_GONE_SECONDS:
            standbys.append(found)
    return standbys


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatus:
    """What the store itself tells beside the View: true now, however old the View is."""

    # rises with every supervisor
    lease_token: int = 0
    # 0: it ran out; None: nobody holds it
    lease_left_seconds: float | None = None
    num_standbys: int = 0
    # entries in the store
    journal_stored: int = 0
    # entries in files
    journal_archived: int = 0


def read_store_status(store: Store) -> StoreStatus:
    """Ask the store who leads, who stands by, and how long the journal is."""
    # whoever only reads the View does without it
    from runner.journal.journal import Journal

    lease, journal = store.lease_holder(LEASE), Journal(store)
    return StoreStatus(
        lease_token=0 if lease is None else lease.token,
        lease_left_seconds=None if lease is None else lease.expires_in_seconds,
        num_standbys=len(read_standbys(store, wall=time.time())),
        journal_stored=journal.last() + 1 - journal.first_stored(),
        journal_archived=journal.index().last,
    )
