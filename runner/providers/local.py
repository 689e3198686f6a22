"""Nodes that are processes on this machine: each is a folder, an agent and a keeper of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from runner.errors import TemporaryError, UserError
from runner.facts.actions import Outcome
from runner.facts.messages.signals import Signal
from runner.facts.specs.cluster import ClusterSpec
from runner.keeper import orphans, procfs, protocol
from runner.store.protocol import Lease, Store

# From start to holding its node's lock, on a loaded machine; chosen, not measured.
AGENT_START_SECONDS = 20.0
# For an agent to end ranks and keeper after SIGTERM; then it is killed; chosen.
AGENT_END_SECONDS = 10.0
# Register: the machine whose processes the local nodes are.
HOST = "place.local"
# between two looks at a process that is not our child; chosen
POLL_SECONDS = 0.02


class LocalProvider:
    """Nodes n1, n2, ... on this machine. See `NodeProvider`."""

    def __init__(self, cluster: ClusterSpec) -> None:
        self._cluster = cluster
        local = cluster.local
        self._nodes = tuple(f"n{index}" for index in range(1, local.nodes + local.spares + 1))
        self._children: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes and spares, in order."""
        return self._nodes

    def on_signal(self, signal: Signal) -> None:
        """Ignore it: /proc knows better."""

    def folder(self, node: str) -> Path:
        """Return the node's folder."""
        return Path(self._cluster.state) / "nodes" / node

    def start_agent(self, node: str) -> Outcome:
        """Start an agent as a process of its own session, so that it outlives us."""
        folder = self.folder(node)
        folder.mkdir(parents=True, exist_ok=True)
        if self._live_pid(folder / "agent.lock") is not None:
            return "done", {}, "an agent is alive"
        module = [sys.executable, "-P", "-m", "runner.agent"]
        command = [*module, "--cluster", self._spec_file(), "--node", node]
        log_file = folder / "agent.log"
        with log_file.open("ab") as log:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=folder,
                start_new_session=True,
            )
        with self._lock:
            self._children = [known for known in self._children if known.poll() is None] + [child]
        deadline = time.monotonic() + AGENT_START_SECONDS
        while time.monotonic() < deadline:
            if child.poll() is not None:
                message = f"the agent ended with {child.returncode}: {_last_line(log_file)}"
                return "failed", {}, message
            if self._live_pid(folder / "agent.lock") == child.pid:
                return "done", {"pid": child.pid}, "started"
            time.sleep(POLL_SECONDS)
        message = f"the agent did not take its lock within {AGENT_START_SECONDS:g} s"
        return "failed", {"pid": child.pid}, message

    def stop_agent(self, node: str) -> Outcome:
        """Send SIGTERM to the agent; then kill what is left of it, its keeper and all processes of the node."""
        folder = self.folder(node)
        agent = self._live_pid(folder / "agent.lock")
        orderly = agent is not None and _end(agent, signal.SIGTERM, wait_seconds=AGENT_END_SECONDS)
        survivors = (
            self._live_pid(folder / "agent.lock"),
            self._live_pid(folder / protocol.PID_FILE_NAME),
        )
        forced = [pid for pid in survivors if pid]
        wait_seconds = self._cluster.kill_wait_seconds
        for pid in forced:
            _end(pid, signal.SIGKILL, wait_seconds=wait_seconds)
        self._reap()
        environ = self._environ_of(node)
        forced += orphans.find_orphans(environ)
        left = sorted(
            orphans.kill_orphans(
                lambda: orphans.find_orphans(environ), wait_seconds=wait_seconds, last=True
            )
        )
        if left:
            return "failed", {"left": left}, f"processes {left} outlived SIGKILL"
        message = "left in order" if orderly and not forced else "ended"
        return "done", {"forced": len(forced)}, message

    def probe_node(self, node: str) -> Outcome:
        """Read /proc: this machine is always reachable."""
        folder = self.folder(node)
        agent = self._live_pid(folder / "agent.lock")
        parent = self._live_pid(folder / protocol.PID_FILE_NAME)
        pids = orphans.find_orphans(self._environ_of(node), keeper=parent or 0)
        ranks = sorted(pid for pid in pids if not orphans.is_resource_tracker(pid))
        detail = {
            "reachable": True,
            "agent": "alive" if agent else "dead",
            "keeper": "alive" if parent else "dead",
            "ranks_alive": ranks,
        }
        return "done", detail, ""

    def _live_pid(self, file: Path) -> int | None:
        """Return the pid in a file if that very process is alive."""
        self._reap()
        try:
            recorded = json.loads(file.read_text())
            process = procfs.read_process(int(recorded["pid"]))
        except (OSError, ValueError, LookupError, TypeError):
            return None
        if process is None or process.state in "ZX":
            return None
        return int(recorded["pid"]) if process.start_ticks == recorded["start_ticks"] else None

    def _environ_of(self, node: str) -> dict[str, str]:
        return {"STOKER_CLUSTER": self._cluster.name, "STOKER_NODE": node}

    def _spec_file(self) -> str:
        path = Path(self._cluster.state) / "cluster.json"
        if not path.exists():
            raise TemporaryError(
                f"{path} does not exist yet; a supervisor writes it when it starts"
            )
        return str(path)

    def _reap(self) -> None:
        with self._lock:
            for child in self._children:
                child.poll()


def check_local_nodes(cluster: ClusterSpec, store: Store) -> None:
    """Raise UserError when the cluster's local nodes are processes of another machine, which this /proc does not show."""
    if not cluster.store.address or not LocalProvider(cluster).nodes:
        return
    known = store.get(HOST)
    host = known.payload.decode(errors="replace") if known is not None else ""
    if host not in ("", socket.gethostname()):
        raise UserError(
            f"local.nodes: the local nodes of cluster {cluster.name!r} are processes of {host}, and this is "
            f"{socket.gethostname()}, which cannot see them; lead this cluster there, or shut it down and set "
            "`local.nodes: 0`, so that each node's agent is started on its own machine"
        )


def claim_local_nodes(cluster: ClusterSpec, store: Store, lease: Lease) -> None:
    """Record that the cluster's local nodes are on this machine. Raises UserError when they are on another."""
    check_local_nodes(cluster, store)
    if cluster.store.address and LocalProvider(cluster).nodes and store.get(HOST) is None:
        store.put(HOST, socket.gethostname().encode(), fence=lease)


def _end(pid: int, number: signal.Signals, *, wait_seconds: float) -> bool:
    """Send a signal and wait for the process to be gone; True if it is."""
    before = procfs.read_process(pid)
    if before is None:
        return True
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return True
    deadline = time.monotonic() + wait_seconds
    while time.monotonic() < deadline:
        now = procfs.read_process(pid)
        if now is None or now.state in "ZX" or now.start_ticks != before.start_ticks:
            return True
        time.sleep(POLL_SECONDS)
    return False


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1][:500] if lines else f"{log} is empty"
