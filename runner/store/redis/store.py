"""The store of a cluster: one Redis server that all its machines reach, for any number of processes and threads.

Everything of a cluster has keys that begin with `stoker:<cluster>:`; what they hold is told in `redis_scripts`. What is volatile
has keys of the server's present life, since a server that was started anew may bring old ones back. What was acknowledged is on
the server's disk only if the server is set up so (deploy/redis.conf). Nobody follows a failover: a replica may lack what was
acknowledged, the last journal entry and the lease's token included.

One file, though a long one: each method of the seam is some keys and arguments for its script, and they are read side by side.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from runner.errors import PermanentError, StoreCorrupt, StoreUnavailable
from runner.facts.specs.cluster import ClusterSpec, StoreSpec
from runner.facts.wire import MAX_MESSAGE_BYTES
from runner.store.examination import StoreCheck
from runner.store.protocol import (
    JOURNAL,
    MAX_BATCH_BYTES,
    MAX_LARGE_BYTES,
    READ_LIMIT,
    VOLATILE_KEEP,
    VOLATILE_SLACK,
    Batch,
    Clock,
    Item,
    Lease,
    LeaseHeld,
    LeaseHolder,
    Register,
    check_name,
    check_payloads,
    check_still_there,
    check_values,
    is_volatile_register,
    is_volatile_stream,
    lost,
    not_the_same,
)
from runner.store.redis import scripts as scripts
from runner.store.redis.access import Server
from runner.store.redis.checks import examine_server
from runner.store.redis.connection import Link, Names
from runner.store.redis.durability import check_durability
from runner.store.redis.entries import field_of, follow_each_other, items_of, register_of
from runner.store.redis.handshake import Handshake, NeverStarted
from runner.store.redis.keys import Keys, keys_of
from runner.store.redis.thread_connection import RedisThreadConnection
from runner.store.watermarks import Watermarks

# how long the server may be silent in a call; chosen
DEADLINE_SECONDS = 1.0
# a blocked read looks at everything anew this often; chosen
SLICE_SECONDS = 5.0
# what is volatile goes when nobody wrote it for so long; chosen
VOLATILE_SECONDS = 24 * 3600.0
# numbers of what is volatile begin anew in each life of the server, above all before
_LIFE_BITS = 32


class RedisStore:
    """A handle on the store of `cluster`. See `Store` for what the methods promise.

    `create`: make what is missing; without it, a server that holds nothing of the cluster raises UserError. A server that
    is out of reach does not keep a handle from being opened: its calls raise StoreUnavailable until it is there.
    `clock`: the time that leases run by, for tests; by default the server's own.
    """

    def __init__(
        self,
        spec: StoreSpec,
        cluster: str,
        *,
        deadline_seconds: float = DEADLINE_SECONDS,
        clock: Clock | None = None,
        create: bool = True,
    ) -> None:
        self.server = Server(spec)
        self.cluster = cluster
        self._deadline_seconds = deadline_seconds
        self._clock = clock
        self._keys = keys_of(cluster)
        self._names = Names()
        self._welcome = Handshake(str(self.server), cluster, create=create)
        self._seen = Watermarks()
        self._num_wakes = 0
        self._is_opening = True
        self._is_closed = False
        self._local = threading.local()
        # Replaced, never changed, so that `wake` may be called from a signal handler and takes no lock.
        self._seats: tuple[weakref.ref[RedisThreadConnection], ...] = ()
        self._seats_lock = threading.Lock()
        with suppress(StoreUnavailable), self._seat():
            # the first call says what is wrong; an agent goes on with its ranks until the server is back
            pass
        self._is_opening = False

    @classmethod
    def of_cluster(cls, cluster: ClusterSpec, *, create: bool) -> RedisStore:
        """Open the store on the cluster's server; see `BackEnd.of_cluster`."""
        return cls(cluster.store, cluster.name, create=create)

    @classmethod
    def exists(cls, cluster: ClusterSpec) -> bool:
        """Ask the server for the cluster; see `BackEnd.exists`."""
        try:
            cls.of_cluster(cluster, create=False).close()
        except NeverStarted:
            return False
        return True

    def __str__(self) -> str:
        """Name the server."""
        return str(self.server)

    def __repr__(self) -> str:
        """Name server and cluster, and nothing that is secret."""
        return f"RedisStore({self.server.spec.address!r}, {self.cluster!r})"

    # ---- streams

    def append(
        self, stream: str, payload: bytes, *, fence: Lease | None = None, at: int | None = None
    ) -> int:
        """Append one payload; see `Store.append`."""
        return self._append(stream, (payload,), fence=fence, at=at)

    def append_many(
        self,
        stream: str,
        payloads: Sequence[bytes],
        *,
        fence: Lease | None = None,
        at: int | None = None,
    ) -> int:
        """Append all payloads or none; see `Store.append_many`."""
        return self._append(stream, payloads, fence=fence, at=at if payloads else None)

    def _append(
        self, stream: str, payloads: Sequence[bytes], *, fence: Lease | None, at: int | None
    ) -> int:
        check_payloads(check_name(stream), payloads)
        volatile = is_volatile_stream(stream)
        # A volatile stream may be gone after a day of silence, and then begins anew.
        seen = 0 if volatile else self._seen.end(stream)
        limit_bytes = MAX_LARGE_BYTES if stream == JOURNAL else MAX_MESSAGE_BYTES
        entries = [word for payload in payloads for word in (field_of(payload), payload)]
        with self._seat() as seat:
            keys = self._keys_of(seat, volatile)
            said = seat.run(
                scripts.APPEND,
                (keys.stream(stream), keys.trims, self._keys.lease(fence)),
                *(stream, at or 0, seen, limit_bytes, _base(seat) if volatile else ""),
                *(*_fence(fence), VOLATILE_KEEP, VOLATILE_SLACK, _milliseconds(VOLATILE_SECONDS)),
                *entries,
            )
        if said[0] == b"differs":
            raise not_the_same(stream, at or 0, last=said[1], trimmed=int(said[2]))
        _check(said, fence, f"stream {stream!r}", seen=seen)
        number = int(said[1])
        if not volatile:
            self._seen.saw_end(stream, number)
        return number

    def trim(self, stream: str, through: int, *, fence: Lease | None = None) -> None:
        """Forget old items; see `Store.trim`."""
        volatile = is_volatile_stream(stream)
        with self._seat() as seat:
            keys = self._keys_of(seat, volatile)
            said = seat.run(
                scripts.TRIM,
                (keys.stream(stream), keys.trims, self._keys.lease(fence)),
                *(stream, through, int(volatile), *_fence(fence)),
            )
        _check(said, fence, f"stream {stream!r}")

    def last(self, stream: str) -> int:
        """Return the number of the newest item; see `Store.last`."""
        with self._seat() as seat:
            return self._look(seat, {stream: 0}, {}, limit=0)[1][stream]

    # ---- registers

    def put(self, name: str, payload: bytes, *, fence: Lease | None = None) -> int:
        """Set a register; see `Store.put`."""
        return self.put_many({name: payload}, fence=fence)

    def put_many(self, values: Mapping[str, bytes], *, fence: Lease | None = None) -> int:
        """Set all registers or none; see `Store.put_many`."""
        volatile = check_values(values)
        seen = self._seen.version(volatile)
        entries = [word for name in values for word in (name, field_of(values[name]), values[name])]
        with self._seat() as seat:
            keys = self._keys_of(seat, volatile)
            base = _base(seat) if volatile else 0
            said = seat.run(
                scripts.PUT,
                (keys.meta, keys.names, self._keys.lease(fence), *map(keys.register, values)),
                *(0 if seen <= base else seen, base, int(volatile), *_fence(fence)),
                *(MAX_LARGE_BYTES, _milliseconds(VOLATILE_SECONDS), *entries),
            )
        _check(said, fence, "the count of register versions", seen=seen)
        version = int(said[1])
        self._seen.saw_version(volatile, version)
        return version

    def get(self, name: str) -> Register | None:
        """Return a register; see `Store.get`."""
        with self._seat() as seat:
            return self._look(seat, {}, {name: 0}, limit=0)[0].registers.get(name)

    def registers(self, prefix: str) -> dict[str, Register]:
        """Return the registers whose name starts with `prefix`; see `Store.registers`."""
        found: dict[str, Register] = {}
        with self._seat() as seat:
            for volatile in (False, True):
                seen = self._seen.version(volatile)
                keys = self._keys_of(seat, volatile)
                _, version, rows = seat.run(
                    scripts.LIST, (keys.meta, keys.names), prefix, keys.register("")
                )
                self._check_version(seat, int(version), volatile=volatile, seen=seen)
                for name, entry in rows:
                    found[name.decode()] = register_of(name.decode(), entry)
        return dict(sorted(found.items()))

    def delete(self, name: str, *, fence: Lease | None = None) -> None:
        """Remove a register; see `Store.delete`."""
        volatile = is_volatile_register(name)
        with self._seat() as seat:
            keys = self._keys_of(seat, volatile)
            said = seat.run(
                scripts.DELETE,
                (keys.names, self._keys.lease(fence), keys.register(name)),
                *(name, int(volatile), *_fence(fence)),
            )
        _check(said, fence, f"register {name!r}")

    # ---- reading

    def read(
        self,
        *,
        streams: Mapping[str, int],
        registers: Mapping[str, int],
        timeout_seconds: float,
        limit: int = READ_LIMIT,
    ) -> Batch:
        """Block until something named is new; see `Store.read`."""
        until = time.monotonic() + timeout_seconds
        while True:
            with self._seat() as seat:
                batch, after = Batch(), dict(streams)
                # From ends that this connection knows on, waiting brings all that is new.
                if timeout_seconds <= 0 or not seat.knows(streams):
                    batch, ends = self._look(seat, streams, registers, limit=limit)
                    after = {name: min(number, ends[name]) for name, number in streams.items()}
                left_seconds = min(until - time.monotonic(), SLICE_SECONDS)
                if batch or left_seconds <= 0 or seat.has_been_woken(lambda: self._num_wakes):
                    return batch
                self._begin_wait(seat, after, registers, seconds=left_seconds, limit=limit)
                seat.is_waiting = True
            has_rung, batch = self._wait(seat, after, registers, seconds=left_seconds)
            if batch or self._is_closed:
                return batch
            # Not by way of the server, which may be out of reach.
            if has_rung and seat.has_been_woken(lambda: self._num_wakes):
                return batch

    def forget(self) -> None:
        """Believe the store as it is from now on; see `Store.forget`."""
        self._seen.forget()
        self._welcome.forget()
        for seat in self._own_seats():
            seat.known = None

    def wake(self) -> None:
        """End blocked reads of this handle; see `Store.wake`."""
        self._num_wakes += 1
        for seat in self._own_seats():
            seat.ring()

    def _begin_wait(
        self,
        seat: RedisThreadConnection,
        streams: Mapping[str, int],
        registers: Mapping[str, int],
        *,
        seconds: float,
        limit: int,
    ) -> None:
        limit_bytes = MAX_LARGE_BYTES if JOURNAL in streams else MAX_MESSAGE_BYTES
        keys = [self._keys_of(seat, is_volatile_stream(n)).stream(n) for n in streams]
        keys += [self._keys_of(seat, is_volatile_register(n)).register(n) for n in registers]
        numbers = (*streams.values(), *registers.values())
        seat.ask_to_wait(
            (
                *("XREAD", "COUNT", min(limit, MAX_BATCH_BYTES // limit_bytes)),
                *("BLOCK", max(_milliseconds(seconds), 1), "STREAMS"),
                # Nothing to wait for but a wake-up: a key that nobody writes.
                *(keys or [self._keys.stream("")]),
                *([f"{number}-18446744073709551615" for number in numbers] or ["0-0"]),
            )
        )

    def _wait(
        self,
        seat: RedisThreadConnection,
        streams: Mapping[str, int],
        registers: Mapping[str, int],
        *,
        seconds: float,
    ) -> tuple[bool, Batch]:
        """Return whether the bell ended the wait, and what came of it; nothing when `_look` had better look."""
        try:
            has_rung, said = seat.wait(seconds, deadline_seconds=self._deadline_seconds)
        finally:
            with seat.lock:
                seat.is_waiting = False
                if self._is_closed:
                    seat.hang_up()
        entries = dict(said or ())
        rows = {
            name: entries.get(self._keys_of(seat, is_volatile_stream(name)).stream(name).encode())
            for name in streams
        }
        if not entries or not all(
            follow_each_other(rows[name] or (), after) for name, after in streams.items()
        ):
            seat.known = None
            return has_rung, Batch()
        items = {
            name: items_of(name, found, start=streams[name])
            for name, found in rows.items()
            if found
        }
        values: dict[str, Register] = {}
        for name in registers:
            keys = self._keys_of(seat, is_volatile_register(name))
            if found := entries.get(keys.register(name).encode()):
                values[name] = register_of(name, found[-1])
        self._remember(seat, streams, items)
        return has_rung, Batch(items=items, registers=values)

    def _look(
        self,
        seat: RedisThreadConnection,
        streams: Mapping[str, int],
        registers: Mapping[str, int],
        *,
        limit: int,
    ) -> tuple[Batch, dict[str, int]]:
        """Return what is new, and where each stream ends; check that nothing seen before is missing."""
        seen_versions = {volatile: self._seen.version(volatile) for volatile in (False, True)}
        seen = {name: self._seen.end(name) for name in streams}
        volatile_keys = self._keys_of(seat, True)
        keys = [self._keys.meta, volatile_keys.meta, self._keys.trims]
        keys += [self._keys_of(seat, is_volatile_stream(n)).stream(n) for n in streams]
        keys += [self._keys_of(seat, is_volatile_register(n)).register(n) for n in registers]
        cursors: list[str | int] = []
        for name, after in streams.items():
            cursors += ("" if is_volatile_stream(name) else name, after)
        _, versions, found, values = seat.run(
            scripts.LOOK,
            keys,
            *(len(streams), limit, MAX_BATCH_BYTES, *cursors, *registers.values()),
        )
        for volatile, version in zip((False, True), versions, strict=True):
            self._check_version(seat, int(version), volatile=volatile, seen=seen_versions[volatile])
        items: dict[str, tuple[Item, ...]] = {}
        ends: dict[str, int] = {}
        for (name, after), (last, trimmed, entries) in zip(streams.items(), found, strict=True):
            ends[name] = last
            if is_volatile_stream(name):
                some = items_of(name, entries, start=None)
            else:
                check_still_there(f"stream {name!r}", found=last, seen=max(seen[name], after))
                some = items_of(name, entries, start=max(after, trimmed))
                if not some and limit > 0 and last > max(after, trimmed):
                    raise StoreCorrupt(
                        f"stream {name!r}: items {max(after, trimmed) + 1} to {last} are missing; put back a copy"
                    )
                if not some or limit == 0:
                    self._seen.saw_end(name, last)
            if some:
                items[name] = some
        if limit > 0:
            self._remember(seat, {n: a for n, a in streams.items() if a <= ends[n]}, items)
        newer = {
            name: register_of(name, rows[0])
            for name, rows in zip(registers, values, strict=True)
            if rows
        }
        return Batch(items=items, registers=newer), ends

    def _remember(
        self,
        seat: RedisThreadConnection,
        streams: Mapping[str, int],
        items: Mapping[str, tuple[Item, ...]],
    ) -> None:
        """Keep in mind how far each stream was read, by this handle and by this connection."""
        if seat.known is None:
            seat.known = {}
        for name, after in streams.items():
            number = items[name][-1].number if name in items else after
            seat.known[name] = number
            if not is_volatile_stream(name):
                self._seen.saw_end(name, number)

    def _check_version(
        self, seat: RedisThreadConnection, version: int, *, volatile: bool, seen: int
    ) -> None:
        found = max(version, _base(seat)) if volatile else version
        check_still_there("the count of register versions", found=found, seen=seen)
        self._seen.saw_version(volatile, version)

    # ---- leases

    def acquire_lease(self, name: str, holder: str, *, ttl_seconds: float) -> Lease:
        """Take a lease; see `Store.acquire_lease`."""
        check_name(name)
        check_name(holder)
        with self._seat() as seat:
            said = seat.run(
                scripts.ACQUIRE,
                (self._keys.lease(name), self._keys.meta),
                *(holder, _microseconds(ttl_seconds), self._now()),
            )
        if said[0] == b"held":
            raise LeaseHeld(name, said[1].decode(), expires_in_seconds=said[2] / 1e6)
        return Lease(name=name, holder=holder, token=said[1], ttl_seconds=ttl_seconds)

    def renew(self, lease: Lease) -> None:
        """Hold the lease for longer; see `Store.renew`."""
        with self._seat() as seat:
            said = seat.run(
                scripts.RENEW,
                (self._keys.lease(lease), self._keys.meta),
                *(*_fence(lease), _microseconds(lease.ttl_seconds), self._now()),
            )
        _check(said, lease, f"lease {lease.name!r}")

    def release(self, lease: Lease) -> None:
        """Give the lease back; see `Store.release`."""
        with self._seat() as seat:
            seat.run(scripts.FREE, (self._keys.lease(lease),), *_fence(lease))

    def lease_holder(self, name: str) -> LeaseHolder | None:
        """Return who holds the lease; see `Store.lease_holder`."""
        with self._seat() as seat:
            said = seat.run(scripts.HOLDER, (self._keys.lease(name), self._keys.meta), self._now())
        if len(said) == 1:
            return None
        return LeaseHolder(
            holder=said[1].decode(), token=int(said[2]), expires_in_seconds=said[3] / 1e6
        )

    def break_lease(self, name: str, holder: str) -> bool:
        """Take the lease away from a dead holder; see `Store.break_lease`."""
        with self._seat() as seat:
            return bool(seat.run(scripts.FREE, (self._keys.lease(name),), holder, "")[1])

    def _now(self) -> str:
        return "" if self._clock is None else str(_microseconds(self._clock()))

    # ---- the handle

    def command(self, *words: bytes | str | int) -> Any:
        """Ask the server something of itself, for who looks after it; the reply may be a Refused."""
        with self._seat() as seat:
            return seat.command(*words)

    def examine(self) -> Iterator[StoreCheck]:
        """Check the server; see `Store.examine`."""
        return examine_server(self)

    def durability(self) -> tuple[StoreCheck, ...]:
        """Check the server's settings; see `Store.durability`."""
        return check_durability(self)

    def close(self) -> None:
        """Let go of everything; see `Store.close`."""
        self._is_closed = True
        self.wake()
        for seat in self._own_seats():
            with seat.lock:
                # else its thread does so on the way out
                if not seat.is_waiting:
                    seat.hang_up()

    @contextmanager
    def _seat(self) -> Iterator[RedisThreadConnection]:
        """Give the calling thread a seat of its own that is connected, locked against `close` from another thread."""
        seat: RedisThreadConnection | None = getattr(self._local, "seat", None)
        if seat is None or seat.process != os.getpid():
            # referred to, since forgetting would close it
            self._local.left_to_parent = seat
            seat = RedisThreadConnection(self._connected, self._meaning)
            self._local.seat = seat
            with self._seats_lock:
                alive = (ref for ref in self._seats if ref() is not None)
                self._seats = (*alive, weakref.ref(seat))
        with seat.lock:
            if self._is_closed:
                raise PermanentError(f"{self.server}: this handle is closed; open another")
            seat.ready()
            yield seat

    def _connected(self) -> tuple[Link, int]:
        link = self.server.connect(self._names, timeout_seconds=self._deadline_seconds)
        try:
            return link, self._welcome.enter(link, self._keys)
        except BaseException:
            link.close()
            raise

    def _meaning(self, error: Exception) -> Exception:
        is_known = self._welcome.life > 0
        return self.server.meaning(error, is_opening=self._is_opening, is_known=is_known)

    def _keys_of(self, seat: RedisThreadConnection, volatile: bool) -> Keys:
        return self._keys.of_life(seat.life) if volatile else self._keys

    def _own_seats(self) -> list[RedisThreadConnection]:
        seats = [ref() for ref in self._seats]
        return [seat for seat in seats if seat is not None and seat.process == os.getpid()]


def _fence(lease: Lease | None) -> tuple[str, str]:
    return ("", "") if lease is None else (lease.holder, str(lease.token))


def _check(said: Sequence[Any], fence: Lease | None, what: str, *, seen: int = 0) -> None:
    """Raise what a script's answer means, unless it is `done`."""
    if said[0] == b"fenced":
        assert fence is not None
        raise lost(fence, holder=said[1].decode() or None, token=int(said[2]))
    if said[0] == b"less":
        check_still_there(what, found=said[1], seen=seen)
    if said[0] == b"large":
        raise PermanentError(f"{what}: payload of {said[1]} bytes is more than the store takes")
    if said[0] == b"full":
        raise StoreCorrupt(
            f"{what} ends at {said[1]}: somebody else wrote there, and no number is left; put back a copy"
        )


def _base(seat: RedisThreadConnection) -> int:
    """Return the number below all that is volatile in the server's present life."""
    return (seat.life - 1) << _LIFE_BITS


def _microseconds(seconds: float) -> int:
    return round(seconds * 1e6)


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)
