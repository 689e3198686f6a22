"""Readers of what supervisors publish: the cluster's status, standbys, and the store's own status."""

import time
from dataclasses import dataclass

from runner.errors import PermanentError, WireError
from runner.facts import wire
from runner.facts.messages.cluster_status import CheckStatus, ClusterStatus, StandbyStatus
from runner.facts.store_names import CHECK_STATUS, LEASE, STANDBY_PREFIX, STATUS
from runner.signer import UNSIGNED, Signer
from runner.store.protocol import MAX_LARGE_BYTES, Store

# Standbys announce themselves every second. Chosen, not measured.
STANDBY_GONE_SECONDS = 10.0


def read_status(store: Store, signer: Signer = UNSIGNED) -> ClusterStatus | None:
    """Return the published status; None if there is none (not yet, or the machine was restarted).

    Raises Forged unless a holder of the cluster's token wrote it.
    """
    register = store.get(STATUS)
    return None if register is None else decode_status(register.payload, signer)


def decode_status(payload: bytes, signer: Signer = UNSIGNED) -> ClusterStatus:
    """Decode the register; raise Forged, and PermanentError when it holds something else."""
    message = signer.verify(STATUS, payload)
    try:
        status = wire.decode(message, limit_bytes=MAX_LARGE_BYTES)
    except WireError as error:
        raise PermanentError(f"the register {STATUS!r} cannot be read: {error}") from error
    if not isinstance(status, ClusterStatus):
        raise PermanentError(
            f"the register {STATUS!r} holds a {type(status).__name__}, not a status"
        )
    return status


def read_check_status(store: Store, signer: Signer = UNSIGNED) -> CheckStatus | None:
    """Return the last results of all nodes' checks; None where no supervisor of this release has led. Raises as `read_status`."""
    payload = read_check_payload(store, signer)
    return None if payload is None else decode_check_status(payload)


def read_check_payload(store: Store, signer: Signer = UNSIGNED) -> bytes | None:
    """Return them as they are published, for those who know whether they changed; raise Forged."""
    register = store.get(CHECK_STATUS)
    return None if register is None else signer.verify(CHECK_STATUS, register.payload)


def decode_check_status(payload: bytes) -> CheckStatus:
    """Decode what `read_check_payload` returned; raise PermanentError when it is something else."""
    try:
        found = wire.decode(payload, limit_bytes=MAX_LARGE_BYTES)
    except WireError as error:
        raise PermanentError(f"the register {CHECK_STATUS!r} cannot be read: {error}") from error
    if not isinstance(found, CheckStatus):
        raise PermanentError(
            f"the register {CHECK_STATUS!r} holds a {type(found).__name__}, not results of checks"
        )
    return found


def read_standbys(store: Store, *, wall: float) -> list[StandbyStatus]:
    """Return the standby supervisors, by name, that announced themselves shortly before `wall` (seconds since 1970)."""
    standbys = []
    for register in store.registers(STANDBY_PREFIX).values():
        try:
            found = wire.decode(register.payload)
        except WireError:
            # Not written by a standby; nothing depends on it.
            continue
        if isinstance(found, StandbyStatus) and abs(wall - found.wall) < STANDBY_GONE_SECONDS:
            standbys.append(found)
    return standbys


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStatus:
    """What the store itself knows now, however old the cluster's status is.

    `lease_token` rises with every supervisor; `lease_left_seconds` is None for a free lease; journal
    entries are counted in the store and in files. `read_seconds`: how long the store took
    for the status and these; None: not measured.
    """

    lease_token: int = 0
    lease_left_seconds: float | None = None
    num_standbys: int = 0
    journal_stored: int = 0
    journal_archived: int = 0
    read_seconds: float | None = None


def read_store_status(store: Store) -> StoreStatus:
    """Read lease, standbys and length of the journal from the store."""
    # Readers of the status alone do not import it.
    from runner.journal.journal import Journal

    lease, journal = store.lease_holder(LEASE), Journal(store)
    return StoreStatus(
        lease_token=0 if lease is None else lease.token,
        lease_left_seconds=None if lease is None else lease.expires_in_seconds,
        num_standbys=len(read_standbys(store, wall=time.time())),
        journal_stored=journal.last() + 1 - journal.first_stored(),
        journal_archived=journal.index().last,
    )
