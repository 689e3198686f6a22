"""A handle each of whose threads has a connection of its own: what the stores in files and on a server have in common."""

import os
import threading
import weakref
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from runner.errors import PermanentError
from runner.store.protocol import Batch, Cursors, Register, Store


class ThreadConnection:
    """What one thread of one process owns. It must not be used, nor closed, on the far side of a fork.

    `lock` is held by its thread during a call (not while blocked), or by the thread that closes the handle.
    """

    def __init__(self) -> None:
        self.process = os.getpid()
        self.lock = threading.Lock()
        self.is_waiting = False
        self.num_wakes_seen = 0

    def ensure_connected(self) -> None:
        """Prepare for a call."""

    def wake(self) -> None:
        """End the wait. May be called from a signal handler."""

    def clear_wakeup(self) -> None:
        """Forget earlier wakes."""

    def close(self) -> None:
        """Close everything but what the thread waits at: that thread closes it."""


C = TypeVar("C", bound=ThreadConnection)


class ConnectedStore(Store, Generic[C]):
    """A store's handle that makes a connection when a thread first asks for it; it goes with its thread."""

    def __init__(self) -> None:
        # Watermarks, read before a call begins: a store that comes back with lower numbers was rolled back.
        self._ends: Counter[str] = Counter()
        self._versions: Counter[bool] = Counter()
        self._num_wakes = 0
        self._is_closed = False
        self._local = threading.local()
        # Replaced, never changed, so that a signal handler may read it without a lock.
        self._references: tuple[weakref.ref[C], ...] = ()
        self._references_lock = threading.Lock()

    @abstractmethod
    def _new_connection(self) -> C: ...

    @abstractmethod
    def _poll(self, connection: C, wanted: Cursors) -> Batch:
        """Return what there is now; raise StoreRolledBack below a watermark."""

    @abstractmethod
    def _list(self, connection: C, prefix: str, is_volatile: bool) -> dict[str, Register]: ...

    def get(self, name: str) -> Register | None:
        with self._connection() as connection:
            return self._poll(connection, Cursors({}, {name: 0}, limit=0)).registers.get(name)

    def registers(self, prefix: str) -> dict[str, Register]:
        with self._connection() as connection:
            found = self._list(connection, prefix, False) | self._list(connection, prefix, True)
        return dict(sorted(found.items()))

    def accept_rollback(self) -> None:
        self._ends.clear()
        self._versions.clear()

    def _advance_end(self, stream: str, number: int) -> None:
        """Record the number of an item that was committed."""
        self._ends[stream] = max(number, self._ends[stream])

    def _advance_version(self, is_volatile: bool, version: int) -> None:
        """Record the version of a register, durable or volatile, that was committed."""
        self._versions[is_volatile] = max(version, self._versions[is_volatile])

    def wake(self) -> None:
        self._num_wakes += 1
        for connection in self._connections():
            connection.wake()

    def close(self) -> None:
        self._is_closed = True
        self.wake()
        for connection in self._connections():
            with connection.lock:
                connection.close()

    def _has_been_woken(self, connection: C) -> bool:
        """Return whether the handle was woken since the connection's last call of this."""
        connection.clear_wakeup()
        seen, connection.num_wakes_seen = connection.num_wakes_seen, self._num_wakes
        return seen != connection.num_wakes_seen

    @contextmanager
    def _connection(self) -> Iterator[C]:
        """Yield the calling thread's connection, connected, and locked against `close` from another thread."""
        connection = self._thread_connection()
        with connection.lock:
            if self._is_closed:
                raise PermanentError(f"{self}: this handle is closed; open another")
            connection.ensure_connected()
            yield connection

    def _thread_connection(self) -> C:
        connection: C | None = getattr(self._local, "connection", None)
        if connection is None or connection.process != os.getpid():
            # Referred to, since its finalizer would close the parent's connection.
            self._local.left_to_parent = connection
            connection = self._local.connection = self._new_connection()
            with self._references_lock:
                alive = (reference for reference in self._references if reference() is not None)
                self._references = (*alive, weakref.ref(connection))
        return connection

    def _connections(self) -> list[C]:
        """Return the connections of all threads of this process."""
        connections = [reference() for reference in self._references]
        return [each for each in connections if each is not None and each.process == os.getpid()]
