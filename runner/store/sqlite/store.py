"""The store of one machine: a folder with two SQLite files, for any number of processes and threads.

`store.db` holds what is durable (WAL, synchronous=FULL: one fsync per commit). `volatile-<boot>.db` holds what may be lost
with the machine, without fsync, under the name of the machine's current boot, since a file written so is not to be trusted
after a power cut; it also holds the listeners, whose addresses every writer rings after its commit. The folder belongs on a
local disk: WAL, addresses and the lease clock all want one kernel.
"""

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from runner.errors import PermanentError, StoreUnavailable, UserError
from runner.facts.specs.cluster import ClusterSpec
from runner.folder_modes import close_folder
from runner.store import protocol
from runner.store.connected_store import ConnectedStore
from runner.store.examination import StoreCheck
from runner.store.protocol import Batch, Clock, Cursors, Item, Lease, LeaseHolder, Register
from runner.store.sqlite import tables
from runner.store.sqlite.checks import examine_files
from runner.store.sqlite.thread_connection import SqliteThreadConnection

# how long a call waits for other users of the files; chosen
DEADLINE_SECONDS = 1.0
# a reader looks this often without a notification; chosen
POLL_SECONDS = 1.0


class SqliteStore(ConnectedStore[SqliteThreadConnection]):
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
        clock: Clock = protocol.seconds_since_boot,
        boot: str = "",
        create: bool = True,
    ) -> None:
        super().__init__()
        self.folder = Path(folder)
        self._deadline_seconds = deadline_seconds
        self._clock = clock
        self._boot = boot or protocol.boot_id()
        self._durable_path = self.folder / "store.db"
        self._volatile_path = self.folder / f"volatile-{self._boot[:8]}.db"
        if not create and not self._durable_path.exists():
            raise PermanentError(
                f"there is no store in {self.folder}; was a cluster started there?"
            )
        self._prepare_folder()

    @classmethod
    def of_cluster(cls, cluster: ClusterSpec, *, create: bool) -> "SqliteStore":
        folder = _folder_of(cluster)
        if not create and not folder.is_dir():
            raise UserError(
                f"cluster {cluster.name!r} was never started: there is no store in {folder}; "
                "start it with `stoker run` or `stoker supervise`"
            )
        return cls(folder, create=create)

    @staticmethod
    def exists(cluster: ClusterSpec) -> bool:
        return _folder_of(cluster).is_dir()

    def __str__(self) -> str:
        return f"store {self.folder}"

    def _append(
        self, stream: str, payloads: Sequence[bytes], fence: Lease | None, at: int | None
    ) -> int:
        seen = self._ends[stream]
        with self._connection() as connection:
            with connection.writing(protocol.is_volatile_stream(stream), fence) as rows:
                number = tables.append(rows, stream, payloads, seen=seen, at=at)
            self._advance_end(stream, number)
            connection.notify([_of_stream(stream)])
        return number

    def trim(self, stream: str, through: int, *, fence: Lease | None = None) -> None:
        with self._writing(protocol.is_volatile_stream(stream), fence) as rows:
            tables.trim(rows, stream, through)

    def last(self, stream: str) -> int:
        seen = self._ends[stream]
        with self._reading(protocol.is_volatile_stream(stream)) as rows:
            number = tables.last_number(rows, stream, seen=seen)
        self._advance_end(stream, number)
        return number

    def _put(self, values: Mapping[str, bytes], is_volatile: bool, fence: Lease | None) -> int:
        seen = self._versions[is_volatile]
        with self._connection() as connection:
            with connection.writing(is_volatile, fence) as rows:
                version = tables.put(rows, values, seen=seen)
            self._advance_version(is_volatile, version)
            connection.notify(map(_of_register, values))
        return version

    def _list(
        self, connection: SqliteThreadConnection, prefix: str, is_volatile: bool
    ) -> dict[str, Register]:
        seen = self._versions[is_volatile]
        with connection.reading(is_volatile) as rows:
            tables.newest_version(rows, seen=seen)
            return tables.registers_with_prefix(rows, prefix)

    def delete(self, name: str, *, fence: Lease | None = None) -> None:
        with self._writing(protocol.is_volatile_register(name), fence) as rows:
            tables.delete(rows, name)

    def _read(self, wanted: Cursors, timeout_seconds: float) -> Batch:
        deadline = time.monotonic() + timeout_seconds
        names = {*map(_of_stream, wanted.streams), *map(_of_register, wanted.registers)}
        while True:
            with self._connection() as connection:
                batch = self._poll(connection, wanted)
                left_seconds = deadline - time.monotonic()
                if batch or left_seconds <= 0 or self._has_been_woken(connection):
                    return batch
                # Listen first, look again, then wait: no write can slip in between.
                if connection.listen(names):
                    continue
                connection.is_waiting = True
            self._wait(connection, min(left_seconds, POLL_SECONDS))
            if self._is_closed:
                return Batch()

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

    def _poll(self, connection: SqliteThreadConnection, wanted: Cursors) -> Batch:
        items: dict[str, tuple[Item, ...]] = {}
        values: dict[str, Register] = {}
        # what is asked of streams and of registers, durable and volatile
        parts: dict[bool, tuple[dict[str, int], dict[str, int]]] = {False: ({}, {}), True: ({}, {})}
        for name, number in wanted.streams.items():
            parts[protocol.is_volatile_stream(name)][0][name] = number
        for name, version in wanted.registers.items():
            parts[protocol.is_volatile_register(name)][1][name] = version
        for volatile, (after, above) in parts.items():
            if not after and not above:
                continue
            seen_ends = {name: self._ends[name] for name in after}
            seen_version = self._versions[volatile]
            with connection.reading(volatile) as rows:
                items |= tables.items_after(rows, after, limit=wanted.limit, seen=seen_ends)
                version = tables.newest_version(rows, seen=seen_version)
                values |= tables.registers_above(rows, above)
            self._advance_version(volatile, version)
        for name, found in items.items():
            self._advance_end(name, found[-1].number)
        return Batch(items=items, registers=values)

    def _acquire(self, wanted: Lease) -> Lease:
        with self._writing() as rows:
            return tables.acquire_lease(rows, wanted, self._now())

    def renew(self, lease: Lease) -> None:
        with self._writing(fence=lease) as rows:
            tables.extend_lease(rows, lease, self._now())

    def release(self, lease: Lease) -> None:
        with self._writing() as rows:
            tables.free_lease(rows, lease.name, lease.holder, token=lease.token)

    def lease_holder(self, name: str) -> LeaseHolder | None:
        with self._reading() as rows:
            return tables.lease_holder(rows, name, self._now())

    def break_lease(self, name: str, holder: str) -> bool:
        with self._writing() as rows:
            return tables.free_lease(rows, name, holder)

    def examine(self) -> Iterator[StoreCheck]:
        return examine_files(self.folder)

    @contextmanager
    def _reading(self, is_volatile: bool = False) -> Iterator[sqlite3.Connection]:
        with self._connection() as connection, connection.reading(is_volatile) as rows:
            yield rows

    @contextmanager
    def _writing(
        self, is_volatile: bool = False, fence: Lease | None = None
    ) -> Iterator[sqlite3.Connection]:
        with self._connection() as connection, connection.writing(is_volatile, fence) as rows:
            yield rows

    def _new_connection(self) -> SqliteThreadConnection:
        return SqliteThreadConnection(
            self._durable_path, self._volatile_path, deadline_seconds=self._deadline_seconds
        )

    def _now(self) -> tables.LeaseTime:
        return tables.LeaseTime(seconds=self._clock(), boot=self._boot)

    def _prepare_folder(self) -> None:
        try:
            close_folder(self.folder)
            for path in self.folder.glob("volatile-*"):
                if path.stem != self._volatile_path.stem and not path.name.startswith(
                    f"{self._volatile_path.name}-"
                ):
                    # An earlier boot wrote it.
                    path.unlink(missing_ok=True)
        except OSError as error:
            raise StoreUnavailable(f"store folder {self.folder} cannot be used: {error}") from error
        # Refuses foreign files before anything starts.
        for is_volatile in (False, True):
            with self._reading(is_volatile):
                pass


def _folder_of(cluster: ClusterSpec) -> Path:
    return Path(cluster.state) / "store"


def _of_stream(name: str) -> str:
    return f"stream {name}"


def _of_register(name: str) -> str:
    return f"register {name}"
