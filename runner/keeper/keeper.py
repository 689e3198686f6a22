"""The keeper: parent of a node's ranks. One file, standard library only, any Python from 3.9 on, one thread.

It is started as a program by an agent and outlives it. It spawns ranks, sees each death at once (pidfd), keeps the
exits until an agent has acknowledged them, and hands the agent's ends of the ranks' channels to whichever agent is
connected. When the keeper dies its ranks die with it (PR_SET_PDEATHSIG, which the kernel ties to the spawning *thread*:
hence one thread). As a subreaper it inherits whatever its ranks leave behind, so that nothing escapes by forking twice.

Ranks are spawned, or forked by a warm process (`warm.py`), which the keeper starts when an agent wishes for one: a child of
its own, so that an import that hangs or crashes cannot touch ranks that run. What the warm process refuses is spawned.

Agent and keeper talk in JSON lines over `keeper.sock` in the node's folder. The agent asks: `hello`, `warm`, `spawn`,
`signal`, `kill`, `note`, `acknowledge`, `end`. The keeper tells: `channel` (with a descriptor), `held`, `state`, `warm`,
`started`, `failed`, `exited`, `gone`. The newest connection is the agent; an older one is closed.

The file is long because it must stand alone: an interpreter without any package of ours runs it.
"""

from __future__ import annotations

import argparse
import array
import collections
import ctypes
import errno
import fcntl
import json
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

PROTOCOL = 2
SOCKET_NAME = "keeper.sock"
NOTE_NAME = "keeper.json"
LOCK_NAME = "keeper.lock"
WARM_LOG_NAME = "warm.log"
# environment of a keeper: the folder it serves
MARK = "STOKER_KEEPER"
# beyond the protocol: ranks of another user than its own
ABILITIES = ("user",)
# the contract's limit of a channel packet
MAX_PACKET_BYTES = 64 * 1024

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
# of one rank's reports while no agent is there; chosen
_HELD_BYTES = 256 * 1024
# how often a keeper without agent looks at its ranks; chosen
_LOOK_SECONDS = 5.0
# a keeper without agent and ranks ends after this; chosen
_UNUSED_SECONDS = 60.0
# for the keeper before this one to be gone; chosen
_LOCK_WAIT_SECONDS = 2.0
# between looks at ranks that were killed; doubles up to the next
_FIRST_PRESS_SECONDS = 0.005
# both chosen
_LAST_PRESS_SECONDS = 0.05
# for a warm process to fork what it was asked for; chosen, it takes milliseconds
_FORK_SECONDS = 5.0
# for a rank's environment, and as much for its command line; chosen
_ROOM_BYTES = 64 * 1024
# the same in warm.py
_ROOM_VARIABLE = "STOKER_WARM_ROOM"
# Times the time for a kill: how long trackers are let be. Less than twice, after which a supervisor probes the node; chosen.
# Measured: a tracker needs 6 ms to end, one that is only starting 50 ms; on 2 cores with a load of 11, 50 and 190 ms.
_SPARED_RATIO = 1.5
# chosen
_MOST_SPARED_SECONDS = 5.0
# twice what torch_shm_manager waits for another client before it ends
_MANAGER_SECONDS = 4.0
_SHARED_FOLDER = "/dev/shm"  # noqa: S108 - it is looked at, nothing is put there
# `multiprocessing` of Python 3.9 to 3.13 and joblib 1.6 start theirs so.
_TRACKER = re.compile(
    rb"from (multiprocessing|[\w.]+\.backend)\.resource_tracker import main; ?main\("
)
_MANAGER = b"torch_shm_manager"
_EXIT_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

Message = dict[str, Any]

_libc = ctypes.CDLL(None, use_errno=True)


# ---- what /proc knows -----------------------------------------------------------------------------------------------


class Process(NamedTuple):
    """One line of /proc/PID/stat. `start_ticks` since boot: with the pid it names one process for ever."""

    pid: int
    parent: int
    state: str
    start_ticks: int


def process(pid: int) -> Process | None:
    """Read one process; None when there is none."""
    text = _read_bytes(f"/proc/{pid}/stat")
    if not text:
        return None
    # The name may hold blanks and brackets; what follows the last bracket is numbers.
    fields = text[text.rindex(b")") + 2 :].split()
    return Process(pid, int(fields[1]), fields[0].decode(), int(fields[19]))


def _read_bytes(path: str) -> bytes:
    # A tenth of what pathlib and a buffered file cost: agents do this every second, and a sweep for every process.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        chunks = []
        while chunk := os.read(descriptor, 65536):
            chunks.append(chunk)
        return b"".join(chunks)
    except OSError:
        # the process is gone
        return b""
    finally:
        os.close(descriptor)


def processes() -> dict[int, Process]:
    """Read all processes, zombies too."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            seen = process(int(name))
            if seen is not None:
                found[seen.pid] = seen
    return found


def environment_of(pid: int) -> dict[str, str]:
    """Read the environment a process was started with; empty when it is gone, a zombie, or somebody else's."""
    data = _read_bytes(f"/proc/{pid}/environ")
    pairs = (item.partition(b"=") for item in data.split(b"\0") if item)
    return {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}


