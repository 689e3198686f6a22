"""What one thread of a SQLite store's handle owns: connections to both files and a wakeup socket."""

import contextlib
import os
import select
import socket
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from runner.errors import StoreCorrupt, StoreUnavailable
from runner.store.connected_store import ThreadConnection
from runner.store.protocol import Lease
from runner.store.sqlite import tables
from runner.store.sqlite.database import Database

# drained per wait; the rest costs one needless look
_DATAGRAMS_AT_ONCE = 64


class WakeupSocket:
    """Wakes one blocked reader: a datagram socket in the kernel's abstract namespace; a notifier needs its `address`.

    It leaves nothing in the file system, and the kernel removes it with its process, even after SIGKILL. A notification
    carries no content, and may be lost (a full queue already holds one; a writer in another network namespace cannot reach the
    socket), so waits are cut into slices.
    """

    def __init__(self) -> None:
        self.address = f"stoker-wakeup-{os.getpid()}-{os.urandom(6).hex()}"
        self._socket = _datagram_socket()
        self._socket.bind("\0" + self.address)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    def wait(self, timeout_seconds: float) -> bool:
        """Sleep until a notification comes or the time is over; say which. One sent before the call counts."""
        if not self._poll.poll(max(timeout_seconds, 0.0) * 1000):
            return False
        for _ in range(_DATAGRAMS_AT_ONCE):
            try:
                self._socket.recv(16)
            except BlockingIOError:
                break
        return True

    def close(self) -> None:
        """Close the address; notifications to it fail from now on."""
        self._socket.close()


def notify(sender: socket.socket, addresses: Iterable[str]) -> list[str]:
    """Notify each address without blocking; return the dead addresses."""
    gone = []
    for address in addresses:
        try:
            sender.sendto(b"wake", "\0" + address)
        except ConnectionRefusedError:
            gone.append(address)
        except OSError:
            # Mostly a full queue, which wakes the reader anyway; otherwise it looks after its slice.
            continue
    return gone


def _datagram_socket() -> socket.socket:
    return socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)


class SqliteThreadConnection(ThreadConnection):
    """Connections to both files, and a wakeup socket from the thread's first wait on."""

    def __init__(self, durable: Path, volatile: Path, *, deadline_seconds: float) -> None:
        super().__init__()
        self.wakeup: WakeupSocket | None = None
        self._durable = Database(durable, durable=True, deadline_seconds=deadline_seconds)
        self._volatile = Database(volatile, durable=False, deadline_seconds=deadline_seconds)
        self._sender = _datagram_socket()
        self._listens_to: set[str] = set()

    def reading(self, is_volatile: bool) -> AbstractContextManager[sqlite3.Connection]:
        """Run the block on one consistent state of a file."""
        return (self._volatile if is_volatile else self._durable).transaction(write=False)

    @contextmanager
    def writing(self, is_volatile: bool, fence: Lease | None) -> Iterator[sqlite3.Connection]:
        """Run the block in one transaction of a file in which `fence` is the current lease; raise Fenced otherwise."""
        if is_volatile and fence is None:
            with self._volatile.transaction(write=True) as rows:
                yield rows
            return
        with self._durable.transaction(write=True) as durable_rows:
            tables.check_fence(durable_rows, fence)
            if not is_volatile:
                yield durable_rows
                return
            # Leases are in the durable file. Holding its write lock, without writing, keeps the lease as it is until the
            # volatile file has committed; a commit that wrote nothing costs no fsync.
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

    def notify(self, names: Iterable[str]) -> None:
        """Ring the addresses of those who wait for one of `names`, each once.

        Never fails: the write is done, and readers look by themselves.
        """
        with contextlib.suppress(StoreUnavailable):
            with self._volatile.transaction(write=False) as rows:
                found = [address for name in names for address in tables.listeners(rows, name)]
            gone = notify(self._sender, dict.fromkeys(found)) if found else []
            if gone:
                with self._volatile.transaction(write=True) as rows:
                    tables.forget_listeners(rows, gone)

    def wake(self) -> None:
        if self.wakeup is not None:
            with _datagram_socket() as sender:
                notify(sender, [self.wakeup.address])

    def close(self) -> None:
        if self.wakeup is not None:
            with (
                contextlib.suppress(StoreUnavailable),
                self._volatile.transaction(write=True) as rows,
            ):
                tables.forget_listeners(rows, [self.wakeup.address])
            if not self.is_waiting:
                self.wakeup.close()
        self._sender.close()
        self._durable.close()
        self._volatile.close()

    def __del__(self) -> None:
        # The thread has ended. The next writer finds its address dead and removes its rows.
        if self.process == os.getpid():
            if self.wakeup is not None:
                self.wakeup.close()
            self._sender.close()
            with contextlib.suppress(StoreUnavailable, StoreCorrupt):
                self._durable.close()
                self._volatile.close()
