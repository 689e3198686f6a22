"""Our ends of the ranks' channels: what ranks report is read as it comes, and requests are sent without ever waiting."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Mapping
from functools import partial

from runner.agent.event_loop import EventLoop
from runner.agent.ranks.reports import MAX_PACKET_BYTES

# of one rank before the others get their turn: more than its queue holds
PACKETS_AT_ONCE = 512


class Channels:
    """The channels of one gang, by rank. `take(rank, packet)` is called for each packet, in order."""

    def __init__(self, loop: EventLoop, take: Callable[[int, bytes], None]) -> None:
        self._loop = loop
        self._take = take
        self._open: dict[int, socket.socket] = {}

    def add(self, channels: Mapping[int, socket.socket]) -> None:
        """Own these and read them from now on."""
        for rank, channel in channels.items():
            self._open[rank] = channel
            self._loop.watch(channel.fileno(), partial(self.read, rank))

    def read(self, rank: int) -> None:
        """Take what a rank has reported so far."""
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
                self._take(rank, packet)
            elif _is_hung_up(channel):
                # else an empty packet, which means nothing
                self.close(rank)

    def send(self, rank: int, line: bytes) -> bool:
        """Send a request; False when the rank has no channel any more or does not read it."""
        channel = self._open.get(rank)
        if channel is None:
            return False
        try:
            channel.send(line, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except OSError:
            return False
        return True

    def close(self, rank: int) -> None:
        """Let go of one channel."""
        channel = self._open.pop(rank, None)
        if channel is not None:
            self._loop.unwatch(channel.fileno())
            channel.close()

    def finish(self) -> None:
        """Read what is left and let go of all."""
        for rank in list(self._open):
            self.read(rank)
            self.close(rank)


def _is_hung_up(channel: socket.socket) -> bool:
    poll = select.poll()
    poll.register(channel, select.POLLRDHUP)
    return bool(poll.poll(0))
