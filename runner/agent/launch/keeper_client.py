"""The agent's side of its keeper: find it or start it, send requests, receive events."""

import json
import logging
import os
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

import msgspec

from runner.agent.config import AgentConfig
from runner.agent.event_loop import is_ready
from runner.agent.launch.rank_commands import base_environment
from runner.errors import PermanentError, TemporaryError
from runner.keeper import orphans, procfs, protocol

log = logging.getLogger("stoker.agent")

# Chosen, not measured.
ANSWER_SECONDS = 10.0
SEND_SECONDS = 5.0
_READ_BYTES = 1 << 18
_MAX_DESCRIPTORS = 16
# The socket module does not name it.
_MSG_CMSG_CLOEXEC = 0x40000000


class KeeperState(msgspec.Struct, kw_only=True):
    """What a keeper holds. The caller owns the channels. `abilities`: what it can do beyond its protocol."""

    pid: int = 0
    attempt: str = ""
    generation: int = 0
    abilities: tuple[str, ...] = ()
    annotations: dict[str, Any] = {}
    not_forked_reason: str = ""
    ranks: list[dict[str, Any]] = []
    channels: dict[int, Any] = {}
    buffered: dict[int, list[bytes]] = {}


class KeeperLost(TemporaryError):
    """The keeper is gone, or does not answer."""


class KeeperLink:
    """A connection to a living keeper. Every call may raise KeeperLost. `abilities` are known after `state`."""

    def __init__(self, stream: socket.socket, pid: int) -> None:
        self.pid = pid
        self.abilities: tuple[str, ...] = ()
        self._stream = stream
        self._stream.settimeout(SEND_SECONDS)
        self._received = b""
        self._descriptors: list[int] = []

    def fileno(self) -> int:
        """Return the descriptor to watch."""
        return self._stream.fileno()

    def send(self, kind: str, **fields: Any) -> None:
        """Send a request; returns once the kernel has accepted it."""
        try:
            self._stream.sendall(json.dumps({"kind": kind, **fields}).encode() + b"\n")
        except OSError as error:
            raise KeeperLost(f"keeper {self.pid} accepts no messages: {error}") from error

    def receive(self) -> list[dict[str, Any]]:
        """Return the events that have come, without blocking; a `channel` carries its `socket`."""
        flags = socket.MSG_DONTWAIT | _MSG_CMSG_CLOEXEC
        try:
            data, descriptors, _, _ = socket.recv_fds(
                self._stream, _READ_BYTES, _MAX_DESCRIPTORS, flags
            )
        except BlockingIOError:
            return []
        except OSError as error:
            raise KeeperLost(f"keeper {self.pid} is gone: {error}") from error
        if not data:
            raise KeeperLost(f"keeper {self.pid} is gone")
        self._descriptors += descriptors
        *lines, self._received = (self._received + data).split(b"\n")
        return [self._parse(line) for line in lines]

    def state(self) -> KeeperState:
        """Request everything the keeper holds, and wait for it. Raises PermanentError for another protocol."""
        self.send("hello")
        channels: dict[int, socket.socket] = {}
        buffered: dict[int, list[bytes]] = {}
        deadline = time.monotonic() + ANSWER_SECONDS
        while True:
            for message in self._wait(deadline):
                if message["kind"] == "channel":
                    channels[message["rank"]] = message["socket"]
                elif message["kind"] == "buffered":
                    packets = [packet.encode("latin-1") for packet in message["packets"]]
                    buffered[message["rank"]] = packets
                elif message["kind"] == "state":
                    _check_protocol(message)
                    state = msgspec.convert(message, KeeperState)
                    self.pid, self.abilities = state.pid, state.abilities
                    state.channels, state.buffered = channels, buffered
                    return state

    def close(self) -> None:
        """Disconnect; the keeper and its ranks continue."""
        self._stream.close()
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()

    def _wait(self, deadline: float) -> list[dict[str, Any]]:
        while time.monotonic() < deadline:
            if is_ready(self._stream, max(0.0, deadline - time.monotonic())):
                return self.receive()
        raise KeeperLost(f"keeper {self.pid} did not answer within {ANSWER_SECONDS:.0f} s")

    def _parse(self, line: bytes) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(line)
        if message["kind"] == "channel":
            message["socket"] = socket.socket(fileno=self._descriptors.pop(0))
        return message


def connect(folder: Path) -> KeeperLink | None:
    """Connect to the keeper of a node's folder; None when there is none."""
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # A socket's address holds 108 bytes; through the open folder, its path may have any length.
        stream.connect(f"/proc/self/fd/{directory}/{protocol.SOCKET_NAME}")
    except OSError:
        stream.close()
        return None
    finally:
        os.close(directory)
    credentials = stream.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid, _uid, _gid = struct.unpack("3i", credentials)
    resume(pid)
    return KeeperLink(stream, pid)


def start(config: AgentConfig) -> tuple[KeeperLink, subprocess.Popen[bytes]]:
    """Start a keeper that outlives us, and connect to it. Raises PermanentError when it cannot be started."""
    folder, cluster = str(config.folder.absolute()), config.cluster
    command = [config.python, "-I", "-S", str(Path(protocol.__file__).absolute().parent)]
    command += ["--folder", folder, "--cluster", cluster.name, "--node", config.node]
    command += ["--hard-cap-seconds", str(cluster.hard_cap_seconds)]
    command += ["--kill-wait-seconds", str(cluster.kill_wait_seconds)]
    errors_path = config.folder / "keeper.err"
    try:
        with errors_path.open("ab") as errors:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=base_environment() | config.rank_variables | {protocol.KEEPER_VARIABLE: folder},
                start_new_session=True,
            )
    except OSError as error:
        raise PermanentError(f"cannot start a keeper with {config.python!r}: {error}") from error
    assert child.stdout is not None
    has_started = is_ready(child.stdout, ANSWER_SECONDS) and child.stdout.read(6) == b"ready\n"
    child.stdout.close()
    link = connect(config.folder) if has_started else None
    if link is None:
        child.kill()
        child.wait()
        raise PermanentError(f"the keeper did not start; {errors_path} says why")
    return link, child


def kill_orphans(config: AgentConfig) -> tuple[int, ...]:
    """Kill what earlier instances of this node left behind; return the ranks that do not die in time (-1: unknown).

    Ranks below a living keeper are not left behind. Resource trackers are spared for a while.
    """

    def find() -> orphans.Orphans:
        return {
            pid: environment
            for pid, environment in orphans.find_orphans(config.rank_variables).items()
            if "STOKER_ATTEMPT" in environment
        }

    left = orphans.kill_orphans(find, wait_seconds=config.cluster.kill_wait_seconds)
    if left:
        log.warning("processes %s do not die on SIGKILL", sorted(left))
    return tuple(sorted({procfs.rank_of(environment) for environment in left.values()}))


def resume(pid: int) -> None:
    """Send SIGCONT to a keeper that is stopped: only its agent has any business with it."""
    process = procfs.read_process(pid)
    if process is not None and process.state in "Tt":
        procfs.send_signal([pid], signal.SIGCONT)


def _check_protocol(message: dict[str, Any]) -> None:
    if message["protocol"] != protocol.PROTOCOL:
        raise PermanentError(
            f"the keeper (pid {message['pid']}) uses protocol {message['protocol']}, this agent {protocol.PROTOCOL}; "
            f"start the agent of the release that started it, or end the run first"
        )
