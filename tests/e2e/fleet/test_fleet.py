"""A fleet with several runs, and an unreachable store: which run gets the spare, and that no outage ends a healthy run."""

import shlex
import sys
import time
from pathlib import Path

import pytest

from runner.facts.messages.cluster_status import ClusterStatus, RunStatus
from tests.e2e.cluster_harness import ClusterHarness, kill, node_of
from tests.e2e.fleet_harness import redis_server, write_redis_cluster
from tests.e2e.scripts import STEPPING, steps_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

FENCE_SECONDS = 1.0


def run_named(view: ClusterStatus | None, name: str) -> RunStatus:
    """Return a run, which must be there."""
    assert view is not None
    return next(run for run in view.runs if run.name == name)


def published_steps(view: ClusterStatus) -> dict[str, int]:
    """Return the last step of each run by its name; a run just submitted is not in the status yet."""
    return {run.name: run.step for run in view.runs}


def test_the_run_with_priority_gets_the_only_spare(harness: ClusterHarness) -> None:
    """Two runs lose their node while no supervisor runs: the more important one goes on, the other waits, with the reason.

    So the supervisor detects both losses at once; one after the other, the first run would get the spare.
    """
    limits = {"heartbeat_timeout_seconds": 1.0, "checks": []}
    harness.write_cluster(nodes=2, slots=1, spares=1, limits=limits)
    harness.write_script(STEPPING)
    supervisor = harness.start("supervise")
    harness.until(harness.view, "a first View")
    for name, priority in (("minor", 0), ("major", 5)):
        (harness.folder / name).mkdir()
        command = shlex.join([sys.executable, str(harness.folder / "train.py")])
        where = str(harness.folder / name)
        harness.write_run(name=name, command=command, working_directory=where, priority=priority)
        handed = harness.stoker("run", "run.yaml", "--detach", "--cluster", "cluster.yaml")
        assert handed.returncode == 0, handed
    harness.wait(
        lambda view: all(published_steps(view).get(name, 0) > 3 for name in ("minor", "major")),
        "both runs step",
    )
    view = harness.view()
    supervisor.kill()
    supervisor.wait()
    for name in ("minor", "major"):
        (node,) = run_named(view, name).nodes
        folder = harness.state / "nodes" / node
        pids = [process.pid for process in harness.processes() if str(folder) in process.command]
        ranks = [
            seen.pid for seen in harness.observer.seen if seen.run == name and not seen.is_gone
        ]
        for pid in (node_of(view, node).agent_pid, *pids, *ranks):
            kill(pid)
        # The machine is broken: the supervisor cannot start an agent there again.
        (folder / "agent.lock").unlink()
        (folder / "agent.lock").mkdir()
    harness.start("supervise")
    step = len(steps_of(harness.folder / "major", 0))
    harness.wait(lambda view: run_named(view, "minor").state == "waiting", "the minor run waits")
    harness.until(
        lambda: len(steps_of(harness.folder / "major", 0)) > step + 5, "the major run steps"
    )
    minor = run_named(harness.view(), "minor")
    assert "needs 1 node" in minor.reason
    assert "major" in minor.reason
    for name in ("minor", "major"):
        (harness.folder / name / "enough").touch()
    harness.wait(lambda view: run_named(view, "major").state == "finished", "the major run ends")
    # Its spare is free now, so the minor one goes on too.
    harness.wait(lambda view: run_named(view, "minor").state == "finished", "the minor run ends")
    assert harness.stoker("shutdown", "--cluster", "cluster.yaml").returncode == 0


def test_an_outage_of_the_store_ends_no_advancing_rank(
    harness: ClusterHarness, tmp_path: Path
) -> None:
    """Redis is down for ten fence times: every rank goes on stepping; the supervisor catches up afterwards."""
    with redis_server(tmp_path / "redis") as redis:
        local = {"nodes": 2, "slots": 1}
        write_redis_cluster(harness, redis, local=local, fence_seconds=FENCE_SECONDS)
        harness.write_script(STEPPING)
        command = [sys.executable, "train.py"]
        harness.write_run(command=command, nodes=2, working_directory=str(harness.folder))
        supervisor = harness.start("supervise")
        harness.until(harness.view, "a first View")
        handed = harness.stoker("run", "run.yaml", "--detach", "--cluster", "cluster.yaml")
        assert handed.returncode == 0, handed
        before = harness.training(past_step=5)
        redis.kill()
        time.sleep(10 * FENCE_SECONDS)
        steps = [steps_of(harness.folder, rank)[-1] for rank in (0, 1)]
        redis.start()
        after = harness.training(past_step=max(step.step for step in steps))
        assert (after.attempt, after.pids) == (before.attempt, before.pids)
        assert min(step.step for step in steps) > before.step
        assert supervisor.poll() is None
        # Requests and deaths are handled as usual now.
        kill(after.pids[1])
        again = harness.training(past_step=after.step, after=after.attempt)
        assert again.attempt.restart == after.attempt.restart + 1
        (harness.folder / "enough").touch()
        harness.wait(lambda view: view.runs[0].state == "finished", "the end of the run")
        assert harness.stoker("shutdown", "--cluster", "cluster.yaml").returncode == 0
