"""The connections of a store's handle: each thread has its own, so that threads never share one."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class ThreadConnection(Protocol):
    """What one thread of one process owns. A connection must not be used, nor closed, on the far side of a fork."""

    @property
    def process(self) -> int:
        """The pid of the process that made it."""
        ...


C = TypeVar("C", bound=ThreadConnection)


class ThreadConnections(Generic[C]):
    """Makes a connection when a thread first asks for it; it goes with its thread."""

    def __init__(self, make: Callable[[], C]) -> None:
        self._make = make
        self._local = threading.local()
        # Replaced, never changed, so that a signal handler may read it without a lock.
        self._references: tuple[weakref.ref[C], ...] = ()
        self._lock = threading.Lock()

    def current(self) -> C:
        """Return the calling thread's connection."""
        connection: C | None = getattr(self._local, "connection", None)
        if connection is None or connection.process != os.getpid():
            # Referred to, since its finalizer would close the parent's connection.
            self._local.left_to_parent = connection
            connection = self._make()
            self._local.connection = connection
            with self._lock:
                alive = (reference for reference in self._references if reference() is not None)
                self._references = (*alive, weakref.ref(connection))
        return connection

    def of_process(self) -> list[C]:
        """Return the connections of all threads of this process."""
        connections = [reference() for reference in self._references]
        return [each for each in connections if each is not None and each.process == os.getpid()]
