"""Nodes that are processes on this machine: each is a folder, an agent and a keeper of its own."""

import json
import os
import signal
import socket
import subprocess
import threading
import time
from functools import partial
from pathlib import Path
from typing import Self

from runner.errors import TemporaryError, UserError
from runner.facts.actions import Outcome
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.specs.programs import module_command
from runner.folder_modes import close_folder
from runner.keeper import orphans, procfs, protocol
from runner.providers.protocol import NodeProvider, register
from runner.signer import CLUSTER_NAME, Signer
from runner.store.protocol import Lease, Store

# Until it holds its node's lock, on a loaded machine; until it has ended ranks and keeper after
# SIGTERM, then it is killed. Chosen, not measured.
AGENT_START_SECONDS = 20.0
AGENT_END_SECONDS = 10.0
POLL_SECONDS = 0.02
# Register: the machine whose processes the local nodes are.
HOST = "place.local"


@register
class LocalProvider(NodeProvider):
    """Nodes n1, n2, ... on this machine, spares last. Signals are ignored: /proc knows better."""

    order = 10

    def __init__(self, cluster: ClusterSpec, store: Store) -> None:
        self._cluster, self._store = cluster, store
        local = cluster.local
        self.nodes = tuple(f"n{index}" for index in range(1, local.nodes + local.spares + 1))
        self._children: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()

    @classmethod
    def of_cluster(cls, cluster: ClusterSpec, store: Store, signer: Signer) -> Self:
        return cls(cluster, store)

    def check(self) -> None:
        """Raise UserError when the local nodes are processes of another machine, which this /proc does not show."""
        if not self._is_claimable:
            return
        known = self._store.get(HOST)
        host = known.payload.decode(errors="replace") if known is not None else ""
        if host not in ("", socket.gethostname()):
            raise UserError(
                f"local.nodes: the local nodes of cluster {self._cluster.name!r} are processes of {host}, and this is "
                f"{socket.gethostname()}, which cannot see them; lead this cluster there, or shut it down and set "
                "`local.nodes: 0`, so that each node's agent is started on its own machine"
            )

    def claim(self, lease: Lease) -> None:
        """Record that the local nodes are on this machine."""
        self.check()
        if self._is_claimable and self._store.get(HOST) is None:
            self._store.put(HOST, socket.gethostname().encode(), fence=lease)

    @property
    def _is_claimable(self) -> bool:
        return self._cluster.spans_machines and self.nodes != ()

    def _folder(self, node: str) -> Path:
        return Path(self._cluster.state) / "nodes" / node

    def find_down(self) -> tuple[str, ...]:
        """Read /proc once per node: after a reboot, or when all was killed, there is neither agent nor keeper nor rank."""
        return tuple(node for node in self.nodes if not self._processes_of(node))

    def start_agent(self, node: str) -> Outcome:
        """Start an agent as a process of its own session, so that it outlives us."""
        folder = self._folder(node)
        close_folder(folder)
        if self._live_pid(folder / "agent.lock") is not None:
            return "done", {}, "an agent is alive"
        command = module_command("runner.agent", "--cluster", self._spec_file(), "--node", node)
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
            self._children.append(child)
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
        folder = self._folder(node)
        agent = self._live_pid(folder / "agent.lock")
        orderly = agent is not None and _end(agent, signal.SIGTERM, wait_seconds=AGENT_END_SECONDS)
        survivors = (
            self._live_pid(folder / name) for name in ("agent.lock", protocol.PID_FILE_NAME)
        )
        forced = [pid for pid in survivors if pid]
        wait_seconds = self._cluster.kill_wait_seconds
        for pid in forced:
            _end(pid, signal.SIGKILL, wait_seconds=wait_seconds)
        self._reap()
        find = partial(orphans.find_orphans, self._environ_of(node))
        forced += find()
        left = sorted(orphans.kill_orphans(find, wait_seconds=wait_seconds, last=True))
        if left:
            return "failed", {"left": left}, f"processes {left} outlived SIGKILL"
        message = "left in order" if orderly and not forced else "ended"
        return "done", {"forced": len(forced)}, message

    def _processes_of(self, node: str) -> list[int]:
        files = (self._folder(node) / name for name in ("agent.lock", protocol.PID_FILE_NAME))
        alive = [pid for pid in map(self._live_pid, files) if pid is not None]
        return [*alive, *orphans.find_orphans(self._environ_of(node))]

    def probe_node(self, node: str) -> Outcome:
        """Read /proc: this machine is always reachable."""
        folder = self._folder(node)
        agent = self._live_pid(folder / "agent.lock")
        parent = self._live_pid(folder / protocol.PID_FILE_NAME)
        pids = orphans.find_orphans(self._environ_of(node), keeper=parent or 0)
        ranks = sorted(pid for pid in pids if not orphans.is_resource_tracker(pid))
        agent_state, keeper = ("alive" if pid else "dead" for pid in (agent, parent))
        detail = {"agent": agent_state, "keeper": keeper, "ranks_alive": ranks}
        return "done", {"reachable": True, **detail}, ""

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
        return process.pid if process.start_ticks == recorded["start_ticks"] else None

    def _environ_of(self, node: str) -> dict[str, str]:
        return {"STOKER_CLUSTER": self._cluster.name, "STOKER_NODE": node}

    def _spec_file(self) -> str:
        path = Path(self._cluster.state) / CLUSTER_NAME
        if not path.exists():
            raise TemporaryError(
                f"{path} does not exist yet; a supervisor writes it when it starts"
            )
        return str(path)

    def _reap(self) -> None:
        with self._lock:
            self._children = [child for child in self._children if child.poll() is None]


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
