"""What one thread of a SQLite store's handle owns: connections to both files and a wakeup socket."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from runner.errors import StoreCorrupt, StoreUnavailable
from runner.store.protocol import Lease
from runner.store.sqlite import tables
from runner.store.sqlite.database import Database
from runner.store.sqlite.notify import Notifier, WakeupSocket


class SqliteThreadConnection:
    """Connections to both files, and a wakeup socket from the thread's first wait on.

    `lock` is held by its thread during a call (not while blocked), or by the thread that closes the handle.
    """

    def __init__(self, durable: Path, volatile: Path, *, deadline_seconds: float) -> None:
        self.process = os.getpid()
        self.lock = threading.Lock()
        self.is_waiting = False
        self.wakeup: WakeupSocket | None = None
        self._durable = Database(durable, durable=True, deadline_seconds=deadline_seconds)
        self._volatile = Database(volatile, durable=False, deadline_seconds=deadline_seconds)
        self._notifier = Notifier()
        self._listens_to: set[str] = set()
        self._num_wakes_seen = 0

    @contextmanager
    def reading(self, *, volatile: bool) -> Iterator[sqlite3.Connection]:
        """Run the block on one consistent state of a file."""
        database = self._volatile if volatile else self._durable
        with database.transaction(write=False) as rows:
            yield rows

    @contextmanager
    def writing(
        self, *, volatile: bool, fence: Lease | None = None
    ) -> Iterator[sqlite3.Connection]:
        """Run the block in one transaction of a file in which `fence` is the current lease; raise Fenced otherwise."""
        if not volatile:
            with self._durable.transaction(write=True) as rows:
                tables.check_fence(rows, fence)
                yield rows
        elif fence is None:
            with self._volatile.transaction(write=True) as rows:
                yield rows
        else:
            # Leases are in the durable file. Holding its write lock, without writing, keeps the lease as it is until the
            # volatile file has committed; a commit that wrote nothing costs no fsync.
            with self._durable.transaction(write=True) as guard:
                tables.check_fence(guard, fence)
                with self._volatile.transaction(write=True) as rows:
                    yield rows

    def listen(self, names: set[str]) -> bool:
        """Ask writers for notifications of `names`; say whether that is new, so that the caller looks again."""
        if self.wakeup is not None and names == self._listens_to:
            return False
        self.wakeup = self.wakeup or WakeupSocket()
        with self._volatile.transaction(write=True) as rows:
            tables.listen(rows, self.wakeup.address, names)
        self._listens_to = set(names)
        return True

    def check_listening(self) -> None:
        """Ask again if a writer that could not reach the socket has removed its address."""
        if self.wakeup is None:
            return
        with self._volatile.transaction(write=False) as rows:
            if tables.is_listening(rows, self.wakeup.address, self._listens_to):
                return
        self._listens_to = set()

    def notify(self, name: str) -> None:
        """Ring the addresses of those who wait for `name`. Never fails: the write is done, and readers look by themselves."""
        with contextlib.suppress(StoreUnavailable):
            with self._volatile.transaction(write=False) as rows:
                addresses = tables.listeners(rows, name)
            gone = self._notifier.notify(addresses) if addresses else []
            if gone:
                with self._volatile.transaction(write=True) as rows:
                    tables.forget_listeners(rows, gone)

    def has_been_woken(self, num_wakes: int) -> bool:
        """Return whether the handle was woken since the last call."""
        if num_wakes == self._num_wakes_seen:
            return False
        self._num_wakes_seen = num_wakes
        return True

    def close(self) -> None:
        """Close everything but a socket at which the thread waits: that thread closes it."""
        if self.wakeup is not None:
            with (
                contextlib.suppress(StoreUnavailable),
                self._volatile.transaction(write=True) as rows,
            ):
                tables.forget_listeners(rows, [self.wakeup.address])
            if not self.is_waiting:
                self.wakeup.close()
        self._notifier.close()
        self._durable.close()
        self._volatile.close()

    def __del__(self) -> None:
        # The thread has ended. The next writer finds its address dead and removes its rows.
        if self.process == os.getpid():
            if self.wakeup is not None:
                self.wakeup.close()
            self._notifier.close()
            with contextlib.suppress(StoreUnavailable, StoreCorrupt):
                self._durable.close()
                self._volatile.close()