def strays(mark: dict[str, str], *, keeper: int = 0) -> dict[int, dict[str, str]]:
    """Find living processes that carry `mark` in their environment or descend from `keeper`: pid -> environment.

    Processes under another living keeper are not ours, whatever they carry: two clusters may share a name.
    """
    table = processes()
    environments = {pid: environment_of(pid) for pid in table}
    keepers = {pid for pid, environment in environments.items() if MARK in environment}
    keepers.add(keeper)
    found = {}
    for pid, seen in table.items():
        if seen.state in "ZX" or pid in keepers or pid == os.getpid():
            continue
        above = _first_above(table, pid, keepers)
        environment = environments[pid]
        carries = all(environment.get(name) == value for name, value in mark.items())
        is_below = bool(keeper) and above == keeper
        if is_below or (mark and carries and above is None):
            found[pid] = environment
    return found


def _first_above(table: dict[int, Process], pid: int, wanted: set[int]) -> int | None:
    # parents read at different moments might form a ring
    for _ in range(len(table)):
        seen = table.get(pid)
        if seen is None or seen.parent in wanted:
            return seen.parent if seen and seen.parent else None
        pid = seen.parent
    return None


def send_signal(pids: Iterable[int], number: int) -> None:
    """Send a signal to processes, of which some may be gone."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


# ---- what cleans up -------------------------------------------------------------------------------------------------


def is_tracker(pid: int) -> bool:
    """Whether a process removes semaphores and shared memory of others as soon as those are gone, and ends."""
    words = _read_bytes(f"/proc/{pid}/cmdline").split(b"\0")
    return b"-c" in words and any(_TRACKER.match(word) for word in words)


def is_manager(pid: int) -> bool:
    """Whether a process removes torch's shared memory; it ends two seconds after the last that used it."""
    command = _read_bytes(f"/proc/{pid}/cmdline").partition(b"\0")[0]
    return command.rpartition(b"/")[2] == _MANAGER


def is_cleaner(pid: int) -> bool:
    """Whether a process is one of these, which need no help to end once all others are gone."""
    return is_tracker(pid) or is_manager(pid)


class OrphanReaper:
    """Strays being ended: all at once, but for those that then clean up, which are let be for a while.

    Killed, a cleaner would leave in /dev/shm for ever what its program had there. A tracker is waited for; a manager, which
    dawdles and does nothing else, only in the sweep that is the `last` of a node.
    """

    def __init__(self, *, wait_seconds: float, last: bool = False) -> None:
        self._wait_seconds = wait_seconds
        self._last = last
        self.deadline = time.monotonic() + wait_seconds
        self._only_cleaners_since: float | None = None

    def strike(self, found: dict[int, dict[str, str]]) -> dict[int, dict[str, str]]:
        """Kill what was found as far as it is time for it; return what is to be waited for."""
        now = time.monotonic()
        trackers = {pid for pid in found if is_tracker(pid)}
        managers = {pid for pid in found if is_manager(pid)}
        others = [pid for pid in found if pid not in trackers and pid not in managers]
        send_signal(others, signal.SIGKILL)
        if others:
            self._only_cleaners_since = None
        elif self._only_cleaners_since is None:
            self._only_cleaners_since = now
        since = self._only_cleaners_since
        self._let_be(trackers, since, min(_SPARED_RATIO * self._wait_seconds, _MOST_SPARED_SECONDS))
        if self._last:
            self._let_be(managers, since, _MANAGER_SECONDS)
            return found
        return {pid: environment for pid, environment in found.items() if pid not in managers}

    def _let_be(self, cleaners: set[int], since: float | None, spared_seconds: float) -> None:
        if since is not None and time.monotonic() >= since + spared_seconds:
            send_signal(cleaners, signal.SIGKILL)
        elif cleaners:
            send_signal(
                cleaners,
                signal.SIGCONT,
                # whoever stopped the ranks may have stopped it too
            )
            if since is not None:
                # Their time starts when all else is gone, however long that has taken; a quarter of it is to die in.
                self.deadline = max(self.deadline, since + 1.25 * spared_seconds)


def end_strays(
    find: Callable[[], dict[int, dict[str, str]]], *, wait_seconds: float, last: bool = False
) -> dict[int, dict[str, str]]:
    """Kill what `find` finds, cleaners last, until there is nothing; return what does not die in time."""
    sweep = OrphanReaper(wait_seconds=wait_seconds, last=last)
    pause_seconds = _FIRST_PRESS_SECONDS
    while True:
        left = sweep.strike(find())
        if not left or time.monotonic() >= sweep.deadline:
            return left
        time.sleep(pause_seconds)
        pause_seconds = min(2 * pause_seconds, _LAST_PRESS_SECONDS)


def _shared() -> frozenset[tuple[str, int]]:
    """Return name and inode of what is in shared memory."""
    try:
        with os.scandir(_SHARED_FOLDER) as entries:
            return frozenset((entry.name, entry.inode()) for entry in entries)
    except OSError:
        return frozenset()


# ---- ranks ----------------------------------------------------------------------------------------------------------


