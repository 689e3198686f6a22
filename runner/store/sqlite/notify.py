"""Doorbells: how a writer tells blocked readers on the same machine that there is something to see.

A bell is a datagram socket in the kernel's abstract namespace: nothing of it is left in the file system, and it is gone with
its process, even after SIGKILL. A ring says only "look again"; what happened is read from the store. A ring may be lost (a
full queue already holds one; a writer in another network namespace cannot reach the bell), so waits are cut into slices.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterable

# drained per wait; what is left only causes one look too many
_DATAGRAMS_AT_ONCE = 64


class Doorbell:
    """One waiting place, owned by one thread; `address` is what a ringer needs."""

    def __init__(self) -> None:
        self.address = f"stoker-bell-{os.getpid()}-{os.urandom(6).hex()}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind("\0" + self.address)
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    def wait(self, timeout_seconds: float) -> bool:
        """Sleep until the bell rings or the time is over; say whether it rang. A ring before the call counts."""
        if not self._poll.poll(max(timeout_seconds, 0.0) * 1000):
            return False
        for _ in range(_DATAGRAMS_AT_ONCE):
            try:
                self._socket.recv(16)
            except BlockingIOError:
                break
        return True

    def close(self) -> None:
        """Give the address back; rings to it fail from now on."""
        self._socket.close()


class Ringer:
    """The sending side; cheap enough to keep one per thread."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)

    def ring(self, addresses: Iterable[str]) -> list[str]:
        """Ring each bell without ever blocking; return the addresses where nobody lives any more."""
        gone = []
        for address in addresses:
            try:
                self._socket.sendto(b"ring", "\0" + address)
            except ConnectionRefusedError:
                gone.append(address)
            except OSError:
                # mostly a queue full of rings not looked at yet; else the reader looks by itself, later
                continue
        return gone

    def close(self) -> None:
        """Close the sending socket."""
        self._socket.close()
