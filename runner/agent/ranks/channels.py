"""Our ends of the ranks' channels: reports are read as they come, requests are sent without ever waiting."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Mapping
from functools import partial

from runner.agent.event_loop import EventLoop
from runner.agent.ranks.reports import MAX_PACKET_BYTES

# Read of one rank before the next: more than its queue holds.
PACKETS_AT_ONCE = 512


class Channels:
    """The channels of one gang, by rank. `on_packet(rank, packet)` is called for each packet, in order."""

    def __init__(self, loop: EventLoop, on_packet: Callable[[int, bytes], None]) -> None:
        self._loop = loop
        self._on_packet = on_packet
        self._open: dict[int, socket.socket] = {}

    def add(self, channels: Mapping[int, socket.socket]) -> None:
        """Own these and read them."""
        for rank, channel in channels.items():
            self._open[rank] = channel
            self._loop.watch(channel.fileno(), partial(self.read, rank))

    def read(self, rank: int) -> None:
        """Read what a rank has reported so far."""
        for _ in range(PACKETS_AT_ONCE):
            channel = self._open.get(rank)
            if channel is None:
                return
            try:
                packet = channel.recv(MAX_PACKET_BYTES + 1, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                self.close(rank)
                return
            if packet:
                self._on_packet(rank, packet)
            elif _is_disconnected(channel):
                self.close(rank)

    def send(self, rank: int, line: bytes) -> bool:
        """Send a request; False when the rank's channel is closed or full."""
        channel = self._open.get(rank)
        if channel is None:
            return False
        try:
            channel.send(line, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:
            return False
        return True

    def close(self, rank: int) -> None:
        """Close one channel."""
        channel = self._open.pop(rank, None)
        if channel is not None:
            self._loop.unwatch(channel.fileno())
            channel.close()

    def finish(self) -> None:
        """Read what is left and close all channels."""
        for rank in list(self._open):
            self.read(rank)
            self.close(rank)


def _is_disconnected(channel: socket.socket) -> bool:
    """Distinguish the end of a channel from an empty packet, which means nothing."""
    poll = select.poll()
    poll.register(channel, select.POLLRDHUP)
    return bool(poll.poll(0))
