"""Harnesses with a Redis server, a leader and a standby: on hosts of their own, or on this machine with rounds of kills."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner.facts.messages.cluster_status import ClusterStatus
from runner.facts.messages.records import NodeChanged
from runner.facts.wire import to_plain
from runner.journal.journal import Journal
from tests.e2e.cluster_harness import STOKER, ClusterHarness, Training, kill
from tests.e2e.hosts import Host, Network
from tests.e2e.soak import Rounds, write_chain
from tests.store.redis_server import NoRedis, RedisServer

# How often each is killed in one pack of rounds; chosen.
TARGETS: Mapping[str, int] = {
    "redis": 3,
    "leader": 3,
    "standby": 2,
    "agent": 3,
    "rank": 5,
    "stop": 2,
    "pause": 2,
}
LIMITS: Mapping[str, Any] = {
    "heartbeat_seconds": 0.2,
    "heartbeat_timeout_seconds": 2.0,
    "stopped_seconds": 0.2,
    "lease_seconds": 1.0,
    "fence_seconds": 2.0,
}
# Redis is down for at most so long in a round; chosen.
AWAY_SECONDS = 3.0


def write_redis_cluster(
    harness: ClusterHarness, redis: RedisServer, *, local: Mapping[str, int], **limits: Any
) -> Path:
    """Write a cluster.yaml with a Redis store, and make its token."""
    fields = {
        "name": harness.name,
        "state": str(harness.state),
        "local": dict(local),
        "store": to_plain(redis.spec()),
        **LIMITS,
        **limits,
    }
    path = harness.folder / "cluster.yaml"
    path.write_text(yaml.safe_dump(fields))
    made = harness.stoker("token", "--cluster", "cluster.yaml")
    assert made.returncode == 0, made
    return path


class HostHarness(ClusterHarness):
    """A cluster whose supervisors and nodes are on hosts of their own; the hosts share this machine's disk."""

    def __init__(self, folder: Path, network: Network, redis: RedisServer) -> None:
        super().__init__(folder)
        self.network = network
        self.redis = redis

    def host(self, name: str) -> Host:
        """Return a host by its name, which is also that of its node."""
        return self.network.hosts[name]

    def supervise(self, name: str) -> subprocess.Popen[bytes]:
        """Start a supervisor on a host, which leads or is a standby."""
        return self._on(name, "supervise", "--standby", "--cluster", "cluster.yaml")

    def agent(self, host: str, node: str = "", *, of: str = "") -> subprocess.Popen[bytes]:
        """Start an agent on a host, as the node of that name or another, with its folder or that `of` another node."""
        folder = self.state / "nodes" / (of or node or host)
        where = ("--address", self.host(host).address, "--folder", str(folder))
        words = ("agent", "--node", node or host, "--slots", "1", "--cluster", "cluster.yaml")
        return self._on(host, *words, *where)

    def node_changes(self) -> list[NodeChanged]:
        """Return the changes of nodes, from the journal."""
        entries = Journal(self.store).replay()
        return [
            record
            for entry in entries
            for record in entry.records
            if isinstance(record, NodeChanged)
        ]

    def _on(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"output.{name}").open("ab") as output:
            return self.host(name).run(STOKER, *words, folder=self.folder, output=output)

    def report(self) -> str:
        """Describe the state of the cluster, with the output of the hosts' programs."""
        outputs = sorted(self.folder.glob("output.*"))
        outputs_text = [
            f"--- {path.name}\n{path.read_text(errors='replace')[-3000:]}" for path in outputs
        ]
        return "\n".join([super().report(), *outputs_text])


