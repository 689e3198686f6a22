"""Places: how agents get onto nodes, are looked at from outside, and are ended. One noun per kind of place.

`LocalProvider` plays nodes with processes on this machine: each node is a folder, an agent and a keeper of its own. Nodes on
other machines are in `joined`; ssh and Slurm implement the same verbs one day.
"""

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
from typing import Protocol

from runner.errors import TemporaryError, UserError
from runner.facts.actions import Outcome
from runner.facts.messages.signals import Signal
from runner.facts.specs.cluster import ClusterSpec
from runner.keeper import orphans, procfs, protocol
from runner.store.protocol import Lease, Store

# from start to holding its node's lock, on a loaded machine; chosen, not measured
AGENT_START_SECONDS = 20.0
# for an agent to end ranks and keeper when told to; then it is killed; chosen
AGENT_END_SECONDS = 10.0
# register: the machine whose processes the local nodes are
HOST = "place.local"
# while waiting for a process that is not our child
POLL_SECONDS = 0.02


class NodeProvider(Protocol):
    """Somewhere agents run."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes an agent can be started on."""
        ...

    def hear(self, signal: Signal) -> None:
        """Take note of what an agent says: called for every heartbeat, join and leaving, so it must be quick."""
        ...

    def start_agent(self, node: str) -> Outcome:
        """Start an agent; one that is alive is left alone."""
        ...

    def stop_agent(self, node: str) -> Outcome:
        """End the agent, its keeper and all ranks, and whatever else they left on the node."""
        ...

    def probe_node(self, node: str) -> Outcome:
        """Look from outside: {reachable, agent: alive|dead, keeper: alive|dead, ranks_alive: pids}."""
        ...


class LocalProvider:
    """Nodes n1, n2, ... on this machine."""

    def __init__(self, cluster: ClusterSpec) -> None:
        """Nothing is started yet."""
        self._cluster = cluster
        local = cluster.local
        self._nodes = tuple(f"n{index}" for index in range(1, local.nodes + local.spares + 1))
        self._children: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes and spares, in order."""
        return self._nodes

    def hear(self, signal: Signal) -> None:
        """Nothing: /proc knows better."""

    def folder(self, node: str) -> Path:
        """Return the node's folder."""
        return Path(self._cluster.state) / "nodes" / node

    def start_agent(self, node: str) -> Outcome:
        """Start an agent as a process of its own session, so that it outlives us."""
        folder = self.folder(node)
        folder.mkdir(parents=True, exist_ok=True)
        if self._noted(folder / "agent.lock") is not None:
            return "done", {}, "an agent is alive"
        command = [
            sys.executable,
            "-P",
            "-m",
            "runner.agent",
            "--cluster",
            self._spec_file(),
            "--node",
            node,
        ]
        with (folder / "agent.log").open("ab") as log:
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
                return (
                    "failed",
                    {},
                    f"the agent ended with {child.returncode}: {_last_line(folder / 'agent.log')}",
                )
            if self._noted(folder / "agent.lock") == child.pid:
                return "done", {"pid": child.pid}, "started"
            time.sleep(POLL_SECONDS)
        return (
            "failed",
            {"pid": child.pid},
            f"no sign of the agent within {AGENT_START_SECONDS:g} s",
        )

    def stop_agent(self, node: str) -> Outcome:
        """Tell the agent to leave; kill it, its keeper and what carries the node's mark if that takes too long."""
        folder = self.folder(node)
        agent = self._noted(folder / "agent.lock")
        orderly = agent is not None and _end(agent, signal.SIGTERM, wait_seconds=AGENT_END_SECONDS)
        forced = [
            pid
            for pid in (
                self._noted(folder / "agent.lock"),
                self._noted(folder / protocol.PID_FILE_NAME),
            )
            if pid
        ]
        wait_seconds = self._cluster.kill_wait_seconds
        for pid in forced:
            _end(pid, signal.SIGKILL, wait_seconds=wait_seconds)
        self._reap()
        mark = self._mark(node)
        forced += orphans.find_orphans(mark)
        left = sorted(
            orphans.kill_orphans(
                lambda: orphans.find_orphans(mark), wait_seconds=wait_seconds, last=True
            )
        )
        if left:
            return "failed", {"left": left}, f"processes {left} outlived SIGKILL"
        return (
            "done",
            {"forced": len(forced)},
            "left in order" if orderly and not forced else "ended",
        )

    def probe_node(self, node: str) -> Outcome:
        """Read /proc: this machine is always reachable."""
        folder = self.folder(node)
        agent, parent = (
            self._noted(folder / "agent.lock"),
            self._noted(folder / protocol.PID_FILE_NAME),
        )
        found = orphans.find_orphans(self._mark(node), keeper=parent or 0)
        ranks = sorted(pid for pid in found if not orphans.is_resource_tracker(pid))
        detail = {
            "reachable": True,
            "agent": "alive" if agent else "dead",
            "keeper": "alive" if parent else "dead",
            "ranks_alive": ranks,
        }
        return "done", detail, ""

    def _noted(self, note: Path) -> int | None:
        """Return the pid that a note names if that very process is alive."""
        self._reap()
        try:
            noted = json.loads(note.read_text())
            seen = procfs.read_process(int(noted["pid"]))
        except (OSError, ValueError, LookupError, TypeError):
            return None
        same = (
            seen is not None and seen.start_ticks == noted["start_ticks"] and seen.state not in "ZX"
        )
        return int(noted["pid"]) if same else None

    def _mark(self, node: str) -> dict[str, str]:
        return {"STOKER_CLUSTER": self._cluster.name, "STOKER_NODE": node}

    def _spec_file(self) -> str:
        path = Path(self._cluster.state) / "cluster.json"
        if not path.exists():
            raise TemporaryError(f"{path} is not there yet; it is written when a supervisor starts")
        return str(path)

    def _reap(self) -> None:
        with self._lock:
            for child in self._children:
                child.poll()


def check_local_nodes(cluster: ClusterSpec, store: Store) -> None:
    """Raise UserError when the cluster's local nodes are processes of another machine, so that /proc here knows nothing of them."""
    if not cluster.store.address or not LocalProvider(cluster).nodes:
        return
    known = store.get(HOST)
    host = known.payload.decode(errors="replace") if known is not None else ""
    if host not in ("", socket.gethostname()):
        raise UserError(
            f"local.nodes: the local nodes of cluster {cluster.name!r} are processes of {host}, this is {socket.gethostname()}, "
            "from where nothing can be known of them; lead this cluster there, or shut it down and set `local.nodes: 0`, so "
            "that each node's agent is started on its own machine"
        )


def claim_local_nodes(cluster: ClusterSpec, store: Store, lease: Lease) -> None:
    """Write down that the cluster's local nodes are on this machine. Raises UserError when they are on another."""
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
        seen = procfs.read_process(pid)
        if seen is None or seen.state in "ZX" or seen.start_ticks != before.start_ticks:
            return True
        time.sleep(POLL_SECONDS)
    return False


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1][:500] if lines else f"it said nothing in {log}"
