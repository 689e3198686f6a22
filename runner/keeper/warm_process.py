"""The warm process and what it is asked for, as the keeper sees them. The process itself is the package `warm`."""

from __future__ import annotations

import array
import json
import os
import socket
import time
from pathlib import Path

from runner.keeper.child import open_output, start_child
from runner.keeper.procfs import kill_group
from runner.keeper.protocol import (
    KEEPER_VARIABLE,
    MAX_PACKET_BYTES,
    WARM_LOG_NAME,
    WARM_ROOM_VARIABLE,
    Message,
)
from runner.keeper.rank import Rank, RankStdio

# For a warm process to fork what it was asked for; chosen, it takes milliseconds.
FORK_SECONDS = 5.0
# For a rank's environment, and as much for its command line; chosen.
_ROOM_BYTES = 64 * 1024


class WarmProcess:
    """A warm process: the request for it, and its state. `reason` says why it is `odd` or `dead`."""

    def __init__(self, request: Message, folder: str) -> None:
        """Start it; raises OSError, ValueError or SubprocessError when that cannot be done."""
        self.request = request
        self.state = "importing"
        self.reason = ""
        self.versions: Message = {}
        self.is_reaped = False
        self.stream, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        room = "x" * _ROOM_BYTES
        program = str(Path(__file__).absolute().parent / "warm" / "__main__.py")
        output = open_output(WARM_LOG_NAME)
        try:
            self.pid = start_child(
                [*request["interpreter"], program, str(theirs.fileno()), room],
                user=request.get("user"),
                folder=request["working_directory"],
                stdout=output,
                stderr=output,
                env={**request["environment"], KEEPER_VARIABLE: folder, WARM_ROOM_VARIABLE: room},
                pass_fds=(theirs.fileno(),),
            )
            self.send("preload", {**request, "keeper": folder}, [])
        except BaseException:
            self.stream.close()
            raise
        finally:
            os.close(output)
            theirs.close()

    def as_message(self) -> Message:
        """Return what the agent is to know of it."""
        return {
            "kind": "warm",
            "request": self.request,
            "state": self.state,
            "reason": self.reason,
            "pid": self.pid,
            "versions": self.versions,
        }

    def send(self, name: str, message: Message, descriptors: list[int]) -> None:
        """Send a message in a file of its own: an environment may be larger than a packet. Raises OSError."""
        file_descriptor = os.memfd_create(name)
        try:
            with open(file_descriptor, "wb", closefd=False) as file:
                file.write(json.dumps(message).encode())
            rights = array.array("i", [file_descriptor, *descriptors])
            self.stream.sendmsg([name.encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        finally:
            os.close(file_descriptor)

    def receive(self) -> Message | None:
        """Return one message: None when there is none yet, empty when the process is gone. Never waits."""
        try:
            packet = self.stream.recv(MAX_PACKET_BYTES, socket.MSG_DONTWAIT)
            return dict(json.loads(packet or b"{}"))
        except BlockingIOError:
            return None
        except (OSError, ValueError):
            return {}

    def close(self) -> None:
        """Disconnect and kill it; the main loop reaps it."""
        self.stream.close()
        self.kill()

    def kill(self) -> None:
        """Kill it and what it has started."""
        if not self.is_reaped:
            kill_group(self.pid)


class ForkJob:
    """Ranks requested from a warm process. They wait at the start barrier until the keeper knows all of them."""

    def __init__(self, request: Message) -> None:
        """Open what they are connected to; raises OSError."""
        self.request = request
        self.id = time.monotonic_ns()
        self.deadline = time.monotonic() + FORK_SECONDS
        self._stdios: list[RankStdio] = []
        self._start_barrier = -1
        try:
            for spec in request["ranks"]:
                self._stdios.append(RankStdio(spec, request.get("user")))
        except OSError:
            self.cancel()
            raise

    def send(self, warm: WarmProcess) -> None:
        """Send the job; raises OSError."""
        names = ("rank", "argv", "command_line", "name", "environment")
        job = {
            "job": self.id,
            "keeper": os.getpid(),
            "environment": self.request["environment"],
            "working_directory": self.request["working_directory"],
            "ranks": [{name: spec[name] for name in names} for spec in self.request["ranks"]],
        }
        reader, self._start_barrier = os.pipe()
        descriptors = [reader]
        for stdio in self._stdios:
            descriptors += [stdio.theirs.fileno(), *stdio.outputs]
        try:
            warm.send("fork", job, descriptors)
        finally:
            os.close(reader)

    def release(self, pids: dict[str, int]) -> list[Rank]:
        """Open the start barrier and return the ranks; raises OSError when one is dead already, with all cancelled."""
        ranks: list[Rank] = []
        try:
            for stdio in self._stdios:
                ranks += [Rank(stdio.spec, pids[str(stdio.spec["rank"])], stdio.ours)]
            os.write(self._start_barrier, b"g" * len(ranks))
        except OSError:
            # One is reaped already, or none is left at the barrier.
            for rank in ranks:
                rank.close()
            self.cancel()
            raise
        for stdio in self._stdios:
            stdio.close_theirs()
        self._close_barrier()
        return ranks

    def cancel(self) -> None:
        """Let no rank of it live: those that wait at a closed barrier end."""
        self._close_barrier()
        for stdio in self._stdios:
            stdio.close_theirs()
            stdio.ours.close()
        self._stdios = []

    def _close_barrier(self) -> None:
        if self._start_barrier >= 0:
            os.close(self._start_barrier)
            self._start_barrier = -1
