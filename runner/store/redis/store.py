"""The store of a cluster: one Redis server that all its machines reach, for any number of processes and threads.

All keys of a cluster begin with `stoker:<cluster>:`; `scripts` describes them. Volatile keys belong to one instance of the server,
since a restarted server may bring old ones back. Acknowledged writes are on the server's disk only with the settings of
deploy/redis.conf. No handle follows a failover: a replica may lack acknowledged writes, the last journal entry and the
lease's token included.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from runner.errors import PermanentError, StoreCorrupt, StoreUnavailable
from runner.facts.specs.cluster import ClusterSpec, StoreSpec
from runner.facts.wire import MAX_MESSAGE_BYTES
from runner.store import protocol
from runner.store.connected_store import ConnectedStore
from runner.store.examination import StoreCheck
from runner.store.protocol import Batch, Cursors, Item, Lease, LeaseHeld, LeaseHolder, Register
from runner.store.redis import scripts
from runner.store.redis.access import RedisAddress
from runner.store.redis.checks import check_durability, examine_server
from runner.store.redis.connection import HostResolver, ServerConnection
from runner.store.redis.entries import field_of, follow_each_other, items_of, register_of
from runner.store.redis.handshake import Handshake, NeverStarted
from runner.store.redis.keys import keys_of
from runner.store.redis.thread_connection import RedisThreadConnection

# how long the server may be silent in a call; chosen
DEADLINE_SECONDS = 1.0
# a blocked read polls all names this often; chosen
SLICE_SECONDS = 5.0
# a volatile key expires this long after its last write; chosen
VOLATILE_MILLISECONDS = 24 * 3600 * 1000


class RedisStore(ConnectedStore[RedisThreadConnection]):
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
        clock: protocol.Clock | None = None,
        create: bool = True,
    ) -> None:
        super().__init__()
        self.server = RedisAddress(spec)
        self.cluster = cluster
        self._deadline_seconds = deadline_seconds
        self._clock = clock
        self._keys = keys_of(cluster)
        self._resolver = HostResolver()
        self._handshake = Handshake(str(self.server), cluster, create=create)
        self._is_opening = True
        with suppress(StoreUnavailable), self._connection():
            # The first call raises it; an agent runs its ranks until the server is back.
            pass
        self._is_opening = False

    @classmethod
    def of_cluster(cls, cluster: ClusterSpec, *, create: bool) -> "RedisStore":
        return cls(cluster.store, cluster.name, create=create)

    @classmethod
    def exists(cls, cluster: ClusterSpec) -> bool:
        try:
            cls.of_cluster(cluster, create=False).close()
        except NeverStarted:
            return False
        return True

    def __str__(self) -> str:
        return str(self.server)

    def __repr__(self) -> str:
        return f"RedisStore({self.server.spec.address!r}, {self.cluster!r})"

    def _append(
        self, stream: str, payloads: Sequence[bytes], fence: Lease | None, at: int | None
    ) -> int:
        volatile = protocol.is_volatile_stream(stream)
        # A volatile stream expires after a day without writes, and then restarts.
        seen = 0 if volatile else self._ends[stream]
        entries = [word for payload in payloads for word in (field_of(payload), payload)]
        with self._connection() as connection:
            keys = connection.keys_of(volatile)
            reply = connection.run(
                scripts.APPEND,
                (keys.stream(stream),),
                *(stream, at or 0, seen, protocol.limit_bytes_of(stream)),
                *(connection.base if volatile else "", *_fence(fence)),
                *(protocol.VOLATILE_KEEP, protocol.VOLATILE_SLACK, VOLATILE_MILLISECONDS),
                *(keys.trims, self._keys.lease(fence)),
                *entries,
            )
        if reply[0] == b"differs":
            raise protocol.append_refused(stream, at or 0, last=reply[1], trimmed=int(reply[2]))
        _check(reply, fence, f"stream {stream!r}", seen=seen)
        number = int(reply[1])
        if not volatile:
            self._advance_end(stream, number)
        return number

    def trim(self, stream: str, through: int, *, fence: Lease | None = None) -> None:
        volatile = protocol.is_volatile_stream(stream)
        with self._connection() as connection:
            keys = connection.keys_of(volatile)
            reply = connection.run(
                scripts.TRIM,
                (keys.stream(stream), keys.trims, self._keys.lease(fence)),
                *(stream, through, int(volatile), *_fence(fence)),
            )
        _check(reply, fence, f"stream {stream!r}")

    def last(self, stream: str) -> int:
        with self._connection() as connection:
            return self._look(connection, Cursors({stream: 0}, {}, limit=0))[1][stream]

    def _put(self, values: Mapping[str, bytes], is_volatile: bool, fence: Lease | None) -> int:
        seen = self._versions[is_volatile]
        entries = [word for name in values for word in (name, field_of(values[name]), values[name])]
        with self._connection() as connection:
            keys = connection.keys_of(is_volatile)
            base = connection.base if is_volatile else 0
            reply = connection.run(
                scripts.PUT,
                (keys.meta, keys.names, self._keys.lease(fence), *map(keys.register, values)),
                *(0 if seen <= base else seen, base, int(is_volatile), *_fence(fence)),
                *(protocol.MAX_LARGE_BYTES, VOLATILE_MILLISECONDS, *entries),
            )
        _check(reply, fence, "the count of register versions", seen=seen)
        version = int(reply[1])
        self._advance_version(is_volatile, version)
        return version

    def _list(
        self, connection: RedisThreadConnection, prefix: str, is_volatile: bool
    ) -> dict[str, Register]:
        seen = self._versions[is_volatile]
        keys = connection.keys_of(is_volatile)
        _, version, rows = connection.run(
            scripts.LIST, (keys.meta, keys.names), prefix, keys.register("")
        )
        self._check_version(connection, int(version), is_volatile, seen=seen)
        return {name.decode(): register_of(name.decode(), entry) for name, entry in rows}

    def delete(self, name: str, *, fence: Lease | None = None) -> None:
        volatile = protocol.is_volatile_register(name)
        with self._connection() as connection:
            keys = connection.keys_of(volatile)
            reply = connection.run(
                scripts.DELETE,
                (keys.names, self._keys.lease(fence), keys.register(name)),
                *(name, int(volatile), *_fence(fence)),
            )
        _check(reply, fence, f"register {name!r}")

    def _read(self, wanted: Cursors, timeout_seconds: float) -> Batch:
        until = time.monotonic() + timeout_seconds
        while True:
            with self._connection() as connection:
                batch, after = Batch(), dict(wanted.streams)
                # Past cursors that this connection has read to, waiting brings every new item.
                if timeout_seconds <= 0 or not connection.knows(after):
                    batch, ends = self._look(connection, wanted)
                    after = {name: min(number, ends[name]) for name, number in after.items()}
                left_seconds = min(until - time.monotonic(), SLICE_SECONDS)
                if batch or left_seconds <= 0 or self._has_been_woken(connection):
                    return batch
                waited = Cursors(after, wanted.registers, wanted.limit)
                self._begin_wait(connection, waited, seconds=left_seconds)
                connection.is_waiting = True
            is_woken, batch = self._wait(connection, waited, seconds=left_seconds)
            if batch or self._is_closed:
                return batch
            # Without asking the server, which may be out of reach.
            if is_woken and self._has_been_woken(connection):
                return batch

    def accept_rollback(self) -> None:
        super().accept_rollback()
        self._handshake.reset()
        for connection in self._connections():
            connection.cursors = None

    def _begin_wait(
        self, connection: RedisThreadConnection, wanted: Cursors, *, seconds: float
    ) -> None:
        limit_bytes = max(map(protocol.limit_bytes_of, wanted.streams), default=MAX_MESSAGE_BYTES)
        keys = connection.item_keys(wanted)
        numbers = (*wanted.streams.values(), *wanted.registers.values())
        connection.begin_wait(
            (
                *("XREAD", "COUNT", min(wanted.limit, protocol.MAX_BATCH_BYTES // limit_bytes)),
                *("BLOCK", max(int(seconds * 1000), 1), "STREAMS"),
                # Only `wake` ends a wait for no names: a key without writers.
                *(keys or [self._keys.stream("")]),
                *([f"{number}-18446744073709551615" for number in numbers] or ["0-0"]),
            )
        )

    def _wait(
        self, connection: RedisThreadConnection, wanted: Cursors, *, seconds: float
    ) -> tuple[bool, Batch]:
        """Return whether `wake` ended the wait, and the new items; an empty batch when `_look` must look."""
        try:
            is_woken, reply = connection.wait(seconds, deadline_seconds=self._deadline_seconds)
        finally:
            with connection.lock:
                connection.is_waiting = False
                if self._is_closed:
                    connection.disconnect()
        keys = connection.item_keys(wanted)
        entries = dict(reply or ())
        found = [entries.get(key.encode(), ()) for key in keys]
        of_streams = dict(zip(wanted.streams, found, strict=False))
        of_registers = dict(zip(wanted.registers, found[len(of_streams) :], strict=True))
        if not entries or not all(
            follow_each_other(of_streams[name], after) for name, after in wanted.streams.items()
        ):
            connection.cursors = None
            return is_woken, Batch()
        items = {
            name: items_of(name, rows, start=wanted.streams[name])
            for name, rows in of_streams.items()
            if rows
        }
        registers = {
            name: register_of(name, rows[-1]) for name, rows in of_registers.items() if rows
        }
        self._advance(connection, wanted.streams, items)
        return is_woken, Batch(items=items, registers=registers)

    def _poll(self, connection: RedisThreadConnection, wanted: Cursors) -> Batch:
        return self._look(connection, wanted)[0]

    def _look(
        self, connection: RedisThreadConnection, wanted: Cursors
    ) -> tuple[Batch, dict[str, int]]:
        """Return new items and registers, and where each stream ends; raise StoreRolledBack below a watermark."""
        streams, limit = wanted.streams, wanted.limit
        seen_versions = {volatile: self._versions[volatile] for volatile in (False, True)}
        seen = {name: self._ends[name] for name in streams}
        keys = [self._keys.meta, connection.keys_of(True).meta, self._keys.trims]
        cursors: list[str | int] = []
        for name, after in streams.items():
            cursors += ("" if protocol.is_volatile_stream(name) else name, after)
        _, versions, found, values = connection.run(
            scripts.LOOK,
            [*keys, *connection.item_keys(wanted)],
            *(len(streams), limit, protocol.MAX_BATCH_BYTES, *cursors, *wanted.registers.values()),
        )
        for volatile, version in zip((False, True), versions, strict=True):
            self._check_version(connection, int(version), volatile, seen=seen_versions[volatile])
        items: dict[str, tuple[Item, ...]] = {}
        ends: dict[str, int] = {}
        for (name, after), (last, trimmed, entries) in zip(streams.items(), found, strict=True):
            ends[name] = last
            if protocol.is_volatile_stream(name):
                some = items_of(name, entries, start=None)
            else:
                protocol.check_watermark(
                    f"stream {name!r}", number=last, watermark=max(seen[name], after)
                )
                start = max(after, trimmed)
                some = items_of(name, entries, start=start)
                if not some and limit > 0 and last > start:
                    raise StoreCorrupt(
                        f"stream {name!r}: items {start + 1} to {last} are missing; put back a copy"
                    )
                if not some or limit == 0:
                    self._advance_end(name, last)
            if some:
                items[name] = some
        if limit > 0:
            self._advance(connection, {n: a for n, a in streams.items() if a <= ends[n]}, items)
        newer = {
            name: register_of(name, rows[0])
            for name, rows in zip(wanted.registers, values, strict=True)
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
        connection.cursors = connection.cursors or {}
        for name, after in streams.items():
            number = items[name][-1].number if name in items else after
            connection.cursors[name] = number
            if not protocol.is_volatile_stream(name):
                self._advance_end(name, number)

    def _check_version(
        self, connection: RedisThreadConnection, version: int, is_volatile: bool, *, seen: int
    ) -> None:
        found = max(version, connection.base) if is_volatile else version
        protocol.check_watermark("the count of register versions", number=found, watermark=seen)
        self._advance_version(is_volatile, version)

    def _acquire(self, wanted: Lease) -> Lease:
        reply = self._run(
            scripts.ACQUIRE,
            (self._keys.lease(wanted), self._keys.meta),
            *(wanted.holder, _microseconds(wanted.ttl_seconds), self._now()),
        )
        if reply[0] == b"held":
            raise LeaseHeld(wanted.name, reply[1].decode(), expires_in_seconds=reply[2] / 1e6)
        return replace(wanted, token=reply[1])

    def renew(self, lease: Lease) -> None:
        reply = self._run(
            scripts.RENEW,
            (self._keys.lease(lease), self._keys.meta),
            *(*_fence(lease), _microseconds(lease.ttl_seconds), self._now()),
        )
        _check(reply, lease, f"lease {lease.name!r}")

    def release(self, lease: Lease) -> None:
        self._run(scripts.FREE, (self._keys.lease(lease),), *_fence(lease))

    def lease_holder(self, name: str) -> LeaseHolder | None:
        keys = (self._keys.lease(name), self._keys.meta)
        _, *row = self._run(scripts.HOLDER, (), *keys, self._now())
        if not row:
            return None
        holder, token, left = row
        return LeaseHolder(holder=holder.decode(), token=int(token), expires_in_seconds=left / 1e6)

    def break_lease(self, name: str, holder: str) -> bool:
        return bool(self._run(scripts.FREE, (self._keys.lease(name),), holder, "")[1])

    def _now(self) -> str:
        return "" if self._clock is None else str(_microseconds(self._clock()))

    def command(self, *words: bytes | str | int) -> Any:
        """Run one command on the server, for its checks; the reply may be an ErrorReply."""
        with self._connection() as connection:
            return connection.command(*words)

    def examine(self) -> Iterator[StoreCheck]:
        return examine_server(self)

    def durability(self) -> tuple[StoreCheck, ...]:
        return check_durability(self)

    def _run(self, script: scripts.Script, keys: Sequence[str], *arguments: str | int) -> list[Any]:
        with self._connection() as connection:
            return connection.run(script, keys, *arguments)

    def _new_connection(self) -> RedisThreadConnection:
        return RedisThreadConnection(self._keys, self._connect, self._translate)

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


def _fence(lease: Lease | None) -> tuple[str, str]:
    return ("", "") if lease is None else (lease.holder, str(lease.token))


def _check(reply: Sequence[Any], fence: Lease | None, what: str, *, seen: int = 0) -> None:
    """Raise the error of a script's reply, unless it is `done`."""
    if reply[0] == b"fenced":
        assert fence is not None
        raise protocol.lease_lost(fence, holder=reply[1].decode() or None, token=int(reply[2]))
    if reply[0] == b"less":
        protocol.check_watermark(what, number=reply[1], watermark=seen)
    if reply[0] == b"large":
        raise PermanentError(f"{what}: payload of {reply[1]} bytes is over the limit")
    if reply[0] == b"full":
        raise StoreCorrupt(
            f"{what} ends at {reply[1]}: another program wrote there, and no number is left; restore a backup"
        )


def _microseconds(seconds: float) -> int:
    return round(seconds * 1e6)
