"""A leader, a standby and their store, which pauses or dies with the leader: afterwards one of them leads, and no rank notices."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.cluster_harness import ClusterHarness, Training, incidents_of
from tests.e2e.fleet_harness import goes_on, redis_server, write_redis_cluster
from tests.e2e.scripts import STEPPING, steps_of
from tests.e2e.supervisor.test_standby import await_standby, tokens
from tests.store.redis_server import RedisServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

LEASE_SECONDS = 2.0
Supervisors = tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]


@contextmanager
def at_work(
    harness: ClusterHarness, folder: Path
) -> Iterator[tuple[RedisServer, Supervisors, Training]]:
    """Start a run of two nodes under a leader, with a standby, on a Redis server."""
    with redis_server(folder / "redis") as redis:
        local = {"nodes": 2, "slots": 1}
        write_redis_cluster(harness, redis, local=local, lease_seconds=LEASE_SECONDS, checks=[])
        harness.write_script(STEPPING)
        command = [sys.executable, "train.py"]
        harness.write_run(command=command, nodes=2, working_directory=str(harness.folder))
        leader = harness.start("supervise")
        harness.until(harness.view, "a first View")
        standby = harness.start("supervise", "--standby")
        await_standby(harness, standby)
        handed = harness.stoker("run", "run.yaml", "--detach", "--cluster", "cluster.yaml")
        assert handed.returncode == 0, handed
        yield redis, (leader, standby), harness.training(past_step=3)
        (harness.folder / "enough").touch()
        harness.wait(lambda view: view.runs[0].state == "finished", "the end of the run")
        assert harness.stoker("shutdown", "--cluster", "cluster.yaml").returncode == 0


def await_reported_steps(harness: ClusterHarness, before: Training) -> None:
    """Wait for steps of the same ranks of the same attempt in the status; check that there is no incident."""
    newest = max(steps_of(harness.folder, rank)[-1].step for rank in before.pids)
    goes_on(harness, replace(before, step=newest))
    assert not incidents_of(harness.view())


def test_a_store_paused_beyond_the_lease_leaves_one_leader_and_an_undisturbed_run(
    harness: ClusterHarness, tmp_path: Path
) -> None:
    """SIGSTOP of Redis for three times the lease: leader and standby are cut off alike; after SIGCONT one of them leads."""
    with at_work(harness, tmp_path) as (redis, supervisors, before):
        steps = len(steps_of(harness.folder, 0))
        redis.pause()
        time.sleep(3 * LEASE_SECONDS)
        redis.resume()
        # The ranks stepped on meanwhile.
        assert len(steps_of(harness.folder, 0)) > steps
        await_reported_steps(harness, before)
        view = harness.view()
        assert view is not None
        leads = [each for each in supervisors if f":{each.pid}:" in view.holder]
        assert len(leads) == 1
        ended = [each for each in supervisors if each.poll() is not None]
        assert not set(leads) & set(ended)
        assert tokens(harness)[-1][0] == leads[0].pid


def test_a_standby_leads_after_leader_and_store_died_together(
    harness: ClusterHarness, tmp_path: Path
) -> None:
    """SIGKILL to both in one moment: the server comes back from its disk, the standby leads, every step goes on."""
    with at_work(harness, tmp_path) as (redis, (leader, standby), before):
        leader.kill()
        redis.kill()
        leader.wait()
        time.sleep(LEASE_SECONDS)
        redis.start()
        harness.wait(lambda view: f":{standby.pid}:" in view.holder or None, "the standby leads")
        await_reported_steps(harness, before)
        assert [pid for pid, _ in tokens(harness)] == [leader.pid, standby.pid]
