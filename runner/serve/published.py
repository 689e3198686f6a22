"""What the supervisor published: the register `view`, read by everybody who only looks."""

from __future__ import annotations

from runner.errors import PermanentError, WireError
from runner.facts import wire
from runner.facts.view import StandbyView, View
from runner.store.store import MAX_LARGE_BYTES, Store

VIEW = "view"
STANDBY = "view.standby."  # and who stands by
# Without a word for so long, a standby counts as gone; it speaks about once a second; chosen, not measured.
STANDBY_GONE_SECONDS = 10.0


def read_view(store: Store) -> View | None:
    """Return the View; None when there is none (yet, or since the machine was restarted)."""
    register = store.get(VIEW)
    return None if register is None else decode_view(register.payload)


def decode_view(payload: bytes) -> View:
    """Decode the register; raise PermanentError when it holds something else."""
    try:
        view = wire.decode(payload, limit_bytes=MAX_LARGE_BYTES)
    except WireError as error:
        raise PermanentError(f"the register {VIEW!r} cannot be read: {error}") from error
    if not isinstance(view, View):
        raise PermanentError(f"the register {VIEW!r} holds a {type(view).__name__}, not a View")
    return view


def read_standbys(store: Store, *, wall: float) -> list[StandbyView]:
    """Return the supervisors that stand by, by name, without those not heard for a while at `wall` (seconds since the epoch)."""
    standbys = []
    for register in store.registers(STANDBY).values():
        try:
            found = wire.decode(register.payload)
        except WireError:
            continue  # not written by a standby of ours: nothing depends on it
        if isinstance(found, StandbyView) and abs(wall - found.wall) < STANDBY_GONE_SECONDS:
            standbys.append(found)
    return standbys
