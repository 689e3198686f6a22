"""The agent's end of a channel, for tests of what a rank reports and how it follows requests."""

import json
import socket
from typing import Any


class Agent:
    """The agent's end of a channel."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def request(self, **fields: Any) -> None:
        """Send a request to the rank."""
        self._socket.send(json.dumps({"kind": "request", **fields}).encode() + b"\n")

    def reports(self) -> list[dict[str, Any]]:
        """Return what the rank has reported since the last call."""
        reports: list[dict[str, Any]] = []
        self._socket.setblocking(False)
        while True:
            try:
                packet = self._socket.recv(65536)
            except BlockingIOError:
                return reports
            if not packet:
                return reports
            reports += [json.loads(line) for line in packet.splitlines()]