class Rank:
    """One rank: its process while it lives, its exit until it is forgotten, and our end of its channel."""

    def __init__(self, spec: Message, pid: int, channel: socket.socket) -> None:
        self.number: int = spec["rank"]
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)
        self.channel = channel
        self.outputs: tuple[str, ...] = (spec["output"], spec["errors"])
        self.exit_code: int | None = None
        # its end was asked for before it came
        self.asked = False
        self.acknowledged = False
        self.held: collections.deque[bytes] = collections.deque()
        self.held_bytes = 0
        self.num_held = 0

    @property
    def is_alive(self) -> bool:
        """Whether its process was not reaped yet."""
        return self.exit_code is None

    def drain(self) -> None:
        """Take reports out of the channel before it fills up, the oldest making room for the newest."""
        while True:
            try:
                packet = self.channel.recv(MAX_PACKET_BYTES + 1, socket.MSG_DONTWAIT)
            except OSError:
                return
            if not packet:
                return
            self.held.append(packet)
            self.num_held += 1
            self.held_bytes += len(packet)
            while self.held_bytes > _HELD_BYTES:
                self.held_bytes -= len(self.held.popleft())

    def signs(self) -> tuple[int, ...]:
        """Return numbers of which one changes whenever the rank reports or writes."""
        sizes = tuple(_size(path) for path in self.outputs)
        return (self.num_held, *sizes)

    def close(self) -> None:
        """Let go of the channel and of the process."""
        self.channel.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


class RankStdio:
    """What a rank is connected to: both ends of its channel, and its output files. `let_go` keeps our end only."""

    def __init__(self, spec: Message, user: Message | None) -> None:
        self.spec = spec
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.outputs: list[int] = []
        try:
            for name in ("output", "errors"):
                self.outputs.append(_appended(spec[name], user))
        except OSError:
            self.let_go()
            self.ours.close()
            raise

    def let_go(self) -> None:
        """Close what is the rank's."""
        self.theirs.close()
        for descriptor in self.outputs:
            os.close(descriptor)
        self.outputs = []


def spawn_rank(spec: Message, ask: Message) -> Rank:
    """Start one rank as a fresh process; raises OSError, ValueError or SubprocessError when it cannot be started."""
    wiring = RankStdio(spec, ask.get("user"))
    folder = ask["working_directory"]
    child = Child(ask.get("user"), folder)
    environment = {**ask["environment"], **spec["environment"]}
    environment["STOKER_CHANNEL"] = str(wiring.theirs.fileno())

    try:
        process = child.start(
            spec["command"],
            stdout=wiring.outputs[0],
            stderr=wiring.outputs[1],
            env=environment,
            pass_fds=(wiring.theirs.fileno(),),
        )
    except BaseException:
        wiring.ours.close()
        raise
    finally:
        wiring.let_go()
    # reaped by the loop; a Popen that is let go of would look for it
    process.returncode = 0
    return Rank(spec, process.pid, wiring.ours)


class Child:
    """A process about to be started in a folder, as a user (name, uid, gid) or, None, as the keeper itself."""

    def __init__(self, user: Message | None, folder: str) -> None:
        self._user = user
        self._folder = folder
        self._keeper = os.getpid()

    def start(self, command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        """Start it; raises OSError, ValueError or SubprocessError when that cannot be done."""
        entrance, told = os.pipe()
        try:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                # A folder that only the user may enter is entered as the user.
                cwd=None if self._user else self._folder or None,
                # safe: the keeper has one thread
                preexec_fn=lambda: self._become(told),
                **options,
            )
        except subprocess.SubprocessError as error:
            os.set_blocking(entrance, False)
            try:
                reason = os.read(entrance, 1000).decode(errors="replace")
            except BlockingIOError:
                reason = str(error)
            raise subprocess.SubprocessError(reason) from error
        finally:
            os.close(entrance)
            os.close(told)

    def _become(self, told: int) -> None:
        """Become the user, die with the keeper, and take signals as a program does that was started from a shell."""
        if self._user is not None:
            try:
                os.initgroups(self._user["name"], self._user["gid"])
                os.setgid(self._user["gid"])
                os.setuid(self._user["uid"])
                if self._folder:
                    os.chdir(self._folder)
            except OSError as error:
                os.write(told, f"as user {self._user['name']}: {error}".encode())
                raise
        # After the change of user, which would undo it.
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        # died before the line above took effect
        if os.getppid() != self._keeper:
            os._exit(1)
        for number in (*_EXIT_SIGNALS, signal.SIGQUIT, signal.SIGCHLD):
            # An ignored signal would stay ignored through exec.
            signal.signal(number, signal.SIG_DFL)


def _appended(path: str, user: Message | None = None) -> int:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    if user is not None:
        try:
            # so that /dev/stdout can be opened
            os.fchown(descriptor, user["uid"], user["gid"])
        except OSError:
            # a file system that keeps root out
            pass
    return descriptor


# ---- the warm process -----------------------------------------------------------------------------------------------


