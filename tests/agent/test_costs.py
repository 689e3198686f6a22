"""What a launch costs a node: the same however many ranks it has, so that a gang of many nodes storms neither store nor files."""

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from runner import atomic_files
from runner.agent.agent import Agent
from runner.agent.config import AgentConfig
from runner.checkpoints import current_generation, raise_generation
from runner.store.sqlite.store import SqliteStore
from tests.agent.node import REPORTER, Node

pytestmark = pytest.mark.e2e


@pytest.fixture
def node(make_node: Callable[..., Node]) -> Iterator[Node]:
    """Give a node whose agent runs in a thread of this process; heartbeats are too rare to matter."""
    made = make_node(heartbeat_seconds=30.0, heartbeat_timeout_seconds=100.0)
    store = SqliteStore(made.state / "store")
    place = AgentConfig(node=made.name, folder=made.folder, cluster=made.cluster, slots=8)
    agent = Agent(store, place)
    thread = threading.Thread(target=agent.run)
    thread.start()
    made.wait_for("NodeJoined")
    yield made
    agent.leave()
    thread.join()
    store.close()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count what this process, and so the agent in it, asks of the file system."""
    counted: Counter[str] = Counter()

    def count(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def counting(*args: Any, **kwargs: Any) -> Any:
            counted[name] += 1
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, counting)

    for name in ("fsync", "fdatasync", "mkdir"):
        count(os, name)
    count(atomic_files, "_try_lock")
    return counted


@pytest.mark.parametrize("num_ranks", [1, 4, 8])
def test_a_launch_costs_the_same_whatever_the_number_of_ranks(
    node: Node, calls: Counter[str], num_ranks: int
) -> None:
    """From start to end: two durable signals, three flushed records. Folder and generation exist already and are only checked."""
    checkpoints = node.state / "checkpoints"
    plan = node.plan(
        REPORTER,
        {"pause": 0.01},
        ranks_per_node=num_ranks,
        node_rank=1,
        num_nodes=2,
        checkpoints=str(checkpoints),
    )
    os.makedirs(plan.output_folder)
    raise_generation(checkpoints, 1)
    num_joins = len(node.signals("NodeJoined"))
    node.received.clear()
    calls.clear()
    assert len(node.launch(plan, 1)) == num_ranks
    for heartbeat in node.heartbeats():
        if heartbeat.last_step is not None:
            break
    node.assign(None, 2)
    node.wait_for("RanksTerminated")
    assert num_joins == 1
    assert [type(fact).__name__ for fact in node.received] == ["RanksStarted", "RanksTerminated"]
    assert dict(calls) == {"fdatasync": 3}


def test_a_folder_that_is_missing_is_made_and_an_generation_that_is_old_is_raised(
    node: Node, calls: Counter[str]
) -> None:
    """On a node that shares no file system with the supervisor a launch prepares for itself: correct, only dearer."""
    checkpoints = node.state / "own" / "checkpoints"
    node.launch(node.plan(REPORTER, {}, checkpoints=str(checkpoints)), 7)
    assert current_generation(checkpoints) == 7
    assert calls["_try_lock"] == 1
    assert calls["mkdir"] > 0
