"""Agents as `bench.fleet.agents` plays them, thousands in a process on SQLite, which is for one machine and few writers.

`python -m bench.fleet.batched_agents CLUSTER.yaml FIRST COUNT`. What the agents send is the same, and signed; they share one
writer, which appends what is due in one step, and one reader of assignments. They are given no tasks: their cluster has no checks.
"""

import sys
import threading
import time
from typing import Any

from msgspec.structs import replace

from bench.fleet.agents import FakeAgent, Fleet, main
from runner.agent.transport.session import AgentInstance
from runner.facts import wire
from runner.facts.messages.assignments import Assignment
from runner.facts.messages.signals import Heartbeat, NodeJoined, Signal
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.store_names import HEARTBEATS, SIGNALS, assignment_register
from runner.store.protocol import MAX_LARGE_BYTES
from runner.store.registry import open_store

READ_SECONDS = 1.0


class BatchedSession:
    """What an agent sees of its session, and its outbox."""

    def __init__(self, instance: AgentInstance, fleet: "BatchedFleet") -> None:
        self.instance, self._fleet, self._sequence = instance, fleet, 0
        self.outbox = self

    def next_header(self) -> dict[str, Any]:
        """Return the next signal's source fields."""
        self._sequence += 1
        return {
            "node": self.instance.node,
            "incarnation": self.instance.incarnation,
            "sequence": self._sequence,
            "instance_id": self.instance.instance_id,
        }

    def start(self) -> None:
        """Do nothing: the fleet sends."""

    def join(self, joined: NodeJoined, _now: float) -> None:
        """Send the join."""
        self.put(replace(joined, sent_at=time.time()))

    def wants_join(self, _now: float) -> bool:
        """Return False: no supervisor of a benchmark loses a node."""
        return False

    def is_mine(self, assignment: Assignment) -> bool:
        """Whether an assignment is meant for this instance."""
        return assignment.instance_id in ("", self.instance.instance_id)

    def put(self, signal: Signal) -> None:
        """Send a durable signal."""
        self._fleet.signals.append((self.instance.node, signal))

    def put_heartbeat(self, heartbeat: Heartbeat) -> None:
        """Send a heartbeat."""
        self._fleet.heartbeats.append(heartbeat)


class BatchedFleet(Fleet):
    """The agents of this process. One thread plays and sends, another reads their assignments."""

    def __init__(self, cluster: ClusterSpec, first: int, count: int) -> None:
        self.signals: list[tuple[str, Signal]] = []
        self.heartbeats: list[Heartbeat] = []
        super().__init__(cluster, first, count)

    def open_session(self, instance: AgentInstance, _agent: FakeAgent) -> Any:
        """Return an agent's part of the one session of all."""
        return BatchedSession(instance, self)

    def start(self) -> None:
        """Begin to read."""
        threading.Thread(target=self._read, daemon=True).start()

    def flush(self) -> None:
        """Append what agents have put out, signals first; report to those whose signals the store has."""
        signals, self.signals = self.signals, []
        if signals:
            facts = [fact for _, fact in signals]
            self.store.append_many(SIGNALS, [self._signed(SIGNALS, fact) for fact in facts])
        for node, fact in signals:
            self.agents[node].on_acknowledged([fact])
        heartbeats, self.heartbeats = self.heartbeats, []
        if heartbeats:
            payloads = [self._signed(HEARTBEATS, each) for each in heartbeats]
            self.store.append_many(HEARTBEATS, payloads)

    def _signed(self, stream: str, fact: object) -> bytes:
        return self.signer.sign(stream, wire.encode(fact))

    def _read(self) -> None:
        store = open_store(self.cluster)
        agents = {assignment_register(name): agent for name, agent in self.agents.items()}
        versions = dict.fromkeys(agents, 0)
        while True:
            batch = store.read(streams={}, registers=versions, timeout_seconds=READ_SECONDS)
            for name, register in batch.registers.items():
                versions[name] = register.version
                payload = self.signer.verify(name, register.payload)
                agents[name].on_assignment(wire.decode(payload, limit_bytes=MAX_LARGE_BYTES))


if __name__ == "__main__":
    main(BatchedFleet, *sys.argv[1:])
