"""Wakeups: how a writer wakes blocked readers on the same machine.

A wakeup socket is a datagram socket in the kernel's abstract namespace: it leaves nothing in the file system, and the kernel
removes it with its process, even after SIGKILL. A notification carries no content, and may be lost (a full queue already
holds one; a writer in another network namespace cannot reach the socket), so waits are cut into slices.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterable

# drained per wait; the rest costs one needless look
_DATAGRAMS_AT_ONCE = 64


class WakeupSocket:
    """The receiving side, owned by one thread; a notifier needs its `address`."""

    def __init__(self) -> None:
        self.address = f"stoker-wakeup-{os.getpid()}-{os.urandom(6).hex()}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
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


class Notifier:
    """The sending side; cheap enough to keep one per thread."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    def notify(self, addresses: Iterable[str]) -> list[str]:
        """Notify each address without blocking; return the dead addresses."""
        gone = []
        for address in addresses:
            try:
                self._socket.sendto(b"wake", "\0" + address)
            except ConnectionRefusedError:
                gone.append(address)
            except OSError:
                # Mostly a full queue, which wakes the reader anyway; otherwise it looks after its slice.
                continue
        return gone

    def close(self) -> None:
        """Close the sending socket."""
        self._socket.close()
