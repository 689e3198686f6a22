"""A rank: its process, its standard output and error, and its channel."""

from __future__ import annotations

import collections
import errno
import os
import socket

from runner.keeper.child import open_output, start_child
from runner.keeper.protocol import MAX_PACKET_BYTES, Message

# Of one rank's reports while no agent is connected; chosen.
_BUFFER_BYTES = 256 * 1024


class Rank:
    """One rank: its process while it runs, its exit until the gang is gone, and our end of its channel."""

    def __init__(self, spec: Message, pid: int, channel: socket.socket) -> None:
        self.number: int = spec["rank"]
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)
        self.channel = channel
        self.outputs: tuple[str, ...] = (spec["output"], spec["errors"])
        self.exit_code: int | None = None
        # The agent requested its end before it exited.
        self.end_requested = False
        self.acknowledged = False
        self._packets: collections.deque[bytes] = collections.deque()
        self._num_bytes = 0
        self._num_drained = 0

    @property
    def is_alive(self) -> bool:
        """Whether its process was not reaped yet: until then the pid is its own."""
        return self.exit_code is None

    @property
    def num_reports(self) -> int:
        """Number of reports that were buffered, displaced ones included."""
        return self._num_drained

    @property
    def output_sizes(self) -> tuple[int, ...]:
        """Sizes of its output files. Their file system may hang."""
        return tuple(_size(path) for path in self.outputs)

    def as_message(self, **head: object) -> Message:
        """Return what the agent is to know of it, after `head`."""
        return {
            **head,
            "rank": self.number,
            "pid": self.pid,
            "exit_code": self.exit_code,
            "end_requested": self.end_requested,
            "acknowledged": self.acknowledged,
        }

    def drain(self) -> None:
        """Buffer the reports that are in the channel, so that it does not fill up; the newest displace the oldest."""
        while True:
            try:
                packet = self.channel.recv(MAX_PACKET_BYTES + 1, socket.MSG_DONTWAIT)
            except OSError:
                return
            if not packet:
                return
            self._packets.append(packet)
            self._num_drained += 1
            self._num_bytes += len(packet)
            while self._num_bytes > _BUFFER_BYTES:
                self._num_bytes -= len(self._packets.popleft())

    def pop_buffered(self) -> list[str]:
        """Return the buffered packets, one character a byte, and keep them no longer."""
        packets = [packet.decode("latin-1") for packet in self._packets]
        self._packets.clear()
        self._num_bytes = 0
        return packets

    def close(self) -> None:
        """Close the channel and the descriptor of its process."""
        self.channel.close()
        os.close(self.pidfd)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


class RankStdio:
    """What a rank is connected to: both ends of its channel, and its output files."""

    def __init__(self, spec: Message, user: Message | None) -> None:
        """Open them; raises OSError."""
        self.spec = spec
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.outputs: list[int] = []
        try:
            for name in ("output", "errors"):
                self.outputs.append(open_output(spec[name], user))
        except OSError:
            self.close_theirs()
            self.ours.close()
            raise

    def close_theirs(self) -> None:
        """Close what is the rank's; our end of the channel stays open."""
        self.theirs.close()
        for descriptor in self.outputs:
            os.close(descriptor)
        self.outputs = []


def spawn_rank(spec: Message, request: Message) -> Rank:
    """Start one rank as a fresh process; raises OSError, ValueError or SubprocessError when it cannot be started."""
    stdio = RankStdio(spec, request.get("user"))
    environment = {**request["environment"], **spec["environment"]}
    environment["STOKER_CHANNEL"] = str(stdio.theirs.fileno())
    try:
        pid = start_child(
            spec["command"],
            user=request.get("user"),
            folder=request["working_directory"],
            stdout=stdio.outputs[0],
            stderr=stdio.outputs[1],
            env=environment,
            pass_fds=(stdio.theirs.fileno(),),
        )
    except BaseException:
        stdio.ours.close()
        raise
    finally:
        stdio.close_theirs()
    return Rank(spec, pid, stdio.ours)


def spawn_failure(error: Exception, spec: Message, request: Message) -> str:
    """Return why a rank could not be started."""
    if isinstance(error, FileNotFoundError) and error.filename == request["working_directory"]:
        return f"working_directory {error.filename!r} does not exist"
    if isinstance(error, OSError) and error.errno == errno.E2BIG:
        return f"rank {spec['rank']}: its command or environment is too long for the system"
    return f"rank {spec['rank']}: cannot start {spec['command'][0]!r}: {error}"
