"""Hosts on one machine: each a network namespace and a pid namespace of its own, on one switch, to kill, cut off and restart.

The switch is a bridge of this machine, whose own address (`Network.address`) is where stores listen. A host dies as a whole when
its first process is killed. Processes of a host are visible from here in /proc, under the pids of this machine.
"""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import pytest

TOOLS = ("ip", "nft", "nsenter", "tc", "unshare")
INSTALL = "tests/install-tools.sh installs them"
# For a host to have its first process, on a loaded machine; chosen.
UP_SECONDS = 20.0
NAMESPACES = Path("/var/run/netns")
# The first process of a host: it reaps orphans, and does nothing else.
_FIRST = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
print("up", flush=True)
while True:
    signal.sigwait([signal.SIGCHLD])
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
"""


def why_not() -> str:
    """Return why this machine can have no hosts; empty when it can."""
    missing = [name for name in TOOLS if shutil.which(name) is None]
    if missing:
        return f"no {', '.join(missing)} on this machine; {INSTALL}"
    if os.geteuid() != 0:
        return "hosts are network namespaces, which only root can make"
    tried = subprocess.run(
        ["unshare", "--net", "true"], capture_output=True, text=True, check=False
    )
    return "" if tried.returncode == 0 else f"no network namespaces here: {tried.stderr.strip()}"


def require_hosts() -> None:
    """Skip a test where this machine can have no hosts. Continuous integration installs what they need, so there it fails."""
    reason = why_not()
    if reason and os.environ.get("CI") == "true":
        pytest.fail(reason)
    if reason:
        pytest.skip(reason)


@dataclass(slots=True)
class Host:
    """One host. Everything on it dies with `kill`; files on the disk stay for the next `start`."""

    name: str
    address: str
    namespace: str
    # Of the switch: the outer end of its link.
    port: str
    environment: Mapping[str, str]
    _first: subprocess.Popen[str] | None = None
    # Of its first process, as seen from here.
    _pid: int = 0
    _running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> None:
        """Bring the host up, with nothing on it."""
        assert self._first is None, f"{self.name} is up"
        inside = (
            "sh",
            "-c",
            f'hostname {self.name}; exec {shlex.quote(sys.executable)} -c "$0"',
            _FIRST,
        )
        spaces = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--uts")
        self._first = subprocess.Popen(
            ["nsenter", f"--net={NAMESPACES / self.namespace}", *spaces, *inside],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            # unshare complains, to no effect, when its child is made to die with it
            stderr=subprocess.DEVNULL,
            text=True,
            env=dict(self.environment),
        )
        assert self._first.stdout is not None
        assert self._first.stdout.readline() == "up\n", f"{self.name} did not come up"
        children = Path(f"/proc/{self._first.pid}/task/{self._first.pid}/children")
        deadline = time.monotonic() + UP_SECONDS
        while not (found := children.read_text().split()):
            assert time.monotonic() < deadline, f"{self.name} has no first process"
            time.sleep(0.01)
        self._pid = int(found[0])

    def run(
        self, *words: str, folder: Path, output: IO[bytes], **environment: str
    ) -> subprocess.Popen[bytes]:
        """Start a program on the host; it runs until it exits, or the host is killed."""
        assert self._first is not None, f"{self.name} is down"
        spaces = ("--pid", "--net", "--uts", "--mount")
        process = subprocess.Popen(
            ["nsenter", "--target", str(self._pid), *spaces, f"--wdns={folder}", "--", *words],
            cwd=folder,
            env={**self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        self._running.append(process)
        return process

    def kill(self) -> None:
        """Lose the host: kill every process on it at once."""
        if self._first is None:
            return
        with contextlib.suppress(ProcessLookupError):
            # A host that did not come up has no first process of its own; pid 0 would be our own group.
            os.kill(self._pid or self._first.pid, signal.SIGKILL)
        self._first.wait(UP_SECONDS)
        for process in self._running:
            process.wait(UP_SECONDS)
        self._first, self._running, self._pid = None, [], 0

    def ended(self) -> list[int]:
        """Wait for the programs that were started here since the host was, and return their exit codes."""
        return [process.wait(UP_SECONDS) for process in self._running]

    @property
    def program(self) -> subprocess.Popen[bytes]:
        """The program that was started here last."""
        return self._running[-1]

    def cut(self) -> None:
        """Pull its cable: no packet goes in or out."""
        _call("ip", "link", "set", self.port, "down")

    def drop_inbound(self, *, source: str) -> None:
        """Drop packets from `source` to this host; packets of this host still go out."""
        self._drop("input", f"ip saddr {source}")

    def drop_outbound(self, *, destination: str) -> None:
        """Drop packets from this host to `destination`; packets from there still arrive."""
        self._drop("output", f"ip daddr {destination}")

    def limit(self, *, mbit: int) -> None:
        """Carry at most so many megabits a second over its cable, each way."""
        inside = ("nsenter", f"--net={NAMESPACES / self.namespace}")
        # A burst of some packets, and room for what TCP sends before it notices.
        bucket = ("root", "tbf", "rate", f"{mbit}mbit", "burst", "128kb", "limit", "1mb")
        _call("tc", "qdisc", "replace", "dev", self.port, *bucket)
        _call(*inside, "tc", "qdisc", "replace", "dev", f"{self.port}i", *bucket)

    def reconnect(self) -> None:
        """Undo all cuts."""
        _call("ip", "link", "set", self.port, "up")
        self._nft("delete table inet cut", may_fail=True)

    def received_bytes(self) -> int:
        """Return how much has come to it over its cable."""
        return int(Path(f"/sys/class/net/{self.port}/statistics/tx_bytes").read_text())

    def _drop(self, hook: str, what: str) -> None:
        self._nft("add table inet cut")
        self._nft(f"add chain inet cut {hook} {{ type filter hook {hook} priority 0; }}")
        self._nft(f"add rule inet cut {hook} {what} drop")

    def _nft(self, rule: str, *, may_fail: bool = False) -> None:
        space = f"--net={NAMESPACES / self.namespace}"
        _call("nsenter", space, "nft", rule, may_fail=may_fail)


class Network:
    """A switch and the hosts on it, as a context; its exit removes all of it."""

    def __init__(self, names: Sequence[str]) -> None:
        self._tag = uuid.uuid4().hex[:5]
        self._switch = f"stk{self._tag}"
        self._prefix = _free_prefix()
        self.address = f"{self._prefix}.1"
        self.subnet = f"{self._prefix}.0/24"
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        self.hosts = {
            name: Host(
                name=name,
                address=f"{self._prefix}.{10 + index}",
                namespace=f"stk{self._tag}-{name}",
                port=f"sk{self._tag}{index}",
                environment=environment,
            )
            for index, name in enumerate(names)
        }

    def __enter__(self) -> Self:
        """Make the switch, plug the hosts in, and bring them up."""
        try:
            _call("ip", "link", "add", self._switch, "type", "bridge")
            _call("ip", "address", "add", f"{self.address}/24", "dev", self._switch)
            _call("ip", "link", "set", self._switch, "up")
            for host in self.hosts.values():
                self._plug_in(host)
                host.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Kill the hosts and remove the network."""
        self._remove()

    def _plug_in(self, host: Host) -> None:
        inner = f"{host.port}i"
        _call("ip", "netns", "add", host.namespace)
        _call("ip", "link", "add", host.port, "type", "veth", "peer", "name", inner)
        _call("ip", "link", "set", host.port, "master", self._switch, "up")
        _call("ip", "link", "set", inner, "netns", host.namespace)
        inside = ("ip", "-n", host.namespace)
        _call(*inside, "address", "add", f"{host.address}/24", "dev", inner)
        _call(*inside, "link", "set", inner, "up")
        _call(*inside, "link", "set", "lo", "up")

    def _remove(self) -> None:
        for host in self.hosts.values():
            host.kill()
            _call("ip", "link", "del", host.port, may_fail=True)
            _call("ip", "netns", "del", host.namespace, may_fail=True)
        _call("ip", "link", "del", self._switch, may_fail=True)


@contextlib.contextmanager
def network(*names: str) -> Iterator[Network]:
    """Give a network with hosts of these names, all up."""
    with Network(names) as made:
        yield made


def _free_prefix() -> str:
    """Choose three quarters of an address that no route of this machine covers."""
    routes = _call("ip", "-4", "route", "show", "table", "all")
    for number in uuid.uuid4().bytes:
        prefix = f"10.213.{number}"
        if f"{prefix}." not in routes:
            return prefix
    raise AssertionError("no free network 10.213.x.0/24 on this machine")


def _call(*words: str, may_fail: bool = False) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert may_fail or done.returncode == 0, f"{' '.join(words)}: {done.stderr.strip()}"
    return done.stdout
