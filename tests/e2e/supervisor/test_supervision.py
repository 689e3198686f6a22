"""Outages of Stoker's own parts: when one dies, stops or is unreachable, healthy ranks go on."""

import json
import os
import random
import signal
import sqlite3
import time
from contextlib import ExitStack, closing

import pytest

from runner.facts.messages.cluster_status import NodeStatus
from tests.e2e.cluster_harness import ClusterHarness, incidents_of, kill, node_of, run_of
from tests.e2e.minimal_run import finish, led_run
from tests.e2e.scripts import steps_of
from tests.suite.share import current

pytestmark = pytest.mark.timeout(1800)

SEED = 20240613
NUM_KILLS = int(os.environ.get("STOKER_SOAK", "10"))


def test_a_supervisor_killed_at_random_moments_disturbs_nothing(harness: ClusterHarness) -> None:
    """SIGKILL at random moments, start-up and recovery among them: one attempt, the same processes, no step lost."""
    rng = random.Random(SEED)
    supervisor = led_run(harness)
    pids = harness.training(past_step=1).pids
    delays = current().of([rng.uniform(0.0, 1.5) for _ in range(NUM_KILLS)])
    for delay_seconds in delays:
        time.sleep(delay_seconds)
        supervisor.kill()
        supervisor.wait()
        supervisor = harness.start("supervise")
    holder = f":{supervisor.pid}:"
    harness.wait(lambda view: holder in view.holder or None, "a View of the last supervisor")
    print(f"{len(delays)} kills; step {harness.training(past_step=1).step}")
    assert harness.observer.gang() == pids
    finish(harness, supervisor)
    assert harness.observer.starts() == {"1.1.0": 2}
    assert_no_step_lost(harness, pids)
    assert run_of(harness.view()).num_attempts == 1
    assert not incidents_of(harness.view())


