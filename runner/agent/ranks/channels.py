"""Our ends of the ranks' channels: reports are read as they come, requests are sent without ever waiting."""

import select
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from runner.agent.event_loop import EventLoop, is_ready
from runner.agent.ranks.reports import MAX_PACKET_BYTES

# Read of one rank before the next: more than its queue holds.
PACKETS_AT_ONCE = 512


@dataclass(slots=True)
class Channels:
    """The channels of one gang, by rank. `on_packet(rank, packet)` is called for each packet, in order."""

    loop: EventLoop
    on_packet: Callable[[int, bytes], None]
    _open: dict[int, socket.socket] = field(default_factory=dict)

    def add(self, channels: Mapping[int, socket.socket]) -> None:
        """Own these and read them."""
        for rank, channel in channels.items():
            self._open[rank] = channel
            self.loop.watch(channel.fileno(), partial(self.read, rank))

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
                self.on_packet(rank, packet)
            # An empty packet means nothing.
            elif is_ready(channel, events=select.POLLRDHUP):
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
            self.loop.unwatch(channel.fileno())
            channel.close()

    def finish(self) -> None:
        """Read what is left and close all channels."""
        for rank in list(self._open):
            self.read(rank)
            self.close(rank)
