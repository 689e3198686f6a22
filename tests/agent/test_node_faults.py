"""Faults of a node from outside: a full disk, a clock that jumps, an agent that is stopped for a while."""

import json
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from runner.facts.ids import AttemptId
from tests.agent.node import REPORTER, SILENT, WAIT_SECONDS, Node, is_alive, wait_until
from tests.agent.transport.test_fence import locked_store
from tests.clock import JumpingClock
from tests.small_disk import small_disk

pytestmark = pytest.mark.e2e

HOUR_SECONDS = 3600
PRINTS_TIME = "import time\nwhile True: print(time.time(), flush=True); time.sleep(0.05)"


@pytest.fixture
def cramped(make_node: Callable[..., Node]) -> Iterator[Node]:
    """Give a node whose folder is on a disk of 1 MB of its own; its store is elsewhere."""
    node = make_node()
    with small_disk(node.folder, size_bytes=1 << 20):
        yield node
        node.end()


def fill(folder: Path) -> Path:
    """Fill a node's disk to its last byte; return the file that did it.

    Twice, since what the spool holds at the first time is given back once it is acknowledged.
    """
    path, spool = folder / "ballast", folder / "outbox.jsonl"
    for _ in range(2):
        with path.open("ab", buffering=0) as file:
            for size in (65536, 4096, 1):
                try:
                    while file.write(b"x" * size):
                        pass
                except OSError:
                    continue
        wait_until(lambda: not spool.stat().st_size, "the spool is empty")
    return path


def test_a_full_disk_ends_no_rank(cramped: Node) -> None:
    """On a full disk signals go out, ranks end and begin as usual, and the agent reports it once; with room it catches up."""
    node = cramped
    agent = node.start_agent()
    first = node.launch(node.plan(REPORTER, {"pause": 0.02}), generation=1)
    ballast = fill(node.folder)
    os.kill(first[0], signal.SIGKILL)
    assert node.wait_for("RankExited").rank == 0
    node.assign(None, generation=2)
    node.wait_for("RanksTerminated")
    # The state file has its room already, so that even a launch can be recorded.
    second = node.launch(
        node.plan(REPORTER, {"pause": 0.02}, attempt=AttemptId(1, 1, 1)), generation=3
    )
    assert agent.poll() is None
    assert all(is_alive(pid) for pid in second.values())
    assert node.log().count("outbox.jsonl cannot be written") == 1
    ballast.unlink()
    os.kill(second[1], signal.SIGKILL)
    node.wait_for("RankExited", lambda fact: fact.generation == 3)
    wait_until(lambda: "can be written again" in node.log(), "the disk having room")
    assert json.loads((node.folder / "agent.json").read_text())["launched_generation"] == 3


def test_signals_of_a_full_disk_are_written_down_later(cramped: Node) -> None:
    """Signals that neither store nor disk accepted are in the spool once there is room, and outlive the agent."""
    node = cramped
    node.start_agent()
    pids = node.launch(node.plan(REPORTER, {"pause": 0.02}), generation=1)
    node.wait_for("Progress")
    spool = node.folder / "outbox.jsonl"
    wait_until(lambda: spool.stat().st_size == 0, "all being acknowledged")
    ballast = fill(node.folder)
    with locked_store(node):
        os.kill(pids[0], signal.SIGKILL)
        wait_until(lambda: "outbox.jsonl cannot be written" in node.log(), "the full disk seen")
        ballast.unlink()
        wait_until(lambda: b"rank_exited" in spool.read_bytes(), "the spool to be caught up")
        node.kill_agent()
    node.start_agent()
    assert node.wait_for("RankExited").rank == 0
    assert len(node.signals("RankExited")) == 1


def test_what_cannot_be_remembered_is_not_started(node: Node) -> None:
    """While the state file cannot be written a launch fails and reports why; running ranks continue; with room the next starts."""
    agent = node.start_agent()
    pids = node.launch(node.plan(REPORTER, {"pause": 0.02}), generation=1)
    node.assign(None, generation=2)
    node.wait_for("RanksTerminated")
    limit = resource.prlimit(agent.pid, resource.RLIMIT_FSIZE)
    # Every write of the agent to a file now fails, its store's too: its signals wait.
    resource.prlimit(agent.pid, resource.RLIMIT_FSIZE, (0, limit[1]))
    node.assign(node.plan(SILENT, attempt=AttemptId(1, 1, 1)), generation=3)
    time.sleep(3.0)
    resource.prlimit(agent.pid, resource.RLIMIT_FSIZE, limit)
    failed = node.wait_for("LaunchFailed")
    assert failed.generation == 3
    assert "agent.json cannot be written" in failed.reason
    assert not any(is_alive(pid) for pid in pids.values())
    node.launch(node.plan(SILENT, attempt=AttemptId(1, 1, 2)), generation=4)
    assert not [fact for fact in node.signals("RanksStarted") if fact.generation == 3]
    assert json.loads((node.folder / "agent.json").read_text())["launched_generation"] == 4


