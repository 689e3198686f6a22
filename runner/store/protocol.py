"""The store as its users see it: the protocol, its value types, its limits and the checks every store shares.

`StoreUnavailable` from a write means "not acknowledged", not "not done": the caller sends again what is safe to send twice
(a put, an append with `at`, a trim, an acquisition by the same holder). The deadline behind it bounds waiting for other
users; a disk that hangs inside one fsync hangs its caller, which the supervisor's own silence makes visible.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from runner.errors import Fenced, PermanentError, StoreCorrupt, StoreRolledBack, TemporaryError
from runner.facts.store_names import HEARTBEATS, JOURNAL, STATUS
from runner.facts.wire import MAX_MESSAGE_BYTES
from runner.store.examination import StoreCheck

# All limits here are chosen, not measured. This one is of a journal entry or a register.
MAX_LARGE_BYTES = 16 * 1024 * 1024
# payload of one read, so that a backlog cannot fill the memory
MAX_BATCH_BYTES = 32 * 1024 * 1024
MAX_NAME_BYTES = 200
# items of one stream in one read
READ_LIMIT = 1000
# A volatile stream keeps at least this many newest items without a reader to trim it,
# and is trimmed each time it has grown by VOLATILE_SLACK more.
VOLATILE_KEEP = 20_000
VOLATILE_SLACK = 1_000

Clock = Callable[[], float]


class LeaseHeld(TemporaryError):
    """Another holder has the lease, for `expires_in_seconds` more unless it is renewed."""

    def __init__(self, name: str, holder: str, *, expires_in_seconds: float) -> None:
        super().__init__(
            f"lease {name!r} is held by {holder!r} for another {expires_in_seconds:.1f} s; "
            f"stop that process, or wait until the lease has expired",
            delay_seconds=max(expires_in_seconds, 0.05),
        )
        self.holder = holder
        self.expires_in_seconds = expires_in_seconds


class LeaseRolledBack(Fenced, StoreRolledBack):
    """The lease's token is lower than an earlier one: the store was rolled back."""


