"""Nodes whose agents are started on their own machines and join by themselves.

All that is known of such a node comes from its agent through the store. A probe therefore waits for a heartbeat, and cannot
distinguish a dead machine from a cut link or a dead agent; starting an agent is waiting for the machine's init system; stopping
one is asking it to leave.
"""

import threading
import time
from collections.abc import Callable
from typing import Self

from runner.facts import wire
from runner.facts.actions import Outcome
from runner.facts.messages.assignments import Task
from runner.facts.messages.signals import Heartbeat, NodeJoined, NodeLeft, Signal
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.store_names import HEARTBEATS, task_stream
from runner.providers.protocol import NodeProvider, register
from runner.signer import Signer
from runner.store.protocol import Lease, Store

# For a machine's init system to bring its agent back (RestartSec=1 in deploy/stoker-agent@.service); chosen, not measured.
REJOIN_SECONDS = 10.0
# For an agent to end ranks and keeper when asked to leave; chosen, not measured.
LEAVE_SECONDS = 30.0


@register
class SelfJoinedProvider(NodeProvider):
    """Agents are known by their signals alone, and their nodes' names once they join."""

    order = 90

    def __init__(self, cluster: ClusterSpec, store: Store, signer: Signer) -> None:
        self._cluster, self._store, self._signer = cluster, store, signer
        self._changed = threading.Condition()
        # Usually 0: then a signal costs no lock.
        self._num_waiting = 0
        # node -> when its last heartbeat arrived, and that heartbeat
        self._heartbeats: dict[str, tuple[float, Heartbeat]] = {}
        # node -> when its agent joined and left last, and the instance that left
        self._joined_at: dict[str, float] = {}
        self._left_at: dict[str, float] = {}
        self._left: dict[str, str] = {}

    @classmethod
    def of_cluster(cls, cluster: ClusterSpec, store: Store, signer: Signer) -> Self | None:
        return cls(cluster, store, signer) if cluster.spans_machines else None

    def claim(self, lease: Lease) -> None:
        self._lease = lease

    def on_signal(self, signal: Signal) -> None:
        now = time.monotonic()
        if isinstance(signal, Heartbeat):
            self._heartbeats[signal.node] = (now, signal)
        elif isinstance(signal, NodeJoined):
            self._joined_at[signal.node] = now
        elif isinstance(signal, NodeLeft):
            self._left_at[signal.node] = now
            self._left[signal.node] = signal.instance_id
        if self._num_waiting:
            with self._changed:
                self._changed.notify_all()

    def _wait_for(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until the condition holds. A waiter counts itself before it looks; a signal is noted before it looks for waiters."""
        with self._changed:
            self._num_waiting += 1
            try:
                return self._changed.wait_for(condition, seconds)
            finally:
                self._num_waiting -= 1

    def start_agent(self, node: str) -> Outcome:
        """Wait a little: the machine's own init system may bring the agent back."""
        requested_at = time.monotonic()
        if self._wait_for(
            lambda: max(self._heartbeat_at(node), self._joined_at.get(node, 0.0)) > requested_at,
            REJOIN_SECONDS,
        ):
            return "done", {}, "its agent reports"
        message = (
            f"agents of {node} are started on its own machine, and none reported within {REJOIN_SECONDS:g} s; start it there: "
            f"`systemctl start stoker-agent@{node}`, or `stoker agent --node {node} --cluster CLUSTER.yaml`"
        )
        return "failed", {}, message

    def stop_agent(self, node: str) -> Outcome:
        """Ask the agent to leave, and wait until it has. One that has left already leaves nothing to stop."""
        requested_at = time.monotonic()
        if self._has_left(node):
            return "done", {}, "has left in order"
        # A supervisor that has just begun has received no heartbeat yet.
        self._wait_for(lambda: self._is_alive(node), self._cluster.heartbeat_timeout_seconds)
        instance_id = self._heartbeats[node][1].instance_id if self._is_alive(node) else ""
        if instance_id:
            self._send_leave(node, instance_id)
            if self._wait_for(lambda: self._left_at.get(node, 0.0) > requested_at, LEAVE_SECONDS):
                return "done", {}, "left in order"
        message = (
            f"the agent of {node} did not leave within {LEAVE_SECONDS:g} s"
            if instance_id
            else f"no heartbeat from {node}, so its agent cannot be asked to leave"
        )
        way_out = f"if its agent still runs, end it there: `systemctl stop stoker-agent@{node}`"
        return "failed", {}, f"{message}; {way_out}"

    def _send_leave(self, node: str, instance_id: str) -> None:
        """Send a task for this one instance of the agent: a replayed task cannot end a later one."""
        args = {"instance_id": instance_id}
        task = Task(id=f"leave-{instance_id}", node=node, task="leave", args=args)
        stream = task_stream(node)
        self._store.append(stream, self._signer.sign(stream, wire.encode(task)), fence=self._lease)

    def probe_node(self, node: str) -> Outcome:
        """Wait for a heartbeat, and return the ranks that it names."""
        requested_at = time.monotonic()
        # Raises during an outage of the store, which says nothing of the node: the probe is repeated.
        self._store.last(HEARTBEATS)
        wait_seconds = min(2 * self._cluster.heartbeat_seconds, self._cluster.probe_seconds / 2)
        if self._wait_for(lambda: self._heartbeat_at(node) > requested_at, wait_seconds):
            ranks = list(self._heartbeats[node][1].ranks_alive)
            detail = {"agent": "alive", "keeper": "unknown", "ranks_alive": ranks}
            return "done", {"reachable": True, **detail}, ""
        message = "no heartbeat from its agent, and no out-of-band probe is configured"
        return "done", {"reachable": False}, message

    def _heartbeat_at(self, node: str) -> float:
        return self._heartbeats[node][0] if node in self._heartbeats else 0.0

    def _is_alive(self, node: str) -> bool:
        since = time.monotonic() - self._cluster.heartbeat_timeout_seconds
        return node in self._heartbeats and self._heartbeat_at(node) >= since

    def _has_left(self, node: str) -> bool:
        """Whether the newest agent that is known has left: its last heartbeats may arrive later than that."""
        if self._left_at.get(node, 0.0) <= self._joined_at.get(node, 0.0):
            return False
        return (
            node in self._heartbeats and self._heartbeats[node][1].instance_id == self._left[node]
        )