class FleetRounds(Rounds):
    """Kills, one a round, of the parts that keep a run going: the store, leader and standby, agents, ranks."""

    def __init__(self, harness: ClusterHarness, redis: RedisServer, seed: int) -> None:
        super().__init__(harness, seed)
        self.redis, self.targets = redis, TARGETS
        self.wanted = {**self.wanted, "supervisor": 2}
        self.supervisors: list[subprocess.Popen[bytes]] = []

    def begin(self) -> None:
        """Start Redis' cluster: two nodes with one rank each, two supervisors of which one leads."""
        write_redis_cluster(self.harness, self.redis, local={"nodes": 2, "slots": 1})
        write_chain(self.harness)
        self.supervisors = [self._supervise(), self._supervise()]
        self.harness.until(self.harness.view, "a first View")
        handed = self.harness.stoker("run", "run.yaml", "--detach", "--cluster", "cluster.yaml")
        assert handed.returncode == 0, handed
        self.settle(self.harness.training(past_step=1))

    def round(self, *, may_restart_supervisor: bool = True) -> None:
        """Kill one part, wait until all is as before, and check that the gang has made progress."""
        what = self._draw()
        before = self.harness.training(past_step=1)
        self.done.append(what)
        if what in ("rank", "stop"):
            number = signal.SIGSTOP if what == "stop" else signal.SIGKILL
            kill(before.pids[self.rng.randrange(2)], number)
            self.settle(self.harness.training(past_step=before.step, after=before.attempt))
            return
        if what == "redis":
            self.redis.kill()
            time.sleep(self.rng.uniform(0.0, AWAY_SECONDS))
            self.redis.start()
        elif what == "pause":
            self._pause_leader()
        elif what == "agent":
            kill(self.pid_on_n2("agent"))
        else:
            self._kill_supervisor(leads=what == "leader")
        self.goes_on(before)

    def leads(self, view: ClusterStatus) -> bool:
        """Whether one of the supervisors published this status, and the other one is its standby."""
        leading = [process for process in self.supervisors if f":{process.pid}:" in view.holder]
        standing_by = self.harness.store.registers("status.standby.")
        others = [process for process in self.supervisors if process not in leading]
        return len(leading) == len(others) == 1 and any(
            f":{others[0].pid}:" in name for name in standing_by
        )

    def end(self) -> None:
        """End the supervisors that are left, in order."""
        shut = self.harness.stoker("shutdown", "--cluster", "cluster.yaml")
        assert shut.returncode == 0, shut
        for process in self.supervisors:
            process.send_signal(signal.SIGTERM)
        for process in self.supervisors:
            process.wait(30)

    def _supervise(self) -> subprocess.Popen[bytes]:
        return self.harness.start("supervise", "--standby", "--cluster", "cluster.yaml")

    def _leader(self) -> subprocess.Popen[bytes]:
        def look() -> subprocess.Popen[bytes] | None:
            current = self.harness.store.lease_holder("supervisor")
            held = f":{current.holder}:" if current is not None else ""
            return next((p for p in self.supervisors if f":{p.pid}:" in held), None)

        return self.harness.until(look, "a living leader")

    def _kill_supervisor(self, *, leads: bool) -> None:
        leader = self._leader()
        victim = next(p for p in self.supervisors if (p is leader) == leads)
        victim.kill()
        victim.wait()
        self.supervisors.remove(victim)
        self.supervisors.append(self._supervise())

    def _pause_leader(self) -> None:
        """Stop the leader for longer than its lease: the standby leads, and the old leader exits when it learns of that."""
        leader = self._leader()
        leader.send_signal(signal.SIGSTOP)
        self.harness.until(lambda: self._leader() is not leader, "the standby leads")
        leader.send_signal(signal.SIGCONT)
        leader.wait(60)
        self.supervisors.remove(leader)
        self.supervisors.append(self._supervise())


def goes_on(harness: ClusterHarness, before: Training) -> Training:
    """Wait until the gang has gone on past `before`, in the same attempt with the same ranks."""
    after = harness.training(past_step=before.step)
    assert (after.attempt, after.pids) == (before.attempt, before.pids)
    return after


def redis_server(folder: Path, **how: Any) -> RedisServer:
    """Return a server yet to be started; skip the test where there is none, but in continuous integration."""
    try:
        return RedisServer(folder, **how)
    except NoRedis as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))