# A struct, not a dataclass: a take-over may read a million.
class Item(Struct, frozen=True, gc=False):
    """One payload of a stream. `number` counts from 1 and has no gaps."""

    number: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Register:
    """A register's value. Versions of one register rise, in steps of any size, also across a delete."""

    version: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Cursors:
    """What a read asks for: items of streams past a number, at most `limit` of each, and registers above a version."""

    streams: Mapping[str, int]
    registers: Mapping[str, int]
    limit: int = READ_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The result of a read, by name; names without news are absent. False when it is empty."""

    items: Mapping[str, tuple[Item, ...]] = field(default_factory=dict)
    registers: Mapping[str, Register] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.items or self.registers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """An acquired lease: pass it as `fence`. It is valid until another holder acquires it, however late it is renewed."""

    name: str
    holder: str
    token: int
    ttl_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseHolder:
    """The holder of a lease. `expires_in_seconds` is 0 once it has expired, until another holder acquires it."""

    holder: str
    token: int
    expires_in_seconds: float


class Store(Protocol):
    """A handle on streams, registers and leases, for all threads of a process.

    Every call may raise StoreUnavailable or StoreCorrupt. Every write that takes `fence` raises Fenced, and changes
    nothing, unless that lease is still the current one. A back end derives from it and defines what has no body here.
    """

    def append(
        self, stream: str, payload: bytes, *, fence: Lease | None = None, at: int | None = None
    ) -> int:
        """Append one payload and return its number, once it is durable.

        With `at`, the payload gets that number or none: if it is there already, the append counts as done (an
        acknowledgment was lost); another payload there, or a missing one before it, raises StoreCorrupt. A payload over
        the limit raises PermanentError.
        """
        return self.append_many(stream, (payload,), fence=fence, at=at)

    def append_many(
        self,
        stream: str,
        payloads: Sequence[bytes],
        *,
        fence: Lease | None = None,
        at: int | None = None,
    ) -> int:
        """Append all payloads or none, in one step; return the number of the stream's last item.

        With `at`, they get that number and those after it, or none, as in `append`; returned is the number of the last one.
        """
        check_payloads(check_name(stream), payloads)
        return self._append(stream, payloads, fence, at if payloads else None)

    def _append(
        self, stream: str, payloads: Sequence[bytes], fence: Lease | None, at: int | None
    ) -> int: ...

    def trim(self, stream: str, through: int, *, fence: Lease | None = None) -> None:
        """Drop the items up to and including number `through`; numbers are never used again."""

    def last(self, stream: str) -> int:
        """Return the number of the newest item ever appended; 0 if there was none."""

    def put(self, name: str, payload: bytes, *, fence: Lease | None = None) -> int:
        """Set a register and return its new version."""
        return self.put_many({name: payload}, fence=fence)

    def put_many(self, values: Mapping[str, bytes], *, fence: Lease | None = None) -> int:
        """Set all these registers or none, in one step; return the newest version of any register.

        Either all of them are volatile or none is.
        """
        return self._put(values, check_values(values), fence)

    def _put(self, values: Mapping[str, bytes], is_volatile: bool, fence: Lease | None) -> int: ...

    def get(self, name: str) -> Register | None:
        """Return a register, or None when it was never put or is deleted."""

    def registers(self, prefix: str) -> dict[str, Register]:
        """Return all registers whose name starts with `prefix`, sorted by name."""

    def delete(self, name: str, *, fence: Lease | None = None) -> None:
        """Remove a register; no reader is woken. A later put has a higher version than any before."""

    def read(
        self,
        *,
        streams: Mapping[str, int],
        registers: Mapping[str, int],
        timeout_seconds: float,
        limit: int = READ_LIMIT,
    ) -> Batch:
        """Block until a stream has items past the number given, or a register a version above the one given.

        Returns at most `limit` items of each stream, oldest first, and at most about MAX_BATCH_BYTES in all, but at least
        one item of each stream that has any: read again from the last number. After trimming, the first item may be
        later than asked for. Empty at the time-out, after `wake`, and after `close`. A number past a stream's end raises
        StoreRolledBack for a durable stream; a volatile one is read from its new beginning.
        """
        return self._read(Cursors(streams, registers, limit), timeout_seconds)

    def _read(self, wanted: Cursors, timeout_seconds: float) -> Batch: ...

    def accept_rollback(self) -> None:
        """Accept the store as it is now, below this handle's watermarks.

        For agents, which reject stale assignments by their generation. A supervisor leaves this decision to a person.
        """
        return

    def wake(self) -> None:
        """End the blocked reads of this handle; a thread that does not block has its next wait ended instead."""

    def acquire_lease(self, name: str, holder: str, *, ttl_seconds: float) -> Lease:
        """Acquire a lease that is free, has expired, or is held by this very `holder`; raise LeaseHeld otherwise.

        `holder` names one instance of one process. The token rises by one each time. The clock is the store's. Files: the machine's
        boot clock, which setting the wall clock does not move; the lease expires when the machine restarts. Redis: the server's
        wall clock; set back, it prolongs the lease by at most its time to live, set forward, it ends it early; a restart of the
        server grants the holder its time to live again. In all cases the token fences.
        """
        check_name(holder)
        wanted = Lease(name=check_name(name), holder=holder, token=0, ttl_seconds=ttl_seconds)
        return self._acquire(wanted)

    def _acquire(self, wanted: Lease) -> Lease:
        """Return the lease with its token."""

    def renew(self, lease: Lease) -> None:
        """Hold the lease for another `ttl_seconds` from now; raise Fenced if another holder has it."""

    def release(self, lease: Lease) -> None:
        """Free the lease at once; no effect if another holder has it."""

    def lease_holder(self, name: str) -> LeaseHolder | None:
        """Return who holds the lease; None if it is free."""

    def break_lease(self, name: str, holder: str) -> bool:
        """Free the lease of `holder`, which is known to be dead; False if it did not hold it."""

    def examine(self) -> Iterator[StoreCheck]:
        """Check this back end's server or files for `stoker store doctor`; the check `reach` comes first."""
        return iter(())

    def durability(self) -> tuple[StoreCheck, ...]:
        """Check the settings that decide whether acknowledged writes are lost; empty where none does."""
        return ()

    def close(self) -> None:
        """Close files and sockets and end blocked reads; later calls on this handle raise PermanentError."""


