"""What agent and keeper share: names of files, and JSON lines over a socket in the node's folder.

The agent requests: `hello`, `warm`, `spawn`, `signal`, `kill`, `annotate`, `acknowledge`, `shutdown`. The keeper reports:
`channel` (with a descriptor), `buffered`, `state`, `warm`, `started`, `failed`, `exited`, `terminated`. The newest connection is
the agent's; the keeper closes an older one.
"""

from __future__ import annotations

import array
import collections
import json
import socket
from typing import Any

PROTOCOL = 3
# Beyond the protocol: ranks of another user than its own.
ABILITIES = ("user",)
SOCKET_NAME = "keeper.sock"
# JSON: pid, start_ticks, protocol.
PID_FILE_NAME = "keeper.json"
LOCK_NAME = "keeper.lock"
WARM_LOG_NAME = "warm.log"
# In the environment of a keeper and its warm process: the folder it serves.
KEEPER_VARIABLE = "STOKER_KEEPER"
# In the environment of a warm process: keeps room in /proc/PID/environ for a rank's own.
WARM_ROOM_VARIABLE = "STOKER_WARM_ROOM"
# The contract's limit of a channel packet.
MAX_PACKET_BYTES = 64 * 1024

Message = dict[str, Any]


class Connection:
    """One agent's connection: lines in; lines out, some with a descriptor, never blocking."""

    def __init__(self, stream: socket.socket) -> None:
        self.stream = stream
        self.stream.setblocking(False)
        self._received = b""
        self._unsent: collections.deque[tuple[bytes, tuple[int, ...]]] = collections.deque()

    @property
    def has_unsent(self) -> bool:
        """Whether something still waits to be sent."""
        return bool(self._unsent)

    def receive(self) -> list[Message]:
        """Return the whole messages that came; raises OSError at the end of the connection."""
        data = self.stream.recv(1 << 18)
        if not data:
            raise ConnectionResetError("the agent closed the connection")
        *lines, self._received = (self._received + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def queue(self, message: Message, descriptors: tuple[int, ...] = ()) -> None:
        """Queue a message for `flush`."""
        self._unsent.append((json.dumps(message).encode() + b"\n", descriptors))

    def flush(self) -> None:
        """Send what the agent takes now; raises OSError when the connection is gone."""
        while self._unsent:
            data, descriptors = self._unsent[0]
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
            try:
                num_sent = self.stream.sendmsg([data], rights if descriptors else [])
            except BlockingIOError:
                return
            if num_sent == len(data):
                self._unsent.popleft()
            else:
                # Descriptors travel with the first byte.
                self._unsent[0] = (data[num_sent:], ())
