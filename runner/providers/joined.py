"""Joined: nodes that nobody here can start or look at. Their agents are started on their own machines, and join by themselves.

All that can be had of such a node is what its agent says through the store. So a look "from outside" finds it reachable when it is
heard, and cannot tell a dead machine from a cut link or a dead agent otherwise; starting an agent is waiting for the machine's own
init system; ending one is asking it to leave.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from runner.facts import wire
from runner.facts.actions import Outcome
from runner.facts.messages.assignments import Task
from runner.facts.messages.signals import Heartbeat, NodeJoined, NodeLeft, Signal
from runner.facts.specs.cluster import ClusterSpec
from runner.providers.local import LocalProvider, NodeProvider
from runner.signer import Signer
from runner.store.protocol import Lease, Store

# For a machine's init system to bring its agent back (RestartSec=1 in deploy/stoker-agent@.service); chosen, not measured.
REJOIN_SECONDS = 10.0
# for an agent to end ranks and keeper when asked to leave; chosen, not measured
LEAVE_SECONDS = 30.0


class SelfJoinedProvider:
    """Nodes that joined by themselves. Its verbs are called from threads of their own, `hear` from the supervisor's."""

    def __init__(self, cluster: ClusterSpec, store: Store, lease: Lease, signer: Signer) -> None:
        self._cluster, self._store, self._lease, self._signer = cluster, store, lease, signer
        self._changed = threading.Condition()
        # as a rule nobody is, and a word costs no lock then
        self._num_waiting = 0
        self._beats: dict[
            str, tuple[float, Heartbeat]
            # node -> when it came, and what it says
        ] = {}
        # node -> when its agent joined last
        self._joined: dict[str, float] = {}
        # node -> when its agent left
        self._left: dict[str, float] = {}

    @property
    def nodes(self) -> tuple[str, ...]:
        """None: they are known when they join."""
        return ()

    def hear(self, signal: Signal) -> None:
        """Note a sign of life, or of its end."""
        now = time.monotonic()
        if isinstance(signal, Heartbeat):
            self._beats[signal.node] = (now, signal)
        elif isinstance(signal, NodeJoined):
            self._joined[signal.node] = now
        elif isinstance(signal, NodeLeft):
            self._left[signal.node] = now
        if self._num_waiting:
            with self._changed:
                self._changed.notify_all()

    def _wait_for(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Wait until something holds of what was heard. Who waits says so before they look, and who hears looks for them after."""
        with self._changed:
            self._num_waiting += 1
            try:
                return self._changed.wait_for(holds, seconds)
            finally:
                self._num_waiting -= 1

    def start_agent(self, node: str) -> Outcome:
        """Wait a little: the machine's own init system may bring the agent back, if there is one."""
        asked_at = time.monotonic()

        def is_back() -> bool:
            beat_at = self._beats[node][0] if node in self._beats else 0.0
            return max(beat_at, self._joined.get(node, 0.0)) > asked_at

        if self._wait_for(is_back, REJOIN_SECONDS):
            return "done", {}, "it is heard"
        message = (
            f"agents of {node} are started on its own machine, and none spoke within {REJOIN_SECONDS:g} s; start it there: "
            f"`systemctl start stoker-agent@{node}`, or `stoker agent --node {node} --cluster CLUSTER.yaml`"
        )
        return "failed", {}, message

    def stop_agent(self, node: str) -> Outcome:
        """Ask the agent to leave, and wait until it has; one that is not heard cannot be asked."""
        asked_at = time.monotonic()
        # A supervisor that has just begun has yet to hear anybody.
        self._wait_for(lambda: self._is_heard(node), self._cluster.silence_seconds)
        life = self._beats[node][1].life if self._is_heard(node) else ""
        if life:
            self._ask_to_leave(node, life)
            if self._wait_for(lambda: self._left.get(node, 0.0) > asked_at, LEAVE_SECONDS):
                return "done", {}, "left in order"
        message = (
            f"{node} was asked to leave and has not said that it did"
            if life
            else f"{node} is not heard, so it cannot be asked to leave"
        )
        way_out = f"should its agent still run, end it there: `systemctl stop stoker-agent@{node}`"
        return "failed", {}, f"{message}; {way_out}"

    def _ask_to_leave(self, node: str, life: str) -> None:
        """Send a task for this one life of the agent: nobody who plays it back ends a later one."""
        task = Task(id=f"leave-{life}", node=node, task="leave", args={"life": life})
        stream = f"tasks/{node}"
        self._store.append(stream, self._signer.sign(stream, wire.encode(task)), fence=self._lease)

    def probe_node(self, node: str) -> Outcome:
        """Tell whether the node is heard, and which ranks its agent sees; nothing else can be known from here."""
        asked_at = time.monotonic()
        # an outage of the store says nothing of the node: tried again
        self._store.last("beats")
        wait_seconds = min(2 * self._cluster.heartbeat_seconds, self._cluster.probe_seconds / 2)

        def is_heard() -> bool:
            return node in self._beats and self._beats[node][0] > asked_at

        if self._wait_for(is_heard, wait_seconds):
            beat = self._beats[node][1]
            detail = {
                "reachable": True,
                "agent": "alive",
                "keeper": "unknown",
                "ranks_alive": list(beat.ranks_alive),
            }
            return "done", detail, ""
        message = "its agent is not heard, and there is no other way to look at it"
        return "done", {"reachable": False}, message

    def _is_heard(self, node: str) -> bool:
        beat = self._beats.get(node)
        return beat is not None and time.monotonic() - beat[0] <= self._cluster.silence_seconds


class CompositeProvider:
    """Every node's own place: those of this machine, and those that joined by themselves."""

    def __init__(self, local: LocalProvider, joined: SelfJoinedProvider) -> None:
        self._local, self._joined = local, joined

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes an agent can be started on."""
        return self._local.nodes

    def hear(self, signal: Signal) -> None:
        """Note what an agent says, where nothing else can be known of its node."""
        if signal.node not in self._local.nodes:
            self._joined.hear(signal)

    def start_agent(self, node: str) -> Outcome:
        """See `NodeProvider`."""
        return self._of(node).start_agent(node)

    def stop_agent(self, node: str) -> Outcome:
        """See `NodeProvider`."""
        return self._of(node).stop_agent(node)

    def probe_node(self, node: str) -> Outcome:
        """See `NodeProvider`."""
        return self._of(node).probe_node(node)

    def _of(self, node: str) -> NodeProvider:
        return self._local if node in self._local.nodes else self._joined
