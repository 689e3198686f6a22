"""The delivered systemd units: which ends of their processes are followed by another start, and what outlives them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from runner.facts import wire
from runner.facts.messages.assignments import Assignment
from runner.facts.messages.signals import NodeJoined
from runner.facts.store_names import JOURNAL, LEASE, SIGNALS, assignment_register
from runner.store.registry import open_store
from tests.e2e.cluster_harness import ClusterHarness, kill
from tests.e2e.scripts import STEPPING
from tests.e2e.unit_driver import DEPLOY, UnitDriver

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("path", sorted(DEPLOY.glob("*.service")), ids=lambda path: path.name)
def test_systemd_itself_finds_nothing_wrong_with_a_unit(path: Path) -> None:
    """As delivered: the program that this machine has not installed into /opt is all that it misses."""
    if shutil.which("systemd-analyze") is None:
        assert not os.environ.get("CI"), "tests/install-tools.sh installs systemd-analyze"
        pytest.skip("no systemd-analyze; tests/install-tools.sh installs it")
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", path],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    lines = [line for line in done.stderr.splitlines() if path.stem.rstrip("@") in line]
    missing = "Command /opt/stoker/bin/stoker is not executable"
    assert [line for line in lines if missing not in line] == [], done


def await_next_leader(harness: ClusterHarness, unit: UnitDriver, num_exits: int) -> None:
    """Wait until the unit leads with a process that it started after so many ends."""
    harness.wait(
        lambda view: (unit.num_starts > num_exits and f":{unit.pid}:" in view.holder) or None,
        "the unit leads again",
    )


def test_the_supervisors_unit_comes_back_but_from_a_shutdown_and_a_store_that_does_not_verify(
    harness: ClusterHarness,
) -> None:
    """Killed, or without its lease (1), it is started again and ranks go on; after 0 and 5 it stays down."""
    limits = {"checks": [], "lease_seconds": 1.0, "token_file": str(harness.folder / "token")}
    harness.write_cluster(nodes=1, slots=1, limits={**limits, "state": str(harness.state)})
    harness.write_script(STEPPING)
    harness.write_run(command="{python} train.py", python=sys.executable)
    with UnitDriver(harness, "stoker-supervise.service") as unit:
        harness.until(harness.view, "a first View")
        assert harness.stoker("run", "run.yaml", "--detach").returncode == 0
        before = harness.training(past_step=1)

        kill(unit.pid)
        await_next_leader(harness, unit, 1)
        assert unit.exits == [-9]

        holder = harness.store.lease_holder(LEASE)
        assert holder is not None
        assert harness.store.break_lease(LEASE, holder.holder)
        other = harness.store.acquire_lease(LEASE, "another:1:1", ttl_seconds=0.5)
        harness.until(lambda: len(unit.exits) == 2 or None, "the end of the supervisor")
        harness.store.release(other)
        await_next_leader(harness, unit, 2)
        assert unit.exits == [-9, 1]
        after = harness.training(past_step=before.step)
        assert (after.attempt, after.pids) == (before.attempt, before.pids)

        (harness.folder / "enough").touch()
        harness.wait(lambda view: view.runs[0].state == "finished", "the end of the run")
        assert harness.stoker("shutdown").returncode == 0
        harness.until(lambda: unit.is_down or None, "the unit is down")
        assert unit.exits == [-9, 1, 0]

    harness.store.append(JOURNAL, b"made up")
    with UnitDriver(harness, "stoker-supervise.service") as unit:
        harness.until(lambda: unit.is_down or None, "the unit is down")
        assert unit.exits == [5]


def test_the_agents_unit_comes_back_but_when_it_left_or_another_agent_is_the_node(
    harness: ClusterHarness,
) -> None:
    """Killed, it is started again and its keeper lives on; after 77 and 0 it stays down."""
    harness.write_cluster(nodes=1, slots=1, limits={"checks": [], "state": str(harness.state)})
    harness.state.mkdir(parents=True)
    store = open_store(harness.spec)

    def joined(count: int) -> NodeJoined:
        """Return the join of the agent that started as number `count`."""

        def look() -> NodeJoined | None:
            found = store.read(streams={SIGNALS: 0}, registers={}, timeout_seconds=0)
            facts = [wire.decode(item.payload) for item in found.items.get(SIGNALS, ())]
            instances = {fact.instance_id: fact for fact in facts if isinstance(fact, NodeJoined)}
            return list(instances.values())[count - 1] if len(instances) >= count else None

        return harness.until(look, f"join {count}")

    def assign(generation: int, instance_id: str) -> None:
        assignment = Assignment(node="n1", generation=generation, instance_id=instance_id)
        store.put(assignment_register("n1"), wire.encode(assignment))

    def keeper() -> int:
        return int(json.loads((harness.state / "nodes/n1/keeper.json").read_text())["pid"])

    with UnitDriver(harness, "stoker-agent@.service", instance="n1") as unit:
        joined(1)
        first = keeper()
        kill(unit.pid)
        second = joined(2)
        assert unit.exits == [-9]
        assert keeper() == first
        assign(1, second.instance_id)
        accepted = harness.state / "nodes/n1/agent.json"
        harness.until(
            lambda: json.loads(accepted.read_text())["generation"] == 1 or None, "generation 1"
        )
        assign(2, "another")
        harness.until(lambda: unit.is_down or None, "the unit is down")
        assert unit.exits == [-9, 77]

        unit.start()
        joined(3)
        kill(unit.pid, 15)
        harness.until(lambda: unit.is_down or None, "the unit is down")
        assert unit.exits == [-9, 77, 0]
    store.close()
