"""What an agent measures of running ranks: which are in state D, what they hold, what a step costs each of them alone."""

import math
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import fields

from runner.agent.agent import Agent
from runner.agent.config import AgentConfig
from runner.agent.hangs import blocked_ranks
from runner.agent.ranks import aggregates, rank_resources
from runner.agent.ranks.aggregates import MAX_STEPS, ComputeTimes
from runner.agent.ranks.gang import LocalGang
from runner.agent.ranks.reports import StepReport
from runner.facts.messages.assignments import Assignment
from runner.facts.messages.signals import (
    Heartbeat,
    RankBlocked,
    RankCompute,
    RankResources,
    StepRecord,
)
from runner.facts.wire import MAX_MESSAGE_BYTES, decode, encode
from runner.store.sqlite.store import SqliteStore
from tests.agent.node import REPORTER, Node, state_of, wait_until
from tests.plans import launch_plan

# A process that starts another is in state D until the child has begun; this child waits for a write to a pipe.
WAITER_SCRIPT = """
import os, sys, threading
def start():
    opened = (os.POSIX_SPAWN_OPEN, 9, sys.argv[1], os.O_RDONLY, 0)
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=[opened])
if sys.argv[2] == "thread":
    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
else:
    start()
sys.stdin.read()
"""
# Looks at a process in a row that find it in state D; chosen.
NUM_LOOKS = 20
# Holds 60 MB and 40 files, and has a child that holds 30 MB more.
HOLDS = """
import os, sys
held = bytearray(os.urandom(1000)) * 60_000
files = [open("/dev/null") for _ in range(40)]
if os.fork() == 0:
    more = bytearray(os.urandom(1000)) * 30_000
    os.write(1, b"x")
    os.read(0, 1)
    os._exit(0)
os.wait()
"""


def gang_of(pid: int, folder: Path) -> LocalGang:
    """Return a gang of one rank, which is this process."""
    plan = launch_plan(ranks_per_node=1, output_folder=str(folder))
    stamp = {"node": "n1", "incarnation": 1}
    return LocalGang(
        Assignment(node="n1", generation=1, plan=plan),
        {0: pid},
        lambda: stamp,
        0.0,
        stopped_seconds=3.0,
    )


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    """Give a way to start a process in state D, by its main thread or by another one."""
    pipe, started = tmp_path / "pipe", list[subprocess.Popen[bytes]]()
    os.mkfifo(pipe)

    def start(which: str) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            [sys.executable, "-S", "-c", WAITER_SCRIPT, str(pipe), which], stdin=subprocess.PIPE
        )
        started.append(child)
        # A read of a file by a process that starts is such a state for a moment, too.
        wait_until(lambda: all(map(has_blocked_thread, [child.pid] * NUM_LOOKS)), "state D")
        return child

    yield start
    for child in started:
        if "D" in states(child.pid):
            os.close(os.open(pipe, os.O_WRONLY))
        child.communicate(timeout=60)


def has_blocked_thread(pid: int) -> bool:
    """Whether a thread of a process is in state D, a hundredth of a second from now."""
    time.sleep(0.01)
    return "D" in states(pid)


def states(pid: int) -> list[str]:
    """Return the states of a process's threads, the main one first, without asking Stoker."""
    tasks = sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda path: int(path.name))
    return [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks]


