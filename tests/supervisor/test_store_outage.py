"""A supervisor whose store is unreachable: it can be stopped, and declares no node silent."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runner.errors import StoreUnavailable
from runner.facts.faults import CorrelatedSilence, Finding
from runner.facts.messages import records as r
from runner.facts.messages.signals import Heartbeat, NodeJoined
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.store_names import LEASE
from runner.facts.wire import encode
from runner.journal.journal import Journal
from runner.providers.self_joined import SelfJoinedProvider
from runner.signer import UNSIGNED
from runner.store.memory.store import MemoryStore
from runner.store.protocol import Batch, Lease
from runner.supervisor.loop import Supervisor

# Above every wait in this file.
LONG_SECONDS = 60.0


class FaultyStore(MemoryStore):
    """A store that for a while does not answer blocking reads, or has no room for a message."""

    is_deaf = False
    is_full = False

    def renew(self, lease: Lease) -> None:
        """Renew a lease, if there is room."""
        if self.is_full:
            raise StoreUnavailable("its disk is full", delay_seconds=0.05)
        super().renew(lease)

    def read(self, **asked: Any) -> Batch:
        """Read, unless the store is deaf."""
        if self.is_deaf and asked["timeout_seconds"] > 0:
            raise StoreUnavailable("does not answer", delay_seconds=0.05)
        batch = super().read(**asked)
        if self.is_deaf and asked["timeout_seconds"] > 0:
            raise StoreUnavailable("does not answer", delay_seconds=0.05)
        return batch


@dataclass(slots=True)
class Stage:
    """A supervisor in a thread, and a node that sends it messages."""

    store: FaultyStore
    agents: MemoryStore
    supervisor: Supervisor
    thread: threading.Thread
    sequence: int = 0

    def send(self, stream: str, kind: Callable[..., object], **fields: object) -> None:
        """Send a message as the agent of n1."""
        self.sequence += 1
        message = kind(node="n1", incarnation=1, sequence=self.sequence, instance_id="a", **fields)
        self.agents.append(stream, encode(message))

    def inputs(self, kind: type) -> list[object]:
        """Return the inputs of a kind that were journalled."""
        return [e.input for e in Journal(self.agents).replay() if isinstance(e.input, kind)]

    def until(self, look: Callable[[], object], what: str) -> None:
        """Wait until `look` returns something true."""
        deadline = time.monotonic() + LONG_SECONDS
        while not look():
            assert time.monotonic() < deadline, f"timed out waiting for {what}"
            time.sleep(0.05)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    """Give a supervisor that leads a cluster with one node, which has joined."""
    cluster = ClusterSpec(
        name="c", state=str(tmp_path), heartbeat_timeout_seconds=1.0, heartbeat_seconds=0.2
    )
    store = FaultyStore()
    agents = store.another()
    lease = store.acquire_lease(LEASE, "a", ttl_seconds=600)
    # No read returns by itself within a test.
    monkeypatch.setattr("runner.supervisor.loop.READ_SECONDS", 10 * LONG_SECONDS)
    place = SelfJoinedProvider(cluster, store, UNSIGNED)
    supervisor = Supervisor(cluster, store, lease, place)
    thread = threading.Thread(target=supervisor.run, daemon=True)
    made = Stage(store, agents, supervisor, thread)
    thread.start()
    made.send("signals", NodeJoined, hardware="h", slots=1, address="127.0.0.1", pid=1)
    made.send("heartbeats", Heartbeat)
    made.until(lambda: made.inputs(NodeJoined), "the node")
    yield made
    store.is_deaf = store.is_full = False
    store.come_back()
    supervisor.stop()
    thread.join(LONG_SECONDS)


@pytest.mark.costly
def test_the_supervisor_can_be_stopped_while_the_store_is_unreachable(stage: Stage) -> None:
    """That holds in the middle of a turn whose entry the store refuses; the next supervisor reads the journal."""
    stage.store.go_down()
    turn = r.SupervisorPaused(seconds=0.1, reason="a turn to take")
    stage.supervisor._inbox.put(turn)
    stage.until(
        lambda: stage.supervisor._loop._outage_seconds > 1, "a turn that waits for the store"
    )
    stage.supervisor.stop()
    stage.thread.join(LONG_SECONDS)
    assert not stage.thread.is_alive()


@pytest.mark.costly
def test_no_node_is_declared_silent_while_reads_of_the_store_fail(stage: Stage) -> None:
    """While only the supervisor's reads fail, the nodes' heartbeats are in the store, unread."""
    stage.store.is_deaf = True
    for _ in range(15):
        stage.send("heartbeats", Heartbeat)
        time.sleep(0.2)
    stage.store.is_deaf = False
    stage.until(lambda: stage.inputs(r.SupervisorPaused), "the record of the outage")
    assert not stage.inputs(Finding)
    assert not stage.inputs(CorrelatedSilence)


def test_a_node_that_died_in_an_outage_is_found_when_the_store_is_back(stage: Stage) -> None:
    """No message arrives any more, and the supervisor learns all the same that its reads succeed again."""
    stage.store.is_deaf = True
    stage.store.wake()
    stage.until(lambda: stage.supervisor._is_reader_cut_off, "a read that fails")
    stage.store.is_deaf = False
    stage.until(lambda: stage.inputs(Finding), "a silent node")


@pytest.mark.costly
def test_no_node_is_declared_silent_for_the_time_in_which_the_store_was_full(stage: Stage) -> None:
    """The store has room again just before the timeout, and no heartbeat could have arrived in that time."""
    stage.store.is_full = True
    # More than two timeouts, and the store accepts messages again shortly before a third.
    time.sleep(2.9)
    stage.store.is_full = False
    # Less than a timeout.
    time.sleep(0.6)
    stage.send("heartbeats", Heartbeat)
    for _ in range(5):
        time.sleep(0.2)
        stage.send("heartbeats", Heartbeat)
    assert not stage.inputs(Finding)
    assert not stage.inputs(CorrelatedSilence)
