"""What every provider of nodes promises, tried with real agents."""

import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from runner.facts.messages.signals import Signal
from runner.facts.specs.cluster import ClusterSpec, LocalNodes
from runner.facts.wire import decode, encode
from runner.providers.local import LocalProvider
from runner.providers.protocol import NodeProvider
from runner.providers.registry import CompositeProvider
from runner.providers.self_joined import SelfJoinedProvider
from runner.signer import UNSIGNED
from runner.store.sqlite.store import SqliteStore

pytestmark = pytest.mark.e2e

STREAMS = ("signals", "heartbeats")


@dataclass
class Harness:
    """A provider, a node of it, and `boot`, which plays the init system of a machine that joins by itself."""

    provider: NodeProvider
    node: str
    boot: Callable[[], object]

    def start(self) -> tuple[str, str]:
        """Start the agent; return outcome and message."""
        thread = threading.Thread(target=self.boot)
        thread.start()
        outcome, _, message = self.provider.start_agent(self.node)
        thread.join()
        return outcome, message

    def is_agent_alive(self) -> bool:
        """Probe the node."""
        outcome, detail, _ = self.provider.probe_node(self.node)
        assert outcome == "done"
        if detail["reachable"]:
            assert detail["agent"] in ("alive", "dead")
            assert list(detail["ranks_alive"]) == []
        return bool(detail["reachable"] and detail["agent"] == "alive")


@pytest.fixture(params=["local", "self-joined", "composite, local", "composite, self-joined"])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    """Give each provider; a supervisor's part is played by a thread that passes signals on."""
    cluster = ClusterSpec(
        name=f"test-{uuid.uuid4().hex[:12]}",
        state=str(tmp_path),
        local=LocalNodes(nodes=1, slots=1),
        heartbeat_seconds=0.2,
        heartbeat_timeout_seconds=2.0,
    )
    (tmp_path / "cluster.json").write_bytes(encode(cluster))
    store = SqliteStore(tmp_path / "store")
    lease = store.acquire_lease("supervisor", "test", ttl_seconds=600)
    local = LocalProvider(cluster, store)
    joined = SelfJoinedProvider(cluster, store, UNSIGNED)
    joined.claim(lease)
    node = "m1" if "self-joined" in request.param else "n1"
    providers: dict[str, NodeProvider] = {"local": local, "self-joined": joined}
    provider = providers.get(request.param) or CompositeProvider([local, joined])

    def boot() -> object:
        return node == "m1" and local.start_agent(node)

    ended = threading.Event()

    def pass_signals_on() -> None:
        cursors = dict.fromkeys(STREAMS, 0)
        while not ended.is_set():
            batch = store.read(streams=cursors, registers={}, timeout_seconds=1.0)
            for stream, items in batch.items.items():
                cursors[stream] = items[-1].number
                for item in items:
                    signal = decode(item.payload)
                    assert isinstance(signal, Signal)
                    provider.on_signal(signal)

    thread = threading.Thread(target=pass_signals_on)
    thread.start()
    yield Harness(provider, node, boot)
    local.stop_agent(node)
    ended.set()
    thread.join()
    store.close()


def test_an_agent_is_started_probed_and_stopped(harness: Harness) -> None:
    """Each operation may be repeated: a live agent is left alone, and a stopped one is no error."""
    assert not harness.is_agent_alive()
    for _ in range(2):
        assert harness.start()[0] == "done"
        assert harness.is_agent_alive()
    assert harness.provider.stop_agent(harness.node)[0] == "done"
    assert not harness.is_agent_alive()
    outcome, _, message = harness.provider.stop_agent(harness.node)
    assert outcome == "done"
    assert message


def test_only_nodes_of_this_machine_are_named(harness: Harness) -> None:
    """The controller knows them before they join; any other node is known when it joins."""
    assert (harness.node in harness.provider.nodes) is (harness.node == "n1")
