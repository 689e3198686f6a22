"""Outages of Stoker's own parts: whatever dies, stops or cannot be reached, healthy ranks go on."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import time
from contextlib import ExitStack, closing

import pytest

from runner.facts.messages.cluster_status import NodeStatus
from tests.e2e.scripts import steps_of
from tests.e2e.stand import RankStack, incidents_of, kill, node_of, run_of
from tests.e2e.stepping import finish, led_run

pytestmark = pytest.mark.timeout(1800)

SEED = 20240613
NUM_KILLS = int(os.environ.get("STOKER_SOAK", "10"))


def test_a_supervisor_killed_at_random_moments_disturbs_nothing(stand: RankStack) -> None:
    """SIGKILL at random moments, start-up and recovery among them: one attempt, the same processes, no step lost."""
    rng = random.Random(SEED)
    supervisor = led_run(stand)
    pids = stand.training(past_step=1).pids
    for _ in range(NUM_KILLS):
        time.sleep(rng.uniform(0.0, 1.5))
        supervisor.kill()
        supervisor.wait()
        supervisor = stand.start("supervise")
    holder = f":{supervisor.pid}:"
    stand.wait(lambda view: holder in view.holder or None, "a View of the last supervisor")
    print(f"{NUM_KILLS} kills; step {stand.training(past_step=1).step}")
    assert stand.observer.gang() == pids
    finish(stand, supervisor)
    assert stand.observer.starts() == {"1.1.0": 2}
    assert_no_step_lost(stand, pids)
    assert run_of(stand.view()).num_attempts == 1
    assert not incidents_of(stand.view())


def test_a_supervisor_killed_while_it_recovers_a_run_starts_it_once(stand: RankStack) -> None:
    """A rank dies, and within half a second the supervisor too: each time exactly one new attempt, never two gangs."""
    rng = random.Random(SEED + 1)
    num_kills = max(5, NUM_KILLS // 2)
    supervisor = led_run(stand)
    now = stand.training(past_step=1)
    for _ in range(num_kills):
        kill(now.pids[rng.randrange(2)])
        time.sleep(rng.uniform(0.0, 0.5))
        supervisor.kill()
        supervisor.wait()
        supervisor = stand.start("supervise")
        now = stand.training(past_step=run_of(stand.view()).best_step, after=now.attempt)
    print(f"{num_kills} kills; attempts {stand.observer.starts()}")
    finish(stand, supervisor)
    assert list(stand.observer.starts().values()) == [2] * (num_kills + 1)
    assert {i.state for i in incidents_of(stand.view())} == {"resolved"}


def test_a_second_supervisor_is_refused_with_holder_and_way_out(stand: RankStack) -> None:
    """Who leads already is named, and so is the way to end it; the first one is not disturbed."""
    supervisor = led_run(stand)
    before = stand.training(past_step=1)
    second = stand.stoker("supervise")
    print(second.stderr)
    assert second.returncode == 2
    assert stand.name in second.stderr
    assert f":{supervisor.pid}:" in second.stderr
    assert "stoker shutdown" in second.stderr
    assert len(second.stderr.splitlines()) == 1
    assert stand.training(past_step=before.step + 5).pids == before.pids
    finish(stand, supervisor)
    assert stand.observer.starts() == {"1.1.0": 2}


def test_an_agent_killed_while_steps_advance_is_replaced_and_its_ranks_adopted(
    stand: RankStack,
) -> None:
    """SIGKILL to an agent: another one takes over the same ranks, and no step is lost."""
    supervisor = led_run(stand)
    before = stand.training(past_step=1)
    old = node_of(stand.view(), "n2").agent_pid
    kill(old)
    stand.wait(
        lambda view: node_of(view, "n2").agent_pid != old and node_of(view, "n2").state == "active",
        "another agent",
    )
    after = stand.training(past_step=run_of(stand.view()).step + 20)
    assert after.pids == before.pids
    finish(stand, supervisor)
    assert stand.observer.starts() == {"1.1.0": 2}
    assert_no_step_lost(stand, before.pids)
    found = [(i.fault, i.state, i.rungs) for i in incidents_of(stand.view())]
    assert found == [("node_silent", "resolved", ("start_agent",))]


def test_ranks_die_with_their_keeper_and_the_gang_starts_again(stand: RankStack) -> None:
    """SIGKILL to a keeper: its rank is gone at once, nobody is left behind, the next attempt trains on."""
    supervisor = led_run(stand)
    before = stand.training(past_step=1)
    note = json.loads((stand.state / "nodes" / "n1" / "keeper.json").read_text())
    kill(int(note["pid"]))
    after = stand.training(past_step=before.step + 1, after=before.attempt)
    print(f"{before.attempt} at step {before.step}, {after.attempt} at step {after.step}")
    finish(stand, supervisor)
    assert stand.observer.starts() == {"1.1.0": 2, "1.1.1": 2}


def test_a_supervisor_that_stood_still_blames_nobody(stand: RankStack) -> None:
    """SIGSTOP for longer than the silence limit, then SIGCONT: no incident, no node suspected, the same ranks."""
    supervisor = led_run(stand, silence_seconds=1.0)
    before = stand.training(past_step=1)
    kill(supervisor.pid, signal.SIGSTOP)
    time.sleep(6.0)
    kill(supervisor.pid, signal.SIGCONT)
    stood_at = run_of(stand.view()).step
    after = stand.training(past_step=stood_at + 150)
    assert after.pids == before.pids
    assert not incidents_of(stand.view())
    assert [node.state for node in view_nodes(stand)] == ["active", "active"]
    finish(stand, supervisor)
    assert stand.observer.starts() == {"1.1.0": 2}
    assert_no_step_lost(stand, before.pids)


@pytest.mark.parametrize("outage", ["locked", "moved away"])
def test_a_lost_store_kills_no_rank_that_advances(stand: RankStack, outage: str) -> None:
    """The store is out of reach for ten fence times while steps advance: no rank is killed, and nobody is blamed after."""
    fence_seconds = 0.6
    supervisor = led_run(stand, fence_seconds=fence_seconds, silence_seconds=1.0)
    before = stand.training(past_step=1)
    with ExitStack() as lost:
        lock(stand, lost) if outage == "locked" else move_away(stand, lost)
        started, steps_then = time.monotonic(), len(steps_of(stand.folder, 0))
        time.sleep(10 * fence_seconds)
        lost_seconds, steps = (
            time.monotonic() - started,
            len(steps_of(stand.folder, 0)) - steps_then,
        )
        assert stand.observer.gang() == before.pids
    print(f"store {outage} for {lost_seconds:.1f} s, {steps} steps meanwhile")
    assert steps > 20
    after = stand.training(past_step=steps_then + steps)
    assert after.pids == before.pids
    time.sleep(2.0)
    assert supervisor.poll() is None
    finish(stand, supervisor)
    assert stand.observer.starts() == {"1.1.0": 2}
    assert_no_step_lost(stand, before.pids)
    assert [i.fault for i in incidents_of(stand.view())] == []


def assert_no_step_lost(stand: RankStack, pids: dict[int, int]) -> None:
    """Each rank made every step once, in one process."""
    for rank, pid in pids.items():
        steps = steps_of(stand.folder, rank)
        assert [step.step for step in steps] == list(range(1, len(steps) + 1))
        assert {step.pid for step in steps} == {pid}


def view_nodes(stand: RankStack) -> tuple[NodeStatus, ...]:
    """Return the nodes as published."""
    view = stand.view()
    assert view is not None
    return view.nodes


def lock(stand: RankStack, lost: ExitStack) -> None:
    """Keep every other process from writing into the store."""
    for path in (stand.state / "store").glob("*.db"):
        connection = lost.enter_context(closing(sqlite3.connect(path, isolation_level=None)))
        connection.execute("PRAGMA busy_timeout = 10000")
        connection.execute("BEGIN EXCLUSIVE")


def move_away(stand: RankStack, lost: ExitStack) -> None:
    """Take the store's folder away, and put it back afterwards."""
    here = stand.state / "store"
    away = here.rename(here.with_name("store-away"))
    lost.callback(lambda: away.rename(here))
