"""The store of one machine: a folder with two SQLite files, for any number of processes and threads.

`store.db` holds what is durable (WAL, synchronous=FULL: one fsync per commit). `volatile-<boot>.db` holds what may be lost
with the machine, without fsync, under the name of the machine's current boot, since a file written so is not to be trusted
after a power cut; it also holds the listeners, whose addresses every writer rings after its commit. The folder belongs on a
local disk: WAL, addresses and the lease clock all want one kernel.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from runner.errors import PermanentError, StoreUnavailable, UserError
from runner.facts.specs.cluster import ClusterSpec
from runner.store.examination import StoreCheck
from runner.store.protocol import (
    READ_LIMIT,
    Batch,
    Clock,
    Item,
    Lease,
    LeaseHolder,
    Register,
    boot_id,
    check_name,
    check_payloads,
    check_values,
    is_volatile_register,
    is_volatile_stream,
    seconds_since_boot,
)
from runner.store.sqlite import tables
from runner.store.sqlite.checks import examine_files
from runner.store.sqlite.notify import Notifier
from runner.store.sqlite.thread_connection import SqliteThreadConnection
from runner.store.thread_connections import ThreadConnections
from runner.store.watermarks import Watermarks

# how long a call waits for other users of the files; chosen
DEADLINE_SECONDS = 1.0
# a reader looks this often without a notification; chosen
POLL_SECONDS = 1.0


class SqliteStore:
    """A handle on the store in `folder`. See `Store` for what the methods promise.

    `create`: make what is missing; without it, a folder that holds no store raises PermanentError.
    `deadline_seconds`: how long a call waits for other users of the files before StoreUnavailable.
    `clock` and `boot` give the time and the boot id that leases use; tests give their own.
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        deadline_seconds: float = DEADLINE_SECONDS,
        clock: Clock = seconds_since_boot,
        boot: str = "",
        create: bool = True,
    ) -> None:
        self.folder = Path(folder)
        self._clock = clock
        self._boot = boot or boot_id()
        self._durable_path = self.folder / "store.db"
        self._volatile_path = self.folder / f"volatile-{self._boot[:8]}.db"
        self._watermarks = Watermarks()
        self._num_wakes = 0
        self._is_closed = False
        self._connections = ThreadConnections(
            lambda: SqliteThreadConnection(
                self._durable_path, self._volatile_path, deadline_seconds=deadline_seconds
            )
        )
        if not create and not self._durable_path.exists():
            raise PermanentError(
                f"there is no store in {self.folder}; was a cluster started there?"
            )
        self._prepare_folder()

    @classmethod
    def of_cluster(cls, cluster: ClusterSpec, *, create: bool) -> SqliteStore:
        """Open the store in the cluster's state folder; see `BackEnd.of_cluster`."""
        folder = _folder_of(cluster)
        if not create and not folder.is_dir():
            raise UserError(
                f"cluster {cluster.name!r} was never started: there is no store in {folder}; "
                "start it with `stoker run` or `stoker supervise`"
            )
        return cls(folder, create=create)

    @staticmethod
    def exists(cluster: ClusterSpec) -> bool:
        """Return whether the cluster's folder is there; see `BackEnd.exists`."""
        return _folder_of(cluster).is_dir()

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
        seen = self._watermarks.end(stream)
        with self._connection() as connection:
            with connection.writing(volatile=is_volatile_stream(stream), fence=fence) as rows:
                number = tables.append(rows, stream, payloads, seen=seen, at=at)
            self._watermarks.advance_end(stream, number)
            connection.notify(_of_stream(stream))
        return number

    def trim(self, stream: str, through: int, *, fence: Lease | None = None) -> None:
        volatile = is_volatile_stream(stream)
        with (
            self._connection() as connection,
            connection.writing(volatile=volatile, fence=fence) as rows,
        ):
            tables.trim(rows, stream, through)

    def last(self, stream: str) -> int:
        seen = self._watermarks.end(stream)
        with (
            self._connection() as connection,
            connection.reading(volatile=is_volatile_stream(stream)) as rows,
        ):
            number = tables.last_number(rows, stream, seen=seen)
        self._watermarks.advance_end(stream, number)
        return number

    def put(self, name: str, payload: bytes, *, fence: Lease | None = None) -> int:
        return self.put_many({name: payload}, fence=fence)

    def put_many(self, values: Mapping[str, bytes], *, fence: Lease | None = None) -> int:
        volatile = check_values(values)
        seen = self._watermarks.version(volatile)
        with self._connection() as connection:
            with connection.writing(volatile=volatile, fence=fence) as rows:
                version = tables.newest_version(rows, seen=seen)
                for name, payload in values.items():
                    version = tables.put(rows, name, payload, seen=version)
            self._watermarks.advance_version(volatile, version)
            for name in values:
                connection.notify(_of_register(name))
        return version

    def get(self, name: str) -> Register | None:
        with self._connection() as connection:
            return self._poll(connection, {}, {name: 0}, limit=0).registers.get(name)

    def registers(self, prefix: str) -> dict[str, Register]:
        found: dict[str, Register] = {}
        with self._connection() as connection:
            for volatile in (False, True):
                seen = self._watermarks.version(volatile)
                with connection.reading(volatile=volatile) as rows:
                    tables.newest_version(rows, seen=seen)
                    found.update(tables.registers_with_prefix(rows, prefix))
        return dict(sorted(found.items()))

    def delete(self, name: str, *, fence: Lease | None = None) -> None:
        volatile = is_volatile_register(name)
        with (
            self._connection() as connection,
            connection.writing(volatile=volatile, fence=fence) as rows,
        ):
            tables.delete(rows, name)

    def read(
        self,
        *,
        streams: Mapping[str, int],
        registers: Mapping[str, int],
        timeout_seconds: float,
        limit: int = READ_LIMIT,
    ) -> Batch:
        deadline = time.monotonic() + timeout_seconds
        names = {_of_stream(name) for name in streams} | {_of_register(name) for name in registers}
        while True:
            with self._connection() as connection:
                batch = self._poll(connection, streams, registers, limit=limit)
                left_seconds = deadline - time.monotonic()
                if batch or left_seconds <= 0 or connection.has_been_woken(self._num_wakes):
                    return batch
                # Listen first, look again, then wait: no write can slip in between.
                if connection.listen(names):
                    continue
                connection.is_waiting = True
            self._wait(connection, min(left_seconds, POLL_SECONDS))
            if self._is_closed:
                return Batch()

    def accept_rollback(self) -> None:
        self._watermarks.reset()

    def wake(self) -> None:
        self._num_wakes += 1
        addresses = [
            connection.wakeup.address
            for connection in self._connections.of_process()
            if connection.wakeup is not None
        ]
        notifier = Notifier()
        notifier.notify(addresses)
        notifier.close()

    def _wait(self, connection: SqliteThreadConnection, timeout_seconds: float) -> None:
        assert connection.wakeup is not None
        try:
            is_woken = connection.wakeup.wait(timeout_seconds)
        finally:
            with connection.lock:
                connection.is_waiting = False
                if self._is_closed:
                    connection.wakeup.close()
        if not is_woken and not self._is_closed:
            with self._connection():
                connection.check_listening()

    def _poll(
        self,
        connection: SqliteThreadConnection,
        streams: Mapping[str, int],
        registers: Mapping[str, int],
        *,
        limit: int,
    ) -> Batch:
        items: dict[str, tuple[Item, ...]] = {}
        values: dict[str, Register] = {}
        for volatile in (False, True):
            after = {k: v for k, v in streams.items() if is_volatile_stream(k) is volatile}
            above = {k: v for k, v in registers.items() if is_volatile_register(k) is volatile}
            if not after and not above:
                continue
            seen_ends = {name: self._watermarks.end(name) for name in after}
            seen_version = self._watermarks.version(volatile)
            with connection.reading(volatile=volatile) as rows:
                items |= tables.items_after(rows, after, limit=limit, seen=seen_ends)
                version = tables.newest_version(rows, seen=seen_version)
                values |= tables.registers_above(rows, above)
            self._watermarks.advance_version(volatile, version)
        for name, found in items.items():
            self._watermarks.advance_end(name, found[-1].number)
        return Batch(items=items, registers=values)

    def acquire_lease(self, name: str, holder: str, *, ttl_seconds: float) -> Lease:
        check_name(name)
        check_name(holder)
        with self._connection() as connection, connection.writing(volatile=False) as rows:
            return tables.acquire_lease(
                rows, Lease(name=name, holder=holder, token=0, ttl_seconds=ttl_seconds), self._now()
            )

    def renew(self, lease: Lease) -> None:
        with (
            self._connection() as connection,
            connection.writing(volatile=False, fence=lease) as rows,
        ):
            tables.extend_lease(rows, lease, self._now())

    def release(self, lease: Lease) -> None:
        with self._connection() as connection, connection.writing(volatile=False) as rows:
            tables.free_lease(rows, lease.name, lease.holder, token=lease.token)

    def lease_holder(self, name: str) -> LeaseHolder | None:
        with self._connection() as connection, connection.reading(volatile=False) as rows:
            return tables.lease_holder(rows, name, self._now())

    def break_lease(self, name: str, holder: str) -> bool:
        with self._connection() as connection, connection.writing(volatile=False) as rows:
            return tables.free_lease(rows, name, holder)

    def examine(self) -> Iterator[StoreCheck]:
        return examine_files(self.folder)

    def durability(self) -> tuple[StoreCheck, ...]:
        """Return nothing: no setting matters."""
        return ()

    def close(self) -> None:
        self._is_closed = True
        self.wake()
        for connection in self._connections.of_process():
            with connection.lock:
                connection.close()

    def _now(self) -> tables.LeaseTime:
        return tables.LeaseTime(seconds=self._clock(), boot=self._boot)

    def _prepare_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for path in self.folder.glob("volatile-*"):
                if path.stem != self._volatile_path.stem and not path.name.startswith(
                    f"{self._volatile_path.name}-"
                ):
                    # An earlier boot wrote it.
                    path.unlink(missing_ok=True)
        except OSError as error:
            raise StoreUnavailable(f"store folder {self.folder} cannot be used: {error}") from error
        # Refuses foreign files before anything starts.
        with (
            self._connection() as connection,
            connection.reading(volatile=False),
            connection.reading(volatile=True),
        ):
            pass

    @contextmanager
    def _connection(self) -> Iterator[SqliteThreadConnection]:
        """Yield the calling thread's connection, locked against `close` from another thread."""
        connection = self._connections.current()
        with connection.lock:
            if self._is_closed:
                raise PermanentError(f"store {self.folder}: this handle is closed; open another")
            yield connection


def _folder_of(cluster: ClusterSpec) -> Path:
    return Path(cluster.state) / "store"


def _of_stream(name: str) -> str:
    return f"stream {name}"


def _of_register(name: str) -> str:
    return f"register {name}"