def seconds_since_boot() -> float:
    """Read the clock leases run by: the same in all processes of a machine, unmoved by settings of the wall clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    """Return the kernel's id of the current boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def is_volatile_stream(stream: str) -> bool:
    """Return whether the stream may be lost with the machine and costs no fsync."""
    return stream.startswith(HEARTBEATS)


def is_volatile_register(name: str) -> bool:
    """Return whether the register may be lost with the machine and costs no fsync."""
    return name.startswith(STATUS)


def check_name(name: str) -> str:
    """Return the name; raise PermanentError if no store accepts it."""
    if not name.isprintable() or not 0 < len(name.encode()) <= MAX_NAME_BYTES:
        raise PermanentError(
            f"{name[:80]!r} cannot be a name in the store; use 1 to {MAX_NAME_BYTES} bytes that can be printed"
        )
    return name


def limit_bytes_of(stream: str) -> int:
    """Return how large one payload of the stream may be."""
    return MAX_LARGE_BYTES if stream == JOURNAL else MAX_MESSAGE_BYTES


def check_payloads(stream: str, payloads: Iterable[bytes]) -> None:
    """Raise PermanentError for a payload too large for its stream."""
    limit_bytes = limit_bytes_of(stream)
    for payload in payloads:
        if len(payload) > limit_bytes:
            raise _too_large(f"stream {stream!r}", payload, limit_bytes, "send")


def _too_large(what: str, payload: bytes, limit_bytes: int, verb: str) -> PermanentError:
    return PermanentError(
        f"{what}: payload of {len(payload)} bytes, at most {limit_bytes} are allowed; "
        f"write it to a file and {verb} its path and hash"
    )


def check_watermark(quantity: str, *, number: int, watermark: int) -> None:
    """Raise StoreRolledBack if a number that only rises is below the highest one seen."""
    if number < watermark:
        raise StoreRolledBack(
            f"{quantity} ends at {number}, but {watermark} was seen before: the store came back with less than it acknowledged; "
            f"was an old copy put in its place?"
        )


def check_values(values: Mapping[str, bytes]) -> bool:
    """Return whether these registers are volatile; raise PermanentError for a mixture, bad names or large payloads."""
    for name, payload in values.items():
        check_name(name)
        if len(payload) > MAX_LARGE_BYTES:
            raise _too_large(f"register {name!r}", payload, MAX_LARGE_BYTES, "put")
    kinds = {is_volatile_register(name) for name in values}
    if len(kinds) > 1:
        raise PermanentError(
            f"registers {', '.join(sorted(values)[:8])}: some are volatile, some durable; put them in two steps"
        )
    return True in kinds


def append_refused(stream: str, at: int, *, last: int, trimmed: int) -> StoreCorrupt:
    """Return the error of an append `at` a number that can neither be done nor count as done."""
    if at > last:
        reason = f"it ends at {last}: items before this one are missing"
    elif at <= trimmed:
        reason = f"it was trimmed through {trimmed}"
    else:
        reason = "another payload has that number"
    kind = StoreRolledBack if at > last else StoreCorrupt
    return kind(f"stream {stream!r} cannot take item {at}: {reason}; read the stream again")


def lease_lost(lease: Lease, *, holder: str | None, token: int) -> Fenced:
    """Return the error of a lease that another holder has; a lower token means that the store was rolled back."""
    text = (
        f"lease {lease.name!r}, token {lease.token} of {lease.holder!r}, was lost: the token is {token} now, "
        f"held by {holder or 'no process'}; stop acting"
    )
    return LeaseRolledBack(text) if token < lease.token else Fenced(text)
