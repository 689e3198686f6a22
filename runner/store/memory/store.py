"""A store in memory, shared by the threads of one process, that fails on demand.

A `MemoryStore` is one handle, and plays one process: after a Crash it is dead, and every later call on it raises Crash again.
`another()` opens a further handle on the same contents, as the process that is started next would.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from runner.errors import PermanentError, StoreUnavailable
from runner.store import protocol
from runner.store.memory.faults import Crash, Faults, StoreFault
from runner.store.protocol import (
    Batch,
    Cursors,
    Item,
    Lease,
    LeaseHeld,
    LeaseHolder,
    Register,
    Store,
)


@dataclass(slots=True)
class _Stream:
    trimmed: int = 0
    payloads: list[bytes] = field(default_factory=list)

    @property
    def last(self) -> int:
        return self.trimmed + len(self.payloads)


@dataclass(slots=True)
class _LeaseRow:
    holder: str | None = None
    token: int = 0
    expires_seconds: float = 0.0


@dataclass(slots=True)
class _Contents:
    """What all handles share; `changed` guards it."""

    streams: dict[str, _Stream] = field(default_factory=dict)
    registers: dict[str, Register] = field(default_factory=dict)
    leases: dict[str, _LeaseRow] = field(default_factory=dict)
    version: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)


class MemoryStore(Store):
    """One handle on a store in memory. See `Store` for what the methods promise.

    `faults`: what goes wrong, counted over the operations that change something. `clock`: the time that leases run by.
    """

    def __init__(
        self,
        *,
        faults: Faults | None = None,
        clock: protocol.Clock = time.monotonic,
        contents: _Contents | None = None,
    ) -> None:
        self.faults = faults or Faults()
        self._clock = clock
        self._contents = contents or _Contents()
        self._is_dead = False
        self._is_down = False
        self._is_closed = False
        self._num_wakes = 0
        self._local = threading.local()

    def another(self, *, faults: Faults | None = None) -> "MemoryStore":
        """Open a further handle on the same contents: another process, or the next start of this one."""
        return MemoryStore(faults=faults, clock=self._clock, contents=self._contents)

    def go_down(self) -> None:
        """Be unavailable from now on, also for blocked readers of this handle."""
        with self._contents.changed:
            self._is_down = True
            self._contents.changed.notify_all()

    def come_back(self) -> None:
        """Be available again; nothing was lost."""
        with self._contents.changed:
            self._is_down = False

    def _append(
        self, stream: str, payloads: Sequence[bytes], fence: Lease | None, at: int | None
    ) -> int:
        method = "append" if len(payloads) == 1 else "append_many"
        with self._changing(method, stream, fence) as contents:
            rows = contents.streams.setdefault(stream, _Stream())
            if at is not None and at != rows.last + 1:
                begin, end = at - rows.trimmed - 1, at + len(payloads) - 1
                there = rows.payloads[max(begin, 0) : begin + len(payloads)]
                if not rows.trimmed < at <= end <= rows.last or there != [*payloads]:
                    raise protocol.append_refused(stream, at, last=rows.last, trimmed=rows.trimmed)
                return end
            _extend(stream, rows, payloads)
            return rows.last

    def trim(self, stream: str, through: int, *, fence: Lease | None = None) -> None:
        with self._changing("trim", stream, fence) as contents:
            _cut(contents.streams.setdefault(stream, _Stream()), through)

    def last(self, stream: str) -> int:
        with self._reading() as contents:
            return contents.streams.get(stream, _Stream()).last

    def put(self, name: str, payload: bytes, *, fence: Lease | None = None) -> int:
        values = {name: payload}
        return self._put(values, protocol.check_values(values), fence, method="put")

    def _put(
        self,
        values: Mapping[str, bytes],
        is_volatile: bool,
        fence: Lease | None,
        *,
        method: str = "put_many",
    ) -> int:
        with self._changing(method, ",".join(values), fence) as contents:
            for name, payload in values.items():
                contents.version += 1
                contents.registers[name] = Register(contents.version, payload)
            return contents.version

    def get(self, name: str) -> Register | None:
        with self._reading() as contents:
            return contents.registers.get(name)

    def registers(self, prefix: str) -> dict[str, Register]:
        with self._reading() as contents:
            found = sorted(contents.registers.items())
        return {name: register for name, register in found if name.startswith(prefix)}

    def delete(self, name: str, *, fence: Lease | None = None) -> None:
        with self._changing("delete", name, fence) as contents:
            contents.registers.pop(name, None)

    def _read(self, wanted: Cursors, timeout_seconds: float) -> Batch:
        deadline = time.monotonic() + timeout_seconds
        with self._reading() as contents:
            while True:
                batch = _poll(contents, wanted)
                left_seconds = deadline - time.monotonic()
                if batch or left_seconds <= 0 or self._has_been_woken():
                    return batch
                contents.changed.wait(min(left_seconds, threading.TIMEOUT_MAX))
                if self._is_closed:
                    return Batch()
                self._check_usable()

    def wake(self) -> None:
        with self._contents.changed:
            self._num_wakes += 1
            self._contents.changed.notify_all()

    def _acquire(self, wanted: Lease) -> Lease:
        with self._changing("acquire_lease", wanted.name) as contents:
            row = contents.leases.setdefault(wanted.name, _LeaseRow())
            left_seconds = row.expires_seconds - self._clock()
            if row.holder and row.holder != wanted.holder and left_seconds > 0:
                raise LeaseHeld(wanted.name, row.holder, expires_in_seconds=left_seconds)
            row.holder, row.token = wanted.holder, row.token + 1
            row.expires_seconds = self._clock() + wanted.ttl_seconds
            return replace(wanted, token=row.token)

    def renew(self, lease: Lease) -> None:
        with self._changing("renew", lease.name, lease) as contents:
            contents.leases[lease.name].expires_seconds = self._clock() + lease.ttl_seconds

    def release(self, lease: Lease) -> None:
        with self._changing("release", lease.name) as contents:
            row = contents.leases.get(lease.name, _LeaseRow())
            if (row.holder, row.token) == (lease.holder, lease.token):
                row.holder = None

    def lease_holder(self, name: str) -> LeaseHolder | None:
        with self._reading() as contents:
            row = contents.leases.get(name, _LeaseRow())
            if row.holder is None:
                return None
            left_seconds = max(row.expires_seconds - self._clock(), 0.0)
            return LeaseHolder(holder=row.holder, token=row.token, expires_in_seconds=left_seconds)

    def break_lease(self, name: str, holder: str) -> bool:
        with self._changing("break_lease", name) as contents:
            row = contents.leases.get(name, _LeaseRow())
            if row.holder != holder:
                return False
            row.holder = None
            return True

    def close(self) -> None:
        with self._contents.changed:
            self._is_closed = True
            self._contents.changed.notify_all()

    @contextmanager
    def _reading(self) -> Iterator[_Contents]:
        with self._contents.changed:
            self._check_usable()
            yield self._contents

    @contextmanager
    def _changing(self, method: str, name: str, fence: Lease | None = None) -> Iterator[_Contents]:
        """Run the block as one operation, with the fault that the plan has for it."""
        with self._contents.changed:
            self._check_usable()
            fault = self.faults.next(method, name)
            if fault is StoreFault.CRASH_BEFORE:
                self._die(f"before {method} {name!r}")
            if fault is StoreFault.REFUSE:
                raise StoreUnavailable(f"the store did not answer {method} {name!r}; try again")
            _check_fence(self._contents, fence)
            yield self._contents
            self._contents.changed.notify_all()
            if fault is StoreFault.CRASH_AFTER:
                self._die(f"after {method} {name!r}")
            if fault is StoreFault.LOSE:
                raise StoreUnavailable(f"the answer to {method} {name!r} was lost; try again")

    def _check_usable(self) -> None:
        if self._is_dead:
            raise Crash("this process is dead")
        if self._is_closed:
            raise PermanentError("this handle on the store in memory is closed; open another")
        if self._is_down:
            raise StoreUnavailable("the store in memory is set to be down; bring it up")

    def _die(self, where: str) -> None:
        self._is_dead = True
        self._contents.changed.notify_all()
        raise Crash(where)

    def _has_been_woken(self) -> bool:
        seen = getattr(self._local, "num_wakes_seen", 0)
        self._local.num_wakes_seen = self._num_wakes
        return bool(seen != self._num_wakes)


def _check_fence(contents: _Contents, fence: Lease | None) -> None:
    if fence is None:
        return
    row = contents.leases.get(fence.name, _LeaseRow())
    if (row.holder, row.token) != (fence.holder, fence.token):
        raise protocol.lease_lost(fence, holder=row.holder, token=row.token)


def _extend(stream: str, rows: _Stream, payloads: Sequence[bytes]) -> None:
    before = rows.last
    rows.payloads.extend(payloads)
    if (
        protocol.is_volatile_stream(stream)
        and rows.last // protocol.VOLATILE_SLACK > before // protocol.VOLATILE_SLACK
    ):
        _cut(rows, rows.last - protocol.VOLATILE_KEEP)


def _cut(rows: _Stream, through: int) -> None:
    through = min(through, rows.last)
    if through > rows.trimmed:
        del rows.payloads[: through - rows.trimmed]
        rows.trimmed = through


def _poll(contents: _Contents, wanted: Cursors) -> Batch:
    items = {}
    room_bytes = protocol.MAX_BATCH_BYTES
    for name, number in wanted.streams.items():
        found = []
        rows = contents.streams.get(name, _Stream())
        if not protocol.is_volatile_stream(name):
            protocol.check_watermark(f"stream {name!r}", number=rows.last, watermark=number)
        # A volatile stream that ends before its reader's cursor was restarted.
        start = max(number - rows.trimmed, 0) if number <= rows.last else 0
        for index in range(start, min(len(rows.payloads), start + wanted.limit)):
            found.append(Item(rows.trimmed + index + 1, rows.payloads[index]))
            room_bytes -= len(rows.payloads[index])
            if room_bytes <= 0:
                break
        if found:
            items[name] = tuple(found)
    values = {
        name: contents.registers[name]
        for name, version in wanted.registers.items()
        if name in contents.registers and contents.registers[name].version > version
    }
    return Batch(items=items, registers=values)