def test_a_supervisor_killed_while_it_recovers_a_run_starts_it_once(
    harness: ClusterHarness,
) -> None:
    """A rank dies, and within half a second the supervisor too: each time exactly one new attempt, never two gangs."""
    rng = random.Random(SEED + 1)
    drawn = [(rng.randrange(2), rng.uniform(0.0, 0.5)) for _ in range(max(5, NUM_KILLS // 2))]
    kills = current().of(drawn)
    supervisor = led_run(harness)
    now = harness.training(past_step=1)
    for rank, delay_seconds in kills:
        kill(now.pids[rank])
        time.sleep(delay_seconds)
        supervisor.kill()
        supervisor.wait()
        supervisor = harness.start("supervise")
        now = harness.training(past_step=run_of(harness.view()).best_step, after=now.attempt)
    print(f"{len(kills)} kills; attempts {harness.observer.starts()}")
    finish(harness, supervisor)
    assert list(harness.observer.starts().values()) == [2] * (len(kills) + 1)
    assert {i.state for i in incidents_of(harness.view())} == {"resolved"}


def test_a_second_supervisor_is_refused_with_holder_and_remedy(harness: ClusterHarness) -> None:
    """The error names the leader and how to end it; the leader is not disturbed."""
    supervisor = led_run(harness)
    before = harness.training(past_step=1)
    second = harness.stoker("supervise")
    print(second.stderr)
    assert second.returncode == 2
    assert harness.name in second.stderr
    assert f":{supervisor.pid}:" in second.stderr
    assert "stoker shutdown" in second.stderr
    assert len(second.stderr.splitlines()) == 1
    assert harness.training(past_step=before.step + 5).pids == before.pids
    finish(harness, supervisor)
    assert harness.observer.starts() == {"1.1.0": 2}


def test_an_agent_killed_while_steps_advance_is_replaced_and_its_ranks_adopted(
    harness: ClusterHarness,
) -> None:
    """SIGKILL to an agent: another one takes over the same ranks, and no step is lost."""
    supervisor = led_run(harness)
    before = harness.training(past_step=1)
    old = node_of(harness.view(), "n2").agent_pid
    kill(old)
    harness.wait(
        lambda view: node_of(view, "n2").agent_pid != old and node_of(view, "n2").state == "active",
        "another agent",
    )
    after = harness.training(past_step=run_of(harness.view()).step + 20)
    assert after.pids == before.pids
    finish(harness, supervisor)
    assert harness.observer.starts() == {"1.1.0": 2}
    assert_no_step_lost(harness, before.pids)
    found = [(i.fault, i.state, i.rungs) for i in incidents_of(harness.view())]
    assert found == [("node_silent", "resolved", ("start_agent",))]


def test_ranks_die_with_their_keeper_and_the_gang_starts_again(harness: ClusterHarness) -> None:
    """SIGKILL to a keeper: its rank dies at once, no process is left behind, the next attempt trains on."""
    supervisor = led_run(harness)
    before = harness.training(past_step=1)
    note = json.loads((harness.state / "nodes" / "n1" / "keeper.json").read_text())
    kill(int(note["pid"]))
    after = harness.training(past_step=before.step + 1, after=before.attempt)
    print(f"{before.attempt} at step {before.step}, {after.attempt} at step {after.step}")
    finish(harness, supervisor)
    assert harness.observer.starts() == {"1.1.0": 2, "1.1.1": 2}


def test_a_paused_supervisor_opens_no_incident(harness: ClusterHarness) -> None:
    """SIGSTOP for longer than the heartbeat timeout, then SIGCONT: no incident, no node suspected, the same ranks."""
    supervisor = led_run(harness, heartbeat_timeout_seconds=1.0)
    before = harness.training(past_step=1)
    kill(supervisor.pid, signal.SIGSTOP)
    time.sleep(6.0)
    kill(supervisor.pid, signal.SIGCONT)
    stood_at = run_of(harness.view()).step
    after = harness.training(past_step=stood_at + 150)
    assert after.pids == before.pids
    assert not incidents_of(harness.view())
    assert [node.state for node in view_nodes(harness)] == ["active", "active"]
    finish(harness, supervisor)
    assert harness.observer.starts() == {"1.1.0": 2}
    assert_no_step_lost(harness, before.pids)


@pytest.mark.parametrize("outage", ["locked", "moved away"])
def test_a_lost_store_kills_no_rank_that_advances(harness: ClusterHarness, outage: str) -> None:
    """The store is unreachable for ten fence times while steps advance: no rank is killed, and no incident follows."""
    fence_seconds = 0.6
    supervisor = led_run(harness, fence_seconds=fence_seconds, heartbeat_timeout_seconds=1.0)
    before = harness.training(past_step=1)
    with ExitStack() as lost:
        lock(harness, lost) if outage == "locked" else move_away(harness, lost)
        started, steps_then = time.monotonic(), len(steps_of(harness.folder, 0))
        time.sleep(10 * fence_seconds)
        lost_seconds, steps = (
            time.monotonic() - started,
            len(steps_of(harness.folder, 0)) - steps_then,
        )
        assert harness.observer.gang() == before.pids
    print(f"store {outage} for {lost_seconds:.1f} s, {steps} steps meanwhile")
    assert steps > 20
    after = harness.training(past_step=steps_then + steps)
    assert after.pids == before.pids
    time.sleep(2.0)
    assert supervisor.poll() is None
    finish(harness, supervisor)
    assert harness.observer.starts() == {"1.1.0": 2}
    assert_no_step_lost(harness, before.pids)
    assert [i.fault for i in incidents_of(harness.view())] == []


def assert_no_step_lost(harness: ClusterHarness, pids: dict[int, int]) -> None:
    """Each rank made every step once, in one process."""
    for rank, pid in pids.items():
        steps = steps_of(harness.folder, rank)
        assert [step.step for step in steps] == list(range(1, len(steps) + 1))
        assert {step.pid for step in steps} == {pid}


def view_nodes(harness: ClusterHarness) -> tuple[NodeStatus, ...]:
    """Return the nodes as published."""
    view = harness.view()
    assert view is not None
    return view.nodes


def lock(harness: ClusterHarness, lost: ExitStack) -> None:
    """Keep every other process from writing into the store."""
    for path in (harness.state / "store").glob("*.db"):
        connection = lost.enter_context(closing(sqlite3.connect(path, isolation_level=None)))
        connection.execute("PRAGMA busy_timeout = 10000")
        connection.execute("BEGIN EXCLUSIVE")


def move_away(harness: ClusterHarness, lost: ExitStack) -> None:
    """Take the store's folder away, and put it back afterwards."""
    here = harness.state / "store"
    away = here.rename(here.with_name("store-away"))
    lost.callback(lambda: away.rename(here))