@pytest.mark.parametrize("which", ["main", "thread"])
def test_a_rank_in_state_d_is_reported_once_no_step_is_made(
    which: str, waiting: Callable[[str], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    """The agent searches after some seconds without a step, reports after some more, and drops the finding at the next step."""
    child = waiting(which)
    gang, now = gang_of(child.pid, tmp_path), 0.0

    def heartbeat() -> Heartbeat:
        return gang.heartbeat(now)

    reported_at = 0.0
    while not heartbeat().ranks_blocked and now < 60:
        now += blocked_ranks.POLL_SECONDS
        gang.poll(now)
    reported_at = now
    (blocked,) = heartbeat().ranks_blocked
    least = blocked_ranks.IDLE_SECONDS + blocked_ranks.BLOCKED_SECONDS
    print(
        f"in state D ({which}): reported {reported_at:.0f} s after the last step, as blocked for {blocked.seconds} s"
    )
    assert (blocked.rank, blocked.seconds >= blocked_ranks.BLOCKED_SECONDS) == (0, True)
    assert least <= reported_at <= least + 2 * blocked_ranks.POLL_SECONDS
    gang.on_packet(0, b'{"kind": "step", "step": 1}', now)
    gang.poll(now + 1)
    assert heartbeat().ranks_blocked == ()


def test_a_rank_that_sleeps_or_works_is_not_blocked(tmp_path: Path) -> None:
    """Ranks that make no step and are not in state D are never reported, however long that lasts."""
    with subprocess.Popen(
        [sys.executable, "-S", "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    ) as child:
        wait_until(lambda: state_of(child.pid) == "S", "state S")
        gang = gang_of(child.pid, tmp_path)
        for now in range(0, 100, 2):
            gang.poll(float(now))
        assert gang.heartbeat(100.0).ranks_blocked == ()
        child.communicate()


def test_what_a_rank_holds_is_added_up_over_its_processes() -> None:
    """Memory of a rank and its child, files of whichever has most, the soft limit; what is gone is left out."""
    with subprocess.Popen(
        [sys.executable, "-S", "-c", HOLDS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.read(1)
        (held,), free_bytes = rank_resources.measure({4: child.pid, 5: 2**22 - 1})
        child.communicate(b"x")
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    print(
        f"60 MB, a fork of it with 30 MB more: {held.memory_bytes / 1e6:.0f} MB, {held.descriptors} files"
    )
    assert (held.rank, held.descriptors_limit) == (4, soft)
    # what the fork shares is counted in both
    assert 150e6 < held.memory_bytes < 200e6
    assert held.descriptors in range(42, 48)
    assert 0 < free_bytes < 2**50


def test_the_room_of_a_control_group_counts_if_it_is_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Limit less use, and what the kernel would take back first; "max" is no limit."""
    monkeypatch.setattr(rank_resources, "GROUPS", tmp_path)
    without = rank_resources.free_bytes()
    for limit, expected in (("max", without), ("1000000", 1000000 - 400000 + 50000)):
        # where version 1 has its groups
        for folder in (tmp_path, tmp_path / "memory"):
            folder.mkdir(exist_ok=True)
            (folder / "memory.max").write_text(f"{limit}\n")
            (folder / "memory.current").write_text("400000\n")
            (folder / "memory.stat").write_text("active_file 7\ninactive_file 50000\n")
        assert rank_resources.free_bytes() == pytest.approx(expected, rel=0.05)


def test_the_agent_reports_the_cost_of_steps_as_a_median_now_and_then() -> None:
    """Ten seconds after the first, with the stage; numbers that are none are left out, and nothing is reported twice."""
    times = ComputeTimes(0.0)
    for step, seconds in enumerate((1.0, 9.0, 1.1, math.nan, math.inf, -1.0, 0.0), 1):
        times.add(3, StepReport(step=step, compute_seconds=seconds, stage=1))
    times.add(4, StepReport(step=1))
    assert times.pop_medians(aggregates.MEDIANS_SECONDS - 0.1) == ()
    assert times.pop_medians(aggregates.MEDIANS_SECONDS) == (
        RankCompute(rank=3, seconds=1.1, stage=1),
    )
    assert times.pop_medians(2 * aggregates.MEDIANS_SECONDS) == ()


def test_the_largest_heartbeat_fits_one_message() -> None:
    """With as many steps and ranks as one may hold, it is read as it was written."""
    ranks = range(100_000, 100_000 + rank_resources.MAX_RANKS)
    numbers = [each.name for each in fields(StepRecord) if "float" in str(each.type)]
    record = StepRecord(
        step=10**9,
        compute_seconds_max_rank=100_000,
        local_grad_norm_max_rank=100_000,
        peak_memory_bytes_max=10**12,
        **dict.fromkeys(numbers, 0.1234567890123456),  # type: ignore[arg-type]
    )
    heartbeat = Heartbeat(
        node="n" * 60,
        incarnation=10**6,
        ranks_alive=tuple(ranks),
        phases={str(rank): "checkpoint" for rank in ranks},
        steps=(record,) * MAX_STEPS,
        rank_computes=tuple(RankCompute(rank=rank, seconds=123.456, stage=64) for rank in ranks),
        ranks_blocked=tuple(RankBlocked(rank=rank, seconds=12345.6) for rank in ranks),
        rank_resources=tuple(
            RankResources(
                rank=rank, memory_bytes=10**12, descriptors=10**6, descriptors_limit=2**20
            )
            for rank in ranks
        ),
        memory_free_bytes=10**13,
    )
    data = encode(heartbeat)
    plain = {
        name: getattr(heartbeat, name)
        for name in ("rank_computes", "ranks_blocked", "rank_resources")
    }
    read = decode(data)
    print(f"the largest heartbeat: {len(data)} of {MAX_MESSAGE_BYTES} bytes")
    assert len(data) < 0.9 * MAX_MESSAGE_BYTES
    assert {name: getattr(read, name) for name in plain} == plain


@pytest.mark.e2e
def test_heartbeats_of_an_agent_report_what_ranks_cost_and_hold(
    make_node: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For real ranks that report steps the agent reports each rank's compute time and resources; its intervals are short here."""
    monkeypatch.setattr(aggregates, "MEDIANS_SECONDS", 0.5)
    monkeypatch.setattr(rank_resources, "SAMPLE_SECONDS", 0.5)
    node = make_node(heartbeat_seconds=0.1)
    store = SqliteStore(node.state / "store")
    agent = Agent(
        store, AgentConfig(node=node.name, folder=node.folder, cluster=node.cluster, slots=4)
    )
    thread = threading.Thread(target=agent.run)
    thread.start()
    try:
        node.wait_for("NodeJoined")
        node.launch(node.plan(REPORTER, {"pause": 0.02}), generation=1)
        computed, held = None, None
        for heartbeat in node.heartbeats():
            computed = heartbeat.rank_computes or computed
            held = (
                (heartbeat.rank_resources, heartbeat.memory_free_bytes)
                if heartbeat.rank_resources
                else held
            )
            if computed and held:
                break
        node.assign(None, 2)
        node.wait_for("RanksTerminated")
    finally:
        agent.leave()
        thread.join()
        store.close()
    assert computed == (RankCompute(rank=0, seconds=0.01), RankCompute(rank=1, seconds=0.02))
    assert held is not None
    holding, free_bytes = held
    assert [each.rank for each in holding] == [0, 1]
    assert all(2e6 < each.memory_bytes < 50e6 for each in holding)
    assert all(each.descriptors in range(4, 8) for each in holding)
    assert free_bytes > 0