def test_output_that_a_full_disk_takes_no_more_is_lost_alone(cramped: Node) -> None:
    """Ranks whose output files are on a full disk continue; the agent reports once an output that it cannot cut."""
    node = cramped
    chatty = (
        "import os, sys\nos.set_blocking(1, True)\n"
        "def write():\n"
        "    try: os.write(1, b'a line of the rank' + bytes([10]))\n"
        "    except OSError: pass\n"
        + REPORTER.replace("    emit(kind=", "    write()\n    emit(kind=")
    )
    folder = node.folder / "output"
    plan = node.plan(
        chatty, {"pause": 0.005}, output_folder=str(folder), output_limit_bytes=100_000
    )
    agent = node.start_agent()
    folder.mkdir()
    (folder / "rank0.out").write_bytes(b"a line of the rank\n" * 10_000)
    fill(node.folder)
    pids = node.launch(plan, generation=1)
    wait_until(lambda: "cannot truncate" in node.log(), "an output that cannot be cut")
    heartbeats = node.heartbeats()
    before = wait_until(lambda: next(heartbeats).last_step or 0, "a step")
    wait_until(lambda: (next(heartbeats).last_step or 0) > before + 100, "further steps")
    assert all(is_alive(pid) for pid in pids.values())
    assert agent.poll() is None
    assert node.log().count("cannot truncate") == 1
    assert not list(folder.glob("*.part"))


def test_a_clock_that_jumps_changes_nothing(node: Node, tmp_path: Path) -> None:
    """The node's clock goes an hour ahead, then two back: ranks and agent instance stay the same, and nothing is reported."""
    clock = JumpingClock(tmp_path / "clock")
    agent = node.start_agent(environment=clock.environment)
    pids = node.launch(node.plan(PRINTS_TIME), generation=1)
    output = node.state / "attempts/1.1.0/rank0.out"

    def ahead_seconds() -> float:
        """How far the rank's clock is ahead of ours."""
        lines = output.read_text().split("\n") if output.exists() else []
        return float(lines[-2]) - time.time() if len(lines) > 1 else 0.0

    def has_jumped(seconds: float) -> bool:
        return abs(ahead_seconds() - seconds) < WAIT_SECONDS

    heartbeats = node.heartbeats()
    for jump_seconds in (HOUR_SECONDS, -HOUR_SECONDS):
        clock.set("nodes", jump_seconds)
        wait_until(partial(has_jumped, jump_seconds), "the jump")
        last = next(heartbeats).sequence + 10
        while next(heartbeats).sequence < last:
            continue
        assert all(is_alive(pid) for pid in pids.values())
    assert agent.poll() is None
    assert [type(fact).__name__ for fact in node.received] == ["NodeJoined", "RanksStarted"]
    assert node.signals("MalformedMessage") == []
    assert "the agent was stopped" not in node.log()
    node.assign(None, generation=2)
    node.wait_for("RanksTerminated")


def test_a_stopped_agent_keeps_its_ranks_and_its_instance(make_node: Callable[..., Node]) -> None:
    """An agent stopped for longer than heartbeat timeout and fence keeps its ranks and its instance, and misses no exit."""
    node = make_node(heartbeat_timeout_seconds=0.5, fence_seconds=0.6, hard_cap_seconds=1.0)
    agent = node.start_agent()
    instance_id = node.wait_for("NodeJoined").instance_id
    node.assign(node.plan(REPORTER, {"pause": 0.02}), generation=1, instance_id=instance_id)
    pids = {int(rank): pid for rank, pid in node.wait_for("RanksStarted").pids.items()}
    node.wait_for("Progress")
    agent.send_signal(signal.SIGSTOP)
    time.sleep(2.5)
    assert all(is_alive(pid) for pid in pids.values())
    agent.send_signal(signal.SIGCONT)
    wait_until(lambda: "the agent was stopped" in node.log(), "the log line")
    heartbeats = node.heartbeats()
    wait_until(lambda: (next(heartbeats).last_step or 0) > 100, "steps made meanwhile and since")
    assert all(is_alive(pid) for pid in pids.values())
    assert {fact.instance_id for fact in node.signals("NodeJoined")} == {instance_id}
    agent.send_signal(signal.SIGSTOP)
    os.kill(pids[1], signal.SIGKILL)
    time.sleep(1.5)
    agent.send_signal(signal.SIGCONT)
    assert node.wait_for("RankExited").rank == 1