class Warm:
    """A warm process: what it was to import, and whether it has. `reason` says why it is `odd` or `dead`."""

    def __init__(self, wish: Message, folder: str) -> None:
        """Start it; raises OSError, ValueError or SubprocessError when that cannot be done."""
        self.wish = wish
        self.state = "importing"
        self.reason = ""
        self.versions: Message = {}
        self.is_reaped = False
        child = Child(wish.get("user"), wish["working_directory"])
        self.stream, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        room = "x" * _ROOM_BYTES
        program = str(Path(__file__).absolute().with_name("warm.py"))
        environment = {**wish["environment"], MARK: folder, _ROOM_VARIABLE: room}
        output = _appended(WARM_LOG_NAME)
        try:
            self.child = child.start(
                [*wish["interpreter"], program, str(theirs.fileno()), room],
                stdout=output,
                stderr=output,
                env=environment,
                pass_fds=(theirs.fileno(),),
            )
            self._send("wish", {**wish, "keeper": folder}, [])
        except BaseException:
            self.stream.close()
            raise
        finally:
            os.close(output)
            theirs.close()

    def ask(self, job: Message, descriptors: list[int]) -> None:
        """Ask for ranks; raises OSError when it takes no more."""
        self._send("fork", job, descriptors)

    def _send(self, what: str, message: Message, descriptors: list[int]) -> None:
        # In a file of its own: an environment may be larger than a packet.
        held = os.memfd_create(what)
        try:
            with open(held, "wb", closefd=False) as file:
                file.write(json.dumps(message).encode())
            rights = array.array("i", [held, *descriptors])
            self.stream.sendmsg([what.encode()], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        finally:
            os.close(held)

    def hear(self) -> Message | None:
        """Return what it says: None: nothing yet; empty: it is gone. Never waits."""
        try:
            packet = self.stream.recv(MAX_PACKET_BYTES, socket.MSG_DONTWAIT)
            return dict(json.loads(packet or b"{}"))
        except BlockingIOError:
            return None
        except (OSError, ValueError):
            return {}

    def end(self) -> None:
        """Let go of it and kill it; the loop reaps it."""
        self.stream.close()
        self.kill()

    def kill(self) -> None:
        """Kill it and what it has started, as long as its group is its own."""
        if not self.is_reaped:
            try:
                os.killpg(self.child.pid, signal.SIGKILL)
            except ProcessLookupError:
                # between fork and exec it leads no group yet
                send_signal([self.child.pid], signal.SIGKILL)


class Forking:
    """Ranks that a warm process was asked for: they wait at `gate` until all are known here."""

    def __init__(self, ask: Message) -> None:
        """Open what they are connected to; raises OSError."""
        self.ask = ask
        self.job = time.monotonic_ns()
        self.deadline = time.monotonic() + _FORK_SECONDS
        self.wirings: list[RankStdio] = []
        self.gate = -1
        try:
            for spec in ask["ranks"]:
                self.wirings.append(RankStdio(spec, ask.get("user")))
        except OSError:
            self.call_off()
            raise

    def request(self, warm: Warm) -> None:
        """Send the job; raises OSError."""
        names = ("rank", "argv", "shown", "name", "environment")
        ranks = [{name: spec[name] for name in names} for spec in self.ask["ranks"]]
        job = {
            "job": self.job,
            "keeper": os.getpid(),
            "environment": self.ask["environment"],
            "working_directory": self.ask["working_directory"],
            "ranks": ranks,
        }
        entrance, self.gate = os.pipe()
        descriptors = [entrance]
        for wiring in self.wirings:
            descriptors += [wiring.theirs.fileno(), *wiring.outputs]
        try:
            warm.ask(job, descriptors)
        finally:
            os.close(entrance)

    def take(self, pids: dict[str, int]) -> list[Rank]:
        """Return the ranks, and let them go; raises OSError when one is dead already, with all called off."""
        ranks: list[Rank] = []
        try:
            for wiring in self.wirings:
                pid = pids[str(wiring.spec["rank"])]
                ranks += [Rank(wiring.spec, pid, wiring.ours)]
            os.write(self.gate, b"g" * len(ranks))
        except OSError:
            # one is reaped already, or nobody is left at the gate
            for rank in ranks:
                rank.close()
            self.call_off()
            raise
        for wiring in self.wirings:
            wiring.let_go()
        os.close(self.gate)
        self.gate = -1
        return ranks

    def call_off(self) -> None:
        """Let nothing of it live: ranks that wait at a closed gate end."""
        if self.gate >= 0:
            os.close(self.gate)
            self.gate = -1
        for wiring in self.wirings:
            wiring.let_go()
            wiring.ours.close()
        self.wirings = []


# ---- the keeper -----------------------------------------------------------------------------------------------------


class Connection:
    """One agent's connection: lines in; lines out, some with a descriptor, never blocking."""

    def __init__(self, stream: socket.socket) -> None:
        self.stream = stream
        self.stream.setblocking(False)
        self._received = b""
        self._waiting: collections.deque[tuple[bytes, tuple[int, ...]]] = collections.deque()

    @property
    def is_behind(self) -> bool:
        """Whether something still waits to be sent."""
        return bool(self._waiting)

    def receive(self) -> list[Message]:
        """Return the whole messages that came; raises OSError at the end of the connection."""
        data = self.stream.recv(1 << 18)
        if not data:
            raise ConnectionResetError("the agent closed the connection")
        *lines, self._received = (self._received + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def tell(self, message: Message, descriptors: tuple[int, ...] = ()) -> None:
        """Queue a message and send what can be sent."""
        self._waiting.append((json.dumps(message).encode() + b"\n", descriptors))

    def flush(self) -> None:
        """Send what the agent takes now; raises OSError when the connection is gone."""
        while self._waiting:
            data, descriptors = self._waiting[0]
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
            try:
                sent = self.stream.sendmsg([data], rights if descriptors else [])
            except BlockingIOError:
                return
            if sent == len(data):
                self._waiting.popleft()
            else:
                # descriptors travel with the first byte
                self._waiting[0] = (data[sent:], ())


class Ending:
    """Ranks being ended: when to look next, whom to wait for, what to tell then."""

    def __init__(self, tell: Message, sweep: OrphanReaper, *, is_half_done: bool) -> None:
        """`is_half_done`: only the ranks themselves were killed, and the next look is to find the others."""
        self.tell = tell
        self.sweep = sweep
        self.is_half_done = is_half_done
        self.awaited: set[int] = set()
        self.pause_seconds = _FIRST_PRESS_SECONDS
        self.look_at = time.monotonic()


class Keeper:
    """The loop: one agent, one gang at a time."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._selector = selectors.DefaultSelector()
        self._agent: Connection | None = None
        self._agentless_since = time.monotonic()
        # attempt, epoch, notes: as the agent gave them
        self._gang: Message = {}
        self._shared_before: frozenset[tuple[str, int]] = frozenset()
        self._ranks: dict[int, Rank] = {}
        self._by_pid: dict[int, Rank] = {}
        self._ending: Ending | None = None
        self._warm: Warm | None = None
        # by pid, until they are reaped
        self._warms: dict[int, Warm] = {}
        self._forking: Forking | None = None
        self._signs: tuple[tuple[int, ...], ...] = ()
        self._signs_changed_at = self._agentless_since
        self._is_leaving = False

    def run(self, listener: socket.socket) -> None:
        """Serve until the ranks are gone and nobody needs a keeper."""
        wake_in, wake_out = socket.socketpair()
        wake_in.setblocking(False)
        wake_out.setblocking(False)
        signal.set_wakeup_fd(wake_out.fileno(), warn_on_full_buffer=False)
        for number in (*_EXIT_SIGNALS, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        self._watch(listener, lambda: self._accept(listener))
        self._watch(wake_in, lambda: self._signalled(wake_in))
        while not self._is_over():
            for key, _ in self._selector.select(self._timeout_seconds()):
                key.data()
            self._look()
            self._flush()
        self._end_warm()
        signal.set_wakeup_fd(-1)
        deadline = time.monotonic() + self._options.kill_wait_seconds
        while self._warms and time.monotonic() < deadline:
            self._reap()
            time.sleep(_FIRST_PRESS_SECONDS)

    def _watch(self, descriptor: Any, callback: Callable[[], None]) -> None:
        self._selector.register(descriptor, selectors.EVENT_READ, callback)

    def _is_over(self) -> bool:
        if self._ending is not None:
            return False
        if self._is_leaving:
            return self._agent is None or not self._agent.is_behind
        unused = self._agent is None and not self._by_pid
        return unused and time.monotonic() - self._agentless_since >= _UNUSED_SECONDS

    def _timeout_seconds(self) -> float | None:
        now = time.monotonic()
        if self._ending is not None:
            return max(0.0, self._ending.look_at - now)
        if self._forking is not None:
            return max(0.0, self._forking.deadline - now)
        if self._agent is None and self._by_pid:
            limit_seconds = self._options.hard_cap_seconds or _LOOK_SECONDS
            return float(min(_LOOK_SECONDS, limit_seconds / 4))
        if self._agent is None:
            return max(0.0, self._agentless_since + _UNUSED_SECONDS - now)
        return None

    # -- agents

    def _accept(self, listener: socket.socket) -> None:
        stream, _ = listener.accept()
        if self._agent is not None:
            self._lose_agent()
        self._agent = Connection(stream)
        self._watch(stream, self._hear)

    def _lose_agent(self) -> None:
        if self._agent is not None:
            self._selector.unregister(self._agent.stream)
            self._agent.stream.close()
            self._agent = None
            self._agentless_since = self._signs_changed_at = time.monotonic()
            self._call_off_forking()

    def _hear(self) -> None:
        if self._agent is None:
            return
        try:
            asks = self._agent.receive()
        except BlockingIOError:
            return
        except (OSError, ValueError):
            self._lose_agent()
            return
        for ask in asks:
            self._answer(ask)

    def _answer(self, ask: Message) -> None:
        doers = {
            "hello": self._on_hello,
            "warm": self._on_warm,
            "spawn": self._on_spawn,
            "signal": self._on_signal,
            "kill": self._on_kill,
            "note": self._on_note,
            "acknowledge": self._on_acknowledge,
            "end": self._on_end,
        }
        try:
            doers[ask["ask"]](ask)
        except (LookupError, TypeError, ValueError) as error:
            # An agent of another release may ask for what we do not know; ranks must not die of that.
            sys.stderr.write(f"cannot do {str(ask)[:200]}: {error!r}\n")

    def _tell(self, message: Message, descriptors: tuple[int, ...] = ()) -> None:
        if self._agent is not None:
            self._agent.tell(message, descriptors)

    def _flush(self) -> None:
        if self._agent is None:
            return
        try:
            self._agent.flush()
        except OSError:
            self._lose_agent()
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._agent.is_behind else 0)
        self._selector.modify(self._agent.stream, events, self._hear)

    # -- what an agent asks for

    def _on_hello(self, ask: Message) -> None:
        ranks = []
        for rank in self._ranks.values():
            self._tell({"tell": "channel", "rank": rank.number}, (rank.channel.fileno(),))
            if rank.held:
                packets = [packet.decode("latin-1") for packet in rank.held]
                self._tell({"tell": "held", "rank": rank.number, "packets": packets})
                rank.held.clear()
                rank.held_bytes = 0
            ranks.append(_described(rank))
        self._tell(
            {
                "tell": "state",
                "protocol": PROTOCOL,
                "abilities": ABILITIES,
                "pid": os.getpid(),
                "ranks": ranks,
                **self._gang,
            }
        )

    def _on_spawn(self, ask: Message) -> None:
        if self._ranks or self._ending is not None or self._forking is not None:
            reason = f"the keeper still holds ranks of attempt {self._gang.get('attempt')}; end them first"
            self._tell({"tell": "failed", "reason": reason})
            return
        self._gang = {name: ask[name] for name in ("attempt", "epoch", "notes")}
        self._shared_before = _shared()
        if ask.get("fork"):
            self._fork(ask)
        else:
            self._spawn(ask, cold=ask.get("cold", ""))

    def _spawn(self, ask: Message, *, cold: str) -> None:
        """Start all ranks as fresh processes; `cold`: why they are not forked although that was asked for."""
        for spec in ask["ranks"]:
            try:
                self._add(spawn_rank(spec, ask))
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                self._end({"tell": "failed", "reason": _why(error, spec, ask)})
                return
        self._tell_started(cold=cold)

    def _tell_started(self, *, cold: str) -> None:
        self._gang["cold"] = cold
        for rank in self._ranks.values():
            self._tell({"tell": "channel", "rank": rank.number}, (rank.channel.fileno(),))
        ranks = [_described(rank) for rank in self._ranks.values()]
        self._tell({"tell": "started", "ranks": ranks, "cold": cold})

    # -- forking from a warm process

    def _on_warm(self, ask: Message) -> None:
        wish = ask["wish"]
        if self._warm is not None and self._warm.wish == wish and self._warm.state != "dead":
            self._tell_warm()
            return
        self._end_warm()
        if not wish:
            return
        try:
            self._warm = warm = Warm(wish, self._options.folder)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            reason = f"cannot start {wish['interpreter'][0]!r} to warm it up: {error}"
            told = {"wish": wish, "state": "dead", "reason": reason, "pid": 0, "versions": {}}
            self._tell({"tell": "warm", **told})
            return
        self._warms[warm.child.pid] = warm
        # reaped by the loop, like ranks
        warm.child.returncode = 0
        self._watch(warm.stream, lambda: self._hear_warm(warm))

    def _end_warm(self) -> None:
        warm, self._warm = self._warm, None
        if warm is None:
            return
        if warm.stream.fileno() >= 0:
            self._selector.unregister(warm.stream)
        warm.end()
        if self._forking is not None:
            self._fork_refused("the warm process was ended")

    def _hear_warm(self, warm: Warm) -> None:
        said = warm.hear() if warm is self._warm else None
        # it was replaced in this very turn, or there is nothing yet
        if said is None:
            return
        tell = said.get("tell")
        if tell in ("ready", "odd"):
            warm.state, warm.reason = tell, said.get("reason", "")
            warm.versions = said.get("versions", {})
            self._tell_warm()
        elif tell == "refused":
            self._fork_refused(said["reason"], job=said["job"])
            # Whatever it has imported is not what a fresh process would import: another is to be made.
            self._bury_warm(said["reason"])
        elif tell == "forked":
            self._forked(said)
        elif warm.state == "odd":
            # and has ended, as it does
            self._selector.unregister(warm.stream)
            warm.end()
        else:
            self._bury_warm("the warm process died")

    def _bury_warm(self, reason: str) -> None:
        warm = self._warm
        if warm is None or warm.state == "dead":
            return
        warm.state, warm.reason = "dead", reason
        self._selector.unregister(warm.stream)
        warm.end()
        self._tell_warm()
        if self._forking is not None:
            self._fork_refused(reason)

    def _tell_warm(self) -> None:
        if self._warm is not None:
            warm = self._warm
            told = {"wish": warm.wish, "state": warm.state, "reason": warm.reason}
            about = {"pid": warm.child.pid, "versions": warm.versions}
            self._tell({"tell": "warm", **told, **about})

    def _fork(self, ask: Message) -> None:
        warm = self._warm
        if warm is None or warm.state != "ready":
            self._spawn(ask, cold=warm.reason if warm is not None else "there is no warm process")
            return
        if warm.wish.get("user") != ask.get("user"):
            self._spawn(ask, cold="the warm process is of another user")
            return
        try:
            forking = Forking(ask)
        except OSError as error:
            self._end({"tell": "failed", "reason": _why(error, ask["ranks"][0], ask)})
            return
        self._forking = forking
        try:
            forking.request(warm)
        except OSError as error:
            self._fork_refused(f"the warm process cannot be asked: {error}")

    def _forked(self, said: Message) -> None:
        forking = self._forking
        if forking is None or said["job"] != forking.job:
            # called off meanwhile
            return
        self._forking = None
        try:
            ranks = forking.take(said["pids"])
        except OSError as error:
            self._spawn(forking.ask, cold=f"a forked rank died before it ran: {error}")
            return
        for rank in ranks:
            self._add(rank)
        self._tell_started(cold="")

    def _call_off_forking(self) -> None:
        """Nothing of ranks that wait at the gate has run yet: they end, as if they had never been asked for."""
        forking, self._forking = self._forking, None
        if forking is not None:
            forking.call_off()
            self._gang = {}

    def _fork_refused(self, reason: str, *, job: int | None = None) -> None:
        """Start as fresh processes what a warm process will not, or cannot, fork."""
        forking = self._forking
        if forking is None or job not in (None, forking.job):
            return
        self._forking = None
        forking.call_off()
        self._spawn(forking.ask, cold=reason)

    def _add(self, rank: Rank) -> None:
        self._ranks[rank.number] = self._by_pid[rank.pid] = rank
        self._watch(rank.pidfd, self._reap)

    def _on_signal(self, ask: Message) -> None:
        rank = self._ranks.get(ask["rank"])
        # not reaped, so the pid is still its own
        if rank is not None and rank.is_alive:
            rank.asked = rank.asked or ask["asked"]
            send_signal([rank.pid], ask["signal"])

    def _on_acknowledge(self, ask: Message) -> None:
        if ask["epoch"] == self._gang.get("epoch") and ask["rank"] in self._ranks:
            self._ranks[ask["rank"]].acknowledged = True

    def _on_note(self, ask: Message) -> None:
        if ask["epoch"] == self._gang.get("epoch"):
            self._gang["notes"] = ask["notes"]

    def _on_kill(self, ask: Message) -> None:
        if ask.get("attempt"):
            self._gang.setdefault("attempt", ask["attempt"])
        self._end({"tell": "gone", "epoch": ask["epoch"]})

    def _on_end(self, ask: Message) -> None:
        self._is_leaving = True
        self._end({"tell": "gone", "epoch": self._gang.get("epoch", 0)})

    # -- deaths

    def _signalled(self, wake_in: socket.socket) -> None:
        numbers = wake_in.recv(256)
        if any(number in numbers for number in _EXIT_SIGNALS):
            self._is_leaving = True
            self._end({"tell": "gone", "epoch": self._gang.get("epoch", 0)})
        self._reap()

    def _reap(self) -> None:
        while True:
            try:
                seen = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if seen is None:
                return
            warm = self._warms.pop(seen.si_pid, None)
            if (
                warm is not None
                # its group is its own until it is reaped: what a preload has started ends with it
            ):
                warm.kill()
                warm.is_reaped = True
            self._reaped(*os.waitpid(seen.si_pid, 0))

    def _reaped(self, pid: int, status: int) -> None:
        rank = self._by_pid.pop(pid, None)
        if rank is None:
            if self._ending is not None and pid in self._ending.awaited:
                self._ending.look_at = time.monotonic()
            # else left behind by a rank and inherited by us
            return
        rank.exit_code = os.waitstatus_to_exitcode(status)
        self._selector.unregister(rank.pidfd)
        os.close(rank.pidfd)
        rank.pidfd = -1
        if self._ranks.get(rank.number) is rank:
            self._tell({"tell": "exited", "epoch": self._gang["epoch"], **_described(rank)})
        else:
            rank.close()
        if self._ending is not None:
            self._ending.look_at = time.monotonic()

    def _end(self, tell: Message) -> None:
        """Kill all ranks at once; `tell` goes out when they are gone, or not gone in time."""
        if self._forking is not None:
            attempt = self._gang.get("attempt", "")
            self._call_off_forking()
            self._gang = {"attempt": attempt}
        # What a tracker would remove is a file that came since the gang. Without such a file whole groups can be killed,
        # which costs no look through /proc.
        shares = not _shared() <= self._shared_before
        for rank in self._ranks.values():
            if rank.is_alive:
                rank.asked = True
                _kill_rank(rank.pid, with_group=not shares)
        sweep = OrphanReaper(wait_seconds=self._options.kill_wait_seconds, last=self._is_leaving)
        self._ending = Ending(tell, sweep, is_half_done=shares)

    def _look(self) -> None:
        now = time.monotonic()
        if self._forking is not None and now >= self._forking.deadline:
            self._bury_warm(f"the warm process did not fork within {_FORK_SECONDS:g} s")
        if self._ending is not None and now >= self._ending.look_at:
            self._press(self._ending, now)
        if self._agent is None and self._by_pid and self._ending is None:
            self._look_after_orphans(now)

    def _press(self, ending: Ending, now: float) -> None:
        """See whether all are gone; kill what is left; give up on it when the time is over."""
        alive = [rank for rank in self._ranks.values() if rank.is_alive]
        is_early = ending.pause_seconds < _LAST_PRESS_SECONDS and now < ending.sweep.deadline
        found: dict[int, dict[str, str]] = {}
        # No look through /proc before their first chance to die, if the groups were killed.
        if ending.is_half_done or not (alive and is_early):
            found = ending.sweep.strike(strays(self._mark(), keeper=os.getpid()))
            ending.is_half_done = False
        ending.awaited = set(found)
        if (alive or found) and now < ending.sweep.deadline:
            ending.look_at = now + ending.pause_seconds
            ending.pause_seconds = min(2 * ending.pause_seconds, _LAST_PRESS_SECONDS)
            return
        left_behind = {rank.number for rank in alive}
        left_behind.update(rank_of(environment) for environment in found.values())
        self._tell({**ending.tell, "left_behind": sorted(left_behind)})
        for rank in self._ranks.values():
            if not rank.is_alive:
                rank.close()
        self._ranks, self._gang, self._ending = {}, {}, None

    def _mark(self) -> dict[str, str]:
        attempt = self._gang.get("attempt")
        if not attempt:
            return {}
        options = self._options
        return {
            "STOKER_CLUSTER": options.cluster,
            "STOKER_NODE": options.node,
            "STOKER_ATTEMPT": attempt,
        }

    def _look_after_orphans(self, now: float) -> None:
        """Without an agent: let ranks go on while they advance, but not for ever when they do not."""
        for rank in self._ranks.values():
            rank.drain()
        signs = tuple(rank.signs() for rank in self._ranks.values() if rank.is_alive)
        if signs != self._signs:
            self._signs, self._signs_changed_at = signs, now
        limit_seconds = self._options.hard_cap_seconds
        if limit_seconds and now - self._signs_changed_at >= limit_seconds:
            # Not asked for by an agent: the next one is to report these as exits.
            send_signal(
                [rank.pid for rank in self._ranks.values() if rank.is_alive], signal.SIGKILL
            )


def _kill_rank(pid: int, *, with_group: bool) -> None:
    if with_group:
        try:
            os.killpg(pid, signal.SIGKILL)
            return
        except ProcessLookupError:
            # it leads no group of its own yet
            pass
    send_signal([pid], signal.SIGKILL)


def _described(rank: Rank) -> Message:
    return {
        "rank": rank.number,
        "pid": rank.pid,
        "exit_code": rank.exit_code,
        "asked": rank.asked,
        "acknowledged": rank.acknowledged,
    }


def rank_of(environment: dict[str, str]) -> int:
    """Return the rank that a process of ours belongs to; -1 when its environment does not tell."""
    number = environment.get("RANK", "")
    return int(number) if number.isdecimal() else -1


def _why(error: Exception, spec: Message, ask: Message) -> str:
    if isinstance(error, FileNotFoundError) and error.filename == ask["working_directory"]:
        return f"working_directory {error.filename!r} does not exist"
    if isinstance(error, OSError) and error.errno == errno.E2BIG:
        return f"rank {spec['rank']}: its command or environment is too long for the system"
    return f"rank {spec['rank']}: cannot start {spec['command'][0]!r}: {error}"


# ---- start ----------------------------------------------------------------------------------------------------------


def main() -> int:
    """Serve the node folder given on the command line; say `ready` on standard output once agents may connect."""
    parser = argparse.ArgumentParser(description="Parent of a node's ranks; started by an agent.")
    parser.add_argument("--folder", required=True)
    parser.add_argument("--cluster", required=True)
    parser.add_argument("--node", required=True)
    parser.add_argument("--hard-cap-seconds", type=float, default=0.0)
    parser.add_argument("--kill-wait-seconds", type=float, default=1.0)
    options = parser.parse_args()
    os.chdir(
        options.folder
        # names in here are short enough for a socket's address, wherever the folder is
    )
    lock = os.open(LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if not _locked(lock):
        sys.stderr.write(f"another keeper serves {options.folder}\n")
        return 1
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    listener = _listen()
    _note()
    os.write(1, b"ready\n")
    os.dup2(os.open(os.devnull, os.O_RDWR), 1)
    Keeper(options).run(listener)
    for name in (SOCKET_NAME, NOTE_NAME):
        Path(name).unlink(missing_ok=True)
    return 0


def _locked(descriptor: int) -> bool:
    deadline = time.monotonic() + _LOCK_WAIT_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)
        else:
            return True


def _listen() -> socket.socket:
    Path(SOCKET_NAME).unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # whoever may connect may start programs as us
    before = os.umask(0o177)
    listener.bind(SOCKET_NAME)
    os.umask(before)
    listener.listen(8)
    return listener


def _note() -> None:
    """Write down who we are, for an agent or a probe that looks from outside."""
    me = process(os.getpid())
    assert me is not None
    scratch = Path(f"{NOTE_NAME}.{me.pid}")
    scratch.write_text(
        json.dumps({"pid": me.pid, "start_ticks": me.start_ticks, "protocol": PROTOCOL})
    )
    scratch.rename(NOTE_NAME)


if __name__ == "__main__":
    sys.exit(main())
