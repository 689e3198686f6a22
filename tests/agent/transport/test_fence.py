"""While the store is away the agent leaves advancing ranks alone, ends the others, and reports both afterwards."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from runner.agent.fence import Fence
from tests.agent.node import REPORTER, SILENT, Node, is_alive, wait_until

FENCE = Fence(fence_seconds=10.0, hard_cap_seconds=100.0)


@pytest.mark.parametrize(
    ("now", "lost_since", "progress_at", "resumed_at", "ends"),
    [
        # the store is there
        (1000.0, None, 0.0, 0.0, False),
        # lost for less than the fence time
        (1009.9, 1000.0, 0.0, 0.0, False),
        (1010.0, 1000.0, 0.0, 0.0, True),
        # ranks advance
        (1050.0, 1000.0, 1041.0, 0.0, False),
        (1050.0, 1000.0, 1040.0, 0.0, True),
        (
            1050.0,
            1000.0,
            0.0,
            1045.0,
            False,
            # The agent itself was stopped: steps may be waiting to be read.
        ),
        (1099.9, 1000.0, 1099.0, 0.0, False),
        # the hard cap ends ranks that advance, too
        (1100.0, 1000.0, 1099.9, 1099.9, True),
    ],
)
def test_the_rule(
    now: float, lost_since: float | None, progress_at: float, resumed_at: float, ends: bool
) -> None:
    """Store lost and no step for the fence time, or store lost for the hard cap: nothing else ends ranks."""
    verdict = FENCE.verdict(
        now, lost_since=lost_since, progress_at=progress_at, resumed_at=resumed_at
    )
    assert bool(verdict) is ends


def test_no_hard_cap() -> None:
    """A hard cap of 0 means none."""
    endless = Fence(fence_seconds=10.0, hard_cap_seconds=0.0)
    assert not endless.verdict(1e9, lost_since=0.0, progress_at=1e9, resumed_at=0.0)


@contextmanager
def locked_store(node: Node) -> Iterator[None]:
    """Keep every writer out of the store, as a disk that hangs would."""
    with ExitStack() as stack:
        for path in (node.state / "store").glob("*.db"):
            connection = sqlite3.connect(path, isolation_level=None, timeout=10.0)
            stack.callback(connection.close)
            connection.execute("BEGIN IMMEDIATE")
        yield


@pytest.mark.e2e
def test_ranks_that_advance_outlive_a_lost_store(make_node: Callable[..., Node]) -> None:
    """Store lost for ten fence times while steps advance: no rank is killed, and afterwards no exit is on record."""
    node = make_node(fence_seconds=0.4)
    node.start_agent()
    pids = node.launch(node.plan(REPORTER, {"pause": 0.05}), generation=1)
    node.wait_for("Progress")
    with locked_store(node):
        time.sleep(10 * node.cluster.fence_seconds)
        assert "cannot append to" in node.log()
        assert all(is_alive(pid) for pid in pids.values())
    heartbeats = node.heartbeats()
    wait_until(lambda: (next(heartbeats).last_step or 0) > 60, "heartbeats again")
    assert all(is_alive(pid) for pid in pids.values())
    assert not node.signals("RankExited")
    assert not node.signals("RanksTerminated")


@pytest.mark.e2e
def test_the_agent_fences_ranks_that_make_no_progress(make_node: Callable[..., Node]) -> None:
    """With the store lost and no step for the fence time, the agent ends the ranks, reports it later, and does not restart them."""
    node = make_node(fence_seconds=0.4)
    node.start_agent()
    pids = node.launch(node.plan(SILENT), generation=1)
    with locked_store(node):
        wait_until(lambda: not any(is_alive(pid) for pid in pids.values()), "the ranks' end")
    gone = node.wait_for("RanksTerminated", lambda fact: fact.fenced)
    assert (gone.generation, gone.last_step) == (1, None)
    assert not node.signals("RankExited")
    assert len(node.signals("RanksStarted")) == 1


@pytest.mark.e2e
def test_ranks_that_only_write_count_as_advancing(make_node: Callable[..., Node]) -> None:
    """For a script that reports no steps, output counts as progress."""
    node = make_node(fence_seconds=0.6)
    node.start_agent()
    script = "import time\nwhile True:\n    print('alive', flush=True); time.sleep(0.05)"
    pids = node.launch(node.plan(script), generation=1)
    with locked_store(node):
        time.sleep(3.0)
        assert all(is_alive(pid) for pid in pids.values())
