"""The store of a cluster: one Redis server that all its machines reach, for any number of processes and threads.

All keys of a cluster begin with `stoker:<cluster>:`; `scripts` describes them. Volatile keys belong to one instance of the server,
since a restarted server may bring old ones back. Acknowledged writes are on the server's disk only with the settings of
deploy/redis.conf. No handle follows a failover: a replica may lack acknowledged writes, the last journal entry and the
lease's token included.

A long file, because each method is keys and arguments for its script, and they are read side by side.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from runner.errors import PermanentError, StoreCorrupt, StoreUnavailable
from runner.facts.specs.cluster import ClusterSpec, StoreSpec
from runner.facts.store_names import JOURNAL
from runner.facts.wire import MAX_MESSAGE_BYTES
from runner.store.examination import StoreCheck
from runner.store.protocol import (
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
    append_refused,
    check_name,
    check_payloads,
    check_values,
    check_watermark,
    is_volatile_register,
    is_volatile_stream,
    lease_lost,
)
from runner.store.redis import scripts as scripts
from runner.store.redis.access import RedisAddress
from runner.store.redis.checks import examine_server
from runner.store.redis.connection import HostResolver, ServerConnection
from runner.store.redis.durability import check_durability
from runner.store.redis.entries import field_of, follow_each_other, items_of, register_of
from runner.store.redis.handshake import Handshake, NeverStarted
from runner.store.redis.keys import Keys, keys_of
from runner.store.redis.thread_connection import RedisThreadConnection
from runner.store.thread_connections import ThreadConnections
from runner.store.watermarks import Watermarks

# how long the server may be silent in a call; chosen
DEADLINE_SECONDS = 1.0
# a blocked read polls all names this often; chosen
SLICE_SECONDS = 5.0
# a volatile key expires this long after its last write; chosen
VOLATILE_SECONDS = 24 * 3600.0
# In each instance of the server, volatile numbers start above all earlier ones.
_INSTANCE_ID_BITS = 32


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
        self.server = RedisAddress(spec)
        self.cluster = cluster
        self._deadline_seconds = deadline_seconds
        self._clock = clock
        self._keys = keys_of(cluster)
        self._resolver = HostResolver()
        self._handshake = Handshake(str(self.server), cluster, create=create)
        self._watermarks = Watermarks()
        self._num_wakes = 0
        self._is_opening = True
        self._is_closed = False
        self._connections = ThreadConnections(
            lambda: RedisThreadConnection(self._connect, self._translate)
        )
        with suppress(StoreUnavailable), self._connection():
            # The first call raises it; an agent runs its ranks until the server is back.
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
        """Name server and cluster, and no secret."""
        return f"RedisStore({self.server.spec.address!r}, {self.cluster!r})"

    # ---- streams

    def append(
        self, stream: str, payload: bytes, *, fence: Lease | None = None, at: int | None = None
    ) -> int:
        return self._append(stream, (payload,), fence=fence, at=at)

    def append_many(
        self,
        stream: str,
        payloads: Sequence[bytes],
        *,
        fence: Lease | None = None,
        at: int | None = None,
    ) -> int:
        return self._append(stream, payloads, fence=fence, at=at if payloads else None)

    def _append(
        self, stream: str, payloads: Sequence[bytes], *, fence: Lease | None, at: int | None
    ) -> int:
        check_payloads(check_name(stream), payloads)
        volatile = is_volatile_stream(stream)
        # A volatile stream expires after a day without writes, and then restarts.
        seen = 0 if volatile else self._watermarks.end(stream)
        limit_bytes = MAX_LARGE_BYTES if stream == JOURNAL else MAX_MESSAGE_BYTES
        entries = [word for payload in payloads for word in (field_of(payload), payload)]
        with self._connection() as connection:
            keys = self._keys_of(connection, volatile)
            reply = connection.run(
                scripts.APPEND,
                (keys.stream(stream), keys.trims, self._keys.lease(fence)),
                *(stream, at or 0, seen, limit_bytes, _base(connection) if volatile else ""),
                *(*_fence(fence), VOLATILE_KEEP, VOLATILE_SLACK, _milliseconds(VOLATILE_SECONDS)),
                *entries,
            )
        if reply[0] == b"differs":
            raise append_refused(stream, at or 0, last=reply[1], trimmed=int(reply[2]))
        _check(reply, fence, f"stream {stream!r}", seen=seen)
        number = int(reply[1])
        if not volatile:
            self._watermarks.advance_end(stream, number)
        return number

    def trim(self, stream: str, through: int, *, fence: Lease | None = None) -> None:
        volatile = is_volatile_stream(stream)
        with self._connection() as connection:
            keys = self._keys_of(connection, volatile)
            reply = connection.run(
                scripts.TRIM,
                (keys.stream(stream), keys.trims, self._keys.lease(fence)),
                *(stream, through, int(volatile), *_fence(fence)),
            )
        _check(reply, fence, f"stream {stream!r}")

    def last(self, stream: str) -> int:
        with self._connection() as connection:
            return self._poll(connection, {stream: 0}, {}, limit=0)[1][stream]

    # ---- registers

    def put(self, name: str, payload: bytes, *, fence: Lease | None = None) -> int:
        return self.put_many({name: payload}, fence=fence)

    def put_many(self, values: Mapping[str, bytes], *, fence: Lease | None = None) -> int:
        volatile = check_values(values)
        seen = self._watermarks.version(volatile)
        entries = [word for name in values for word in (name, field_of(values[name]), values[name])]
        with self._connection() as connection:
            keys = self._keys_of(connection, volatile)
            base = _base(connection) if volatile else 0
            reply = connection.run(
                scripts.PUT,
                (keys.meta, keys.names, self._keys.lease(fence), *map(keys.register, values)),
                *(0 if seen <= base else seen, base, int(volatile), *_fence(fence)),
                *(MAX_LARGE_BYTES, _milliseconds(VOLATILE_SECONDS), *entries),
            )
        _check(reply, fence, "the count of register versions", seen=seen)
        version = int(reply[1])
        self._watermarks.advance_version(volatile, version)
        return version

    def get(self, name: str) -> Register | None:
        with self._connection() as connection:
            return self._poll(connection, {}, {name: 0}, limit=0)[0].registers.get(name)

    def registers(self, prefix: str) -> dict[str, Register]:
        found: dict[str, Register] = {}
        with self._connection() as connection:
            for volatile in (False, True):
                seen = self._watermarks.version(volatile)
                keys = self._keys_of(connection, volatile)
                _, version, rows = connection.run(
                    scripts.LIST, (keys.meta, keys.names), prefix, keys.register("")
                )
                self._check_version(connection, int(version), volatile=volatile, seen=seen)
                for name, entry in rows:
                    found[name.decode()] = register_of(name.decode(), entry)
        return dict(sorted(found.items()))

    def delete(self, name: str, *, fence: Lease | None = None) -> None:
        volatile = is_volatile_register(name)
        with self._connection() as connection:
            keys = self._keys_of(connection, volatile)
            reply = connection.run(
                scripts.DELETE,
                (keys.names, self._keys.lease(fence), keys.register(name)),
                *(name, int(volatile), *_fence(fence)),
            )
        _check(reply, fence, f"register {name!r}")

    # ---- reading

    def read(
        self,
        *,
        streams: Mapping[str, int],
        registers: Mapping[str, int],
        timeout_seconds: float,
        limit: int = READ_LIMIT,
    ) -> Batch:
        until = time.monotonic() + timeout_seconds
        while True:
            with self._connection() as connection:
                batch, after = Batch(), dict(streams)
                # Past cursors that this connection has read to, waiting brings every new item.
                if timeout_seconds <= 0 or not connection.knows(streams):
                    batch, ends = self._poll(connection, streams, registers, limit=limit)
                    after = {name: min(number, ends[name]) for name, number in streams.items()}
                left_seconds = min(until - time.monotonic(), SLICE_SECONDS)
                if batch or left_seconds <= 0 or connection.has_been_woken(lambda: self._num_wakes):
                    return batch
                self._begin_wait(connection, after, registers, seconds=left_seconds, limit=limit)
                connection.is_waiting = True
            is_woken, batch = self._wait(connection, after, registers, seconds=left_seconds)
            if batch or self._is_closed:
                return batch
            # Without asking the server, which may be out of reach.
            if is_woken and connection.has_been_woken(lambda: self._num_wakes):
                return batch

    def accept_rollback(self) -> None:
        self._watermarks.reset()
        self._handshake.reset()
        for connection in self._connections.of_process():
            connection.cursors = None

    def wake(self) -> None:
        self._num_wakes += 1
        for connection in self._connections.of_process():
            connection.wake()

    def _begin_wait(
        self,
        connection: RedisThreadConnection,
        streams: Mapping[str, int],
        registers: Mapping[str, int],
        *,
        seconds: float,
        limit: int,
    ) -> None:
        limit_bytes = MAX_LARGE_BYTES if JOURNAL in streams else MAX_MESSAGE_BYTES
        keys = [self._keys_of(connection, is_volatile_stream(n)).stream(n) for n in streams]
        keys += [self._keys_of(connection, is_volatile_register(n)).register(n) for n in registers]
        numbers = (*streams.values(), *registers.values())
        connection.begin_wait(
            (
                *("XREAD", "COUNT", min(limit, MAX_BATCH_BYTES // limit_bytes)),
                *("BLOCK", max(_milliseconds(seconds), 1), "STREAMS"),
                # Only `wake` ends a wait for no names: a key without writers.
                *(keys or [self._keys.stream("")]),
                *([f"{number}-18446744073709551615" for number in numbers] or ["0-0"]),
            )
        )

    def _wait(
        self,
        connection: RedisThreadConnection,
        streams: Mapping[str, int],
        registers: Mapping[str, int],
        *,
        seconds: float,
    ) -> tuple[bool, Batch]:
        """Return whether `wake` ended the wait, and the new items; an empty batch when `_poll` must look."""
        try:
            is_woken, reply = connection.wait(seconds, deadline_seconds=self._deadline_seconds)
        finally:
            with connection.lock:
                connection.is_waiting = False
                if self._is_closed:
                    connection.disconnect()
        entries = dict(reply or ())
        rows = {
            name: entries.get(
                self._keys_of(connection, is_volatile_stream(name)).stream(name).encode()
            )
            for name in streams
        }
        if not entries or not all(
            follow_each_other(rows[name] or (), after) for name, after in streams.items()
        ):
            connection.cursors = None
            return is_woken, Batch()
        items = {
            name: items_of(name, found, start=streams[name])
            for name, found in rows.items()
            if found
        }
        values: dict[str, Register] = {}
        for name in registers:
            keys = self._keys_of(connection, is_volatile_register(name))
            if found := entries.get(keys.register(name).encode()):
                values[name] = register_of(name, found[-1])
        self._advance(connection, streams, items)
        return is_woken, Batch(items=items, registers=values)

    def _poll(
        self,
        connection: RedisThreadConnection,
        streams: Mapping[str, int],
        registers: Mapping[str, int],
        *,
        limit: int,
    ) -> tuple[Batch, dict[str, int]]:
        """Return new items and registers, and where each stream ends; raise StoreRolledBack below a watermark."""
        seen_versions = {volatile: self._watermarks.version(volatile) for volatile in (False, True)}
        seen = {name: self._watermarks.end(name) for name in streams}
        volatile_keys = self._keys_of(connection, True)
        keys = [self._keys.meta, volatile_keys.meta, self._keys.trims]
        keys += [self._keys_of(connection, is_volatile_stream(n)).stream(n) for n in streams]
        keys += [self._keys_of(connection, is_volatile_register(n)).register(n) for n in registers]
        cursors: list[str | int] = []
        for name, after in streams.items():
            cursors += ("" if is_volatile_stream(name) else name, after)
        _, versions, found, values = connection.run(
            scripts.LOOK,
            keys,
            *(len(streams), limit, MAX_BATCH_BYTES, *cursors, *registers.values()),
        )
        for volatile, version in zip((False, True), versions, strict=True):
            self._check_version(
                connection, int(version), volatile=volatile, seen=seen_versions[volatile]
            )
        items: dict[str, tuple[Item, ...]] = {}
        ends: dict[str, int] = {}
        for (name, after), (last, trimmed, entries) in zip(streams.items(), found, strict=True):
            ends[name] = last
            if is_volatile_stream(name):
                some = items_of(name, entries, start=None)
            else:
                check_watermark(f"stream {name!r}", number=last, watermark=max(seen[name], after))
                some = items_of(name, entries, start=max(after, trimmed))
                if not some and limit > 0 and last > max(after, trimmed):
                    raise StoreCorrupt(
                        f"stream {name!r}: items {max(after, trimmed) + 1} to {last} are missing; put back a copy"
                    )
                if not some or limit == 0:
                    self._watermarks.advance_end(name, last)
            if some:
                items[name] = some
        if limit > 0:
            self._advance(connection, {n: a for n, a in streams.items() if a <= ends[n]}, items)
        newer = {
            name: register_of(name, rows[0])
            for name, rows in zip(registers, values, strict=True)
            if rows
        }
        return Batch(items=items, registers=newer), ends

    def _advance(
        self,
        connection: RedisThreadConnection,
        streams: Mapping[str, int],
        items: Mapping[str, tuple[Item, ...]],
    ) -> None:
        """Record how far this handle and this connection have read each stream."""
        if connection.cursors is None:
            connection.cursors = {}
        for name, after in streams.items():
            number = items[name][-1].number if name in items else after
            connection.cursors[name] = number
            if not is_volatile_stream(name):
                self._watermarks.advance_end(name, number)

    def _check_version(
        self, connection: RedisThreadConnection, version: int, *, volatile: bool, seen: int
    ) -> None:
        found = max(version, _base(connection)) if volatile else version
        check_watermark("the count of register versions", number=found, watermark=seen)
        self._watermarks.advance_version(volatile, version)

    # ---- leases

    def acquire_lease(self, name: str, holder: str, *, ttl_seconds: float) -> Lease:
        check_name(name)
        check_name(holder)
        with self._connection() as connection:
            reply = connection.run(
                scripts.ACQUIRE,
                (self._keys.lease(name), self._keys.meta),
                *(holder, _microseconds(ttl_seconds), self._now()),
            )
        if reply[0] == b"held":
            raise LeaseHeld(name, reply[1].decode(), expires_in_seconds=reply[2] / 1e6)
        return Lease(name=name, holder=holder, token=reply[1], ttl_seconds=ttl_seconds)

    def renew(self, lease: Lease) -> None:
        with self._connection() as connection:
            reply = connection.run(
                scripts.RENEW,
                (self._keys.lease(lease), self._keys.meta),
                *(*_fence(lease), _microseconds(lease.ttl_seconds), self._now()),
            )
        _check(reply, lease, f"lease {lease.name!r}")

    def release(self, lease: Lease) -> None:
        with self._connection() as connection:
            connection.run(scripts.FREE, (self._keys.lease(lease),), *_fence(lease))

    def lease_holder(self, name: str) -> LeaseHolder | None:
        with self._connection() as connection:
            reply = connection.run(
                scripts.HOLDER, (self._keys.lease(name), self._keys.meta), self._now()
            )
        if len(reply) == 1:
            return None
        return LeaseHolder(
            holder=reply[1].decode(), token=int(reply[2]), expires_in_seconds=reply[3] / 1e6
        )

    def break_lease(self, name: str, holder: str) -> bool:
        with self._connection() as connection:
            return bool(connection.run(scripts.FREE, (self._keys.lease(name),), holder, "")[1])

    def _now(self) -> str:
        return "" if self._clock is None else str(_microseconds(self._clock()))

    # ---- the handle

    def command(self, *words: bytes | str | int) -> Any:
        """Run one command on the server, for its checks; the reply may be an ErrorReply."""
        with self._connection() as connection:
            return connection.command(*words)

    def examine(self) -> Iterator[StoreCheck]:
        return examine_server(self)

    def durability(self) -> tuple[StoreCheck, ...]:
        return check_durability(self)

    def close(self) -> None:
        self._is_closed = True
        self.wake()
        for connection in self._connections.of_process():
            with connection.lock:
                # A waiting thread disconnects itself.
                if not connection.is_waiting:
                    connection.disconnect()

    @contextmanager
    def _connection(self) -> Iterator[RedisThreadConnection]:
        """Yield the calling thread's connection, connected, and locked against `close` from another thread."""
        connection = self._connections.current()
        with connection.lock:
            if self._is_closed:
                raise PermanentError(f"{self.server}: this handle is closed; open another")
            connection.ensure_connected()
            yield connection

    def _connect(self) -> tuple[ServerConnection, int]:
        connection = self.server.connect(self._resolver, timeout_seconds=self._deadline_seconds)
        try:
            return connection, self._handshake.check(connection, self._keys)
        except BaseException:
            connection.close()
            raise

    def _translate(self, error: Exception) -> Exception:
        is_known = self._handshake.instance_id > 0
        return self.server.translate_error(error, is_opening=self._is_opening, is_known=is_known)

    def _keys_of(self, connection: RedisThreadConnection, volatile: bool) -> Keys:
        return self._keys.of_instance(connection.instance_id) if volatile else self._keys


def _fence(lease: Lease | None) -> tuple[str, str]:
    return ("", "") if lease is None else (lease.holder, str(lease.token))


def _check(reply: Sequence[Any], fence: Lease | None, what: str, *, seen: int = 0) -> None:
    """Raise the error of a script's reply, unless it is `done`."""
    if reply[0] == b"fenced":
        assert fence is not None
        raise lease_lost(fence, holder=reply[1].decode() or None, token=int(reply[2]))
    if reply[0] == b"less":
        check_watermark(what, number=reply[1], watermark=seen)
    if reply[0] == b"large":
        raise PermanentError(f"{what}: payload of {reply[1]} bytes is over the limit")
    if reply[0] == b"full":
        raise StoreCorrupt(
            f"{what} ends at {reply[1]}: another program wrote there, and no number is left; restore a backup"
        )


def _base(connection: RedisThreadConnection) -> int:
    """Return the number below all volatile ones of the server's present instance."""
    return (connection.instance_id - 1) << _INSTANCE_ID_BITS


def _microseconds(seconds: float) -> int:
    return round(seconds * 1e6)


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)
