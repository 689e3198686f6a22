"""Nodes that are other machines: their agents are started there, with cluster.yaml, the token and the password file alone.

Supervisor, agents and commands each have their own user of the store, with the rights in deploy/users.acl.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import yaml

from runner.facts.messages.cluster_status import ClusterStatus, RunStatus
from runner.facts.wire import to_plain
from tests.clock import JumpingClock
from tests.e2e.cluster_harness import (
    STOKER,
    ClusterHarness,
    kill,
    newest_run,
    node_of,
    run_of,
)
from tests.e2e.scripts import STEPPING
from tests.e2e.soak import CHAIN
from tests.store.redis_server import NoRedis, RedisServer

pytestmark = pytest.mark.timeout(900)

LIMITS = {
    "checks": [],
    "heartbeat_seconds": 0.2,
    # An agent is restarted within it, on a loaded machine too.
    "heartbeat_timeout_seconds": 8.0,
    "lease_seconds": 2.0,
    "hard_cap_seconds": 60.0,
}


# The cluster's file of people who only read, and send requests.
PEOPLE = ("--cluster", "people.yaml")


class Machines:
    """Folders that play machines: nothing of the supervisor's state is in them."""

    def __init__(self, harness: ClusterHarness, redis: RedisServer) -> None:
        self.harness, self.redis = harness, redis
        self.agents: dict[str, subprocess.Popen[bytes]] = {}
        self.fields = {
            "name": harness.name,
            "local": {"nodes": 0, "slots": 1},
            "token_file": "token",
            **LIMITS,
        }
        self._write(harness.folder)
        self._write(harness.folder, "command", "people.yaml")
        made = harness.stoker("token", "--cluster", "cluster.yaml", "--json")
        assert json.loads(made.stdout) == {
            "token_file": str(harness.folder / "token"),
            "made": True,
        }

    def _write(self, folder: Path, role: str = "", name: str = "cluster.yaml") -> None:
        """Copy to a machine the cluster's file, for the store's user of a role, and the files that it names."""
        folder.mkdir(parents=True, exist_ok=True)
        password = role or "password"
        store = to_plain(self.redis.spec(role=role, password_file=password))
        (folder / name).write_text(yaml.safe_dump({**self.fields, "store": store}))
        shutil.copy2(self.redis.folder / password, folder / password)

    def start(
        self, node: str, *, token: str | None = None, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a node's agent on its own machine, by hand; `token`: what its file holds, if not the cluster's."""
        folder = self.harness.folder / f"machine-{node}"
        self._write(folder, "agent")
        copied = shutil.copy2(self.harness.folder / "token", folder / "token")
        if token is not None:
            Path(copied).write_text(token)
        with (folder / "log").open("ab") as log:
            self.agents[node] = subprocess.Popen(
                [STOKER, "agent", "--cluster", "cluster.yaml", "--node", node],
                cwd=folder,
                env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self.agents[node]

    def note(self, node: str, name: str) -> int:
        """Return the pid in the pid file of a node's agent or keeper."""
        state = self.harness.folder / f"machine-{node}" / ".stoker" / self.harness.name
        return int(json.loads((state / "nodes" / node / name).read_text())["pid"])


@pytest.fixture
def machines(harness: ClusterHarness, tmp_path: Path) -> Iterator[Machines]:
    """A cluster with a Redis store that requires a password, and no node of its own."""
    try:
        server = RedisServer(tmp_path / "redis", acl=True, cluster=harness.name)
    except NoRedis as error:
        pytest.skip(str(error))
    with server:
        found = Machines(harness, server)
        yield found
        for agent in found.agents.values():
            agent.poll()


def await_states(harness: ClusterHarness, *states: str) -> None:
    """Wait until the nodes, by name, are in these states."""
    harness.wait(
        lambda view: (
            tuple(node.state for node in sorted(view.nodes, key=lambda node: node.node)) == states
            or None
        ),
        f"nodes {states}",
    )


def led(
    machines: Machines, script: str = STEPPING, of_m2: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a supervisor and the agents of two machines, and submit a run on both; `of_m2`: variables that m2 has besides."""
    harness = machines.harness
    supervisor = harness.start("supervise")
    harness.until(harness.view, "a first View")
    machines.start("m1")
    # The first to join has rank 0.
    await_states(harness, "spare")
    machines.start("m2", environment=of_m2)
    await_states(harness, "spare", "spare")
    assert node_of(harness.view(), "m1").address == "127.0.0.1"
    harness.write_script(script)
    harness.write_run(command="{python} train.py", nodes=2, python=sys.executable)
    handed = harness.stoker("run", "run.yaml", "--detach", *PEOPLE)
    assert handed.returncode == 0, handed
    return supervisor


def test_a_cluster_of_other_machines_runs_loses_one_and_ends_in_order(machines: Machines) -> None:
    """A restarted agent adopts its ranks; the run waits for a dead machine; a shutdown ends agents that only the store reaches.

    The commands' user sends requests and reads what it likes; it neither supervises nor examines the store.
    """
    harness = machines.harness
    # Its ranks need each other.
    supervisor = led(machines, CHAIN)
    before = harness.training(past_step=1)
    for words in (("status",), ("story",), ("metrics",)):
        shown = harness.stoker(*words, *PEOPLE)
        assert shown.returncode == 0, shown
        assert not shown.stderr
    refused = harness.stoker("supervise", "--standby", *PEOPLE)
    assert refused.returncode == 2, refused
    assert "store.user: 'stoker-command' lacks rights" in refused.stderr
    assert "need the supervisors' user" in refused.stderr
    examined = harness.stoker("store", "doctor", *PEOPLE)
    assert examined.returncode == 1, examined
    assert "take the supervisors' user" in examined.stdout

    # An init system restarts the agent next.
    kill(machines.note("m1", "agent.lock"))
    machines.agents["m1"].wait()
    machines.start("m1")
    pid = harness.wait(
        lambda view: (
            (
                node_of(view, "m1").agent_pid == machines.agents["m1"].pid
                and node_of(view, "m1").state == "active"
            )
            or None
        ),
        "another agent on m1",
    )
    assert pid
    after = harness.training(past_step=run_of(harness.view()).step + 10)
    assert after.pids == before.pids

    agent, keeper = machines.note("m2", "agent.lock"), machines.note("m2", "keeper.json")
    kill(agent)
    kill(keeper)
    machines.agents["m2"].wait()
    harness.wait(
        lambda view: node_of(view, "m2").state in ("suspect", "lost") or None, "m2 is gone"
    )
    harness.wait(lambda view: run_of(view).state == "waiting" or None, "the run to wait for a node")
    machines.start("m2")
    last = harness.training(after=before.attempt)
    assert last.pids[0] != before.pids[0]
    end(machines, supervisor)


def test_a_machine_with_another_variable_starts_no_run_unless_a_person_approves(
    machines: Machines,
) -> None:
    """Not in the first attempt either: machine, variable and both values are named; variables of the machine's own are none."""
    harness = machines.harness
    supervisor = led(machines, of_m2={"NCCL_ALGO": "Tree", "NCCL_SOCKET_IFNAME": "eth7"})
    held = harness.wait(_held, "a run that waits")
    assert held.hold is not None
    assert f"{held.attempt} on m2 is not the same run: variable NCCL_ALGO absent -> Tree;" in (
        held.hold.reason
    )
    accepted = harness.stoker("restart", "--accept-drift", *PEOPLE)
    assert accepted.returncode == 0, accepted
    before = harness.training(past_step=1, after=held.attempt)
    kill(before.pids[0])
    harness.training(past_step=1, after=before.attempt)
    # Ranks report what they run with beside their first steps.
    harness.until(
        lambda: "1.1.0 to 1.1.2 ran with Python 3." in harness.stoker("lineage", *PEOPLE).stdout,
        "the conditions of the third attempt",
    )
    end(machines, supervisor)


def _held(view: ClusterStatus) -> RunStatus | None:
    run = newest_run(view)
    return run if run is not None and run.hold is not None else None


def end(machines: Machines, supervisor: subprocess.Popen[bytes]) -> None:
    """Let the run come to its goal, and shut the cluster down."""
    harness = machines.harness
    (harness.folder / "enough").touch()
    harness.wait(lambda view: run_of(view).state == "finished", "the end of the run")
    ended = harness.stoker("shutdown", *PEOPLE)
    assert ended.returncode == 0, ended
    assert supervisor.wait(60) == 0
    for node in ("m1", "m2"):
        assert machines.agents[node].wait(60) == 0, f"agent of {node}"


def test_without_the_token_supervisor_agent_and_request_are_refused(machines: Machines) -> None:
    """Each of them prints one line that names the missing file and the remedy."""
    harness = machines.harness
    (harness.folder / "token").unlink()
    for words in (("supervise",), ("agent", "--node", "m1")):
        refused = harness.stoker(*words)
        assert refused.returncode == 2, refused
        assert str(harness.folder / "token") in refused.stderr
        assert "stoker token" in refused.stderr
        assert len(refused.stderr.splitlines()) == 1


def test_an_agent_with_another_clusters_token_is_refused(machines: Machines) -> None:
    """It reaches the store, and the supervisor refuses its messages: no node of that name ever joins."""
    harness = machines.harness
    supervisor = harness.start("supervise")
    harness.until(harness.view, "a first View")
    other_agent = machines.start("m1", token="another cluster's token, long enough\n")
    harness.wait(lambda view: view.refused_messages.get("unsigned", 0) >= 3 or None, "refusals")
    view = harness.view()
    assert view is not None
    assert not view.nodes
    kill(other_agent.pid)
    other_agent.wait()
    kill(machines.note("m1", "keeper.json"))
    assert harness.stoker("shutdown").returncode == 0
    assert supervisor.wait(60) == 0


def test_a_second_cluster_of_the_same_name_on_one_server_is_refused(machines: Machines) -> None:
    """Its folders and its token are its own: neither its supervisor, its standby nor its commands touch the first's journal."""
    harness, second = machines.harness, machines.harness.folder / "second"
    machines._write(second)
    assert harness.stoker("token", "--cluster", str(second / "cluster.yaml")).returncode == 0
    supervisor = harness.start("supervise")
    harness.until(harness.view, "a first View")
    for words in (("supervise", "--standby"), ("shutdown",)):
        refused = harness.stoker(*words, "--cluster", str(second / "cluster.yaml"))
        assert refused.returncode == 2, refused
        for part in (f"another cluster {harness.name!r}", str(second / "token"), "another name"):
            assert part in refused.stderr
    assert supervisor.poll() is None
    assert harness.stoker("shutdown").returncode == 0
    assert supervisor.wait(60) == 0


def test_an_agent_whose_clock_is_off_joins_by_itself_once_it_is_right(machines: Machines) -> None:
    """Until then its log and the story say by how much; once joined it stays, and a clock that is off again is shown."""
    harness = machines.harness
    machines.fields["heartbeat_timeout_seconds"] = 1.0
    machines._write(harness.folder)
    clock = JumpingClock(harness.folder / "clock")
    clock.set("nodes", 7200)
    supervisor = harness.start("supervise")
    agent = machines.start("m1", environment=clock.environment)
    log = harness.folder / "machine-m1" / "log"
    harness.until(lambda: "may not join" in log.read_text() or None, "a refusal in the agent's log")
    for text in (log.read_text(), harness.stoker("story").stdout):
        for part in ("the join of m1 was sent at", " s after this supervisor's clock", "300 s"):
            assert part in text
    view = harness.wait(
        lambda view: view if view.refused_messages.get("stale") else None, "the refusal is counted"
    )
    assert not view.nodes
    clock.set("nodes", 0)
    await_states(harness, "spare")
    clock.set("nodes", 7200)
    harness.wait(lambda view: node_of(view, "m1").clock_ahead_seconds > 7000 or None, "a clock")
    shown = harness.stoker("nodes").stdout
    assert " s ahead" in shown
    assert "spare" in shown
    assert harness.stoker("shutdown").returncode == 0
    assert (supervisor.wait(60), agent.wait(60)) == (0, 0)
