"""Packets between keeper and warm process, over a socket: JSON; what the keeper sends is in memory files, beside descriptors."""

from __future__ import annotations

import array
import json
import os
import socket
from typing import Any

from runner.keeper.protocol import MAX_PACKET_BYTES, Message

# In one job: each rank has three descriptors, and a packet carries 253.
MAX_RANKS = 64


def send(stream: socket.socket, **message: Any) -> None:
    """Send the keeper a message; raises OSError."""
    stream.send(json.dumps(message).encode())


def refuse(stream: socket.socket, job: Message, reason: str) -> None:
    """Have the keeper spawn a job's ranks; raises OSError."""
    send(stream, kind="refused", job=job["job"], reason=reason)


def receive(stream: socket.socket) -> tuple[Message, list[int]]:
    """Wait for a message and its descriptors; ends the process when the keeper is gone."""
    numbers = array.array("i")
    size = socket.CMSG_SPACE((2 + 3 * MAX_RANKS) * numbers.itemsize)
    data, rights, _, _ = stream.recvmsg(
        MAX_PACKET_BYTES, size, getattr(socket, "MSG_CMSG_CLOEXEC", 0)
    )
    if not data:
        os._exit(0)
    for _, _, part in rights:
        numbers.frombytes(part[: len(part) // numbers.itemsize * numbers.itemsize])
    file_descriptor, *descriptors = numbers.tolist()
    with open(file_descriptor, "rb") as file:
        file.seek(0)
        message: Message = json.loads(file.read())
    return message, descriptors
