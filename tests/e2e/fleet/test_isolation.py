"""Six hosts, a supervisor on another, and a store: `stoker isolate` names the bad node or path, by real agents and real gloo.

All hosts share this machine's processors, which no host of a fleet does, so the cluster's limits leave that out of account.
"""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.facts.messages.cluster_status import ClusterStatus
from runner.facts.messages.isolation import IsolationJudged, IsolationMeasured, PairResult
from runner.facts.messages.isolation import IsolationRoundBegun as RoundBegun
from runner.journal.journal import Journal
from tests.e2e.chaos import IS_SOAK
from tests.e2e.cluster_harness import STOKER, node_of
from tests.e2e.fleet_harness import HostHarness, redis_server, write_redis_cluster
from tests.e2e.hosts import network, require_hosts

pytestmark = [
    pytest.mark.trainer,
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.timeout(400),
]

NODES = ("h1", "h2", "h3", "h4", "h5", "h6")
# Far below what the processors can carry.
SOUND_MBIT, BAD_MBIT = 400, 40
# Of what others use of the processors while a rate is measured, in percent.
LIMITS = {
    "compute_rate.foreign_cpu": 100,
    "memory_bandwidth.foreign_cpu": 100,
    "collectives.foreign_cpu": 100,
}
# Nine rounds take two minutes.
ISOLATION_SECONDS = 300.0


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[HostHarness]:
    """Give six spares on hosts whose links carry the same."""
    require_hosts()
    with (
        network(*NODES, "c1") as net,
        redis_server(tmp_path / "redis", bind=(net.address,)) as redis,
    ):
        harness = HostHarness(tmp_path / "harness", net, redis)
        with harness.observer:
            limits = {
                "heartbeat_timeout_seconds": 20.0,
                "checks": ["clock"],
                "check_limits": LIMITS,
            }
            write_redis_cluster(harness, redis, local={"nodes": 0}, **limits)
            harness.supervise("c1")
            for name in NODES:
                net.hosts[name].limit(mbit=SOUND_MBIT)
                harness.agent(name)
            spares = dict.fromkeys(NODES, "spare")
            harness.wait(lambda view: states_of(view) == spares, "six spares")
            yield harness
            for host in net.hosts.values():
                host.kill()
            left = harness.end()
        assert not left, f"left behind: {left}"


def states_of(view: ClusterStatus) -> dict[str, str]:
    """Return the states of the nodes that have joined."""
    return {node.node: node.state for node in view.nodes}


def isolate(hosts: HostHarness) -> subprocess.Popen[str]:
    """Begin to measure all nodes."""
    return subprocess.Popen(
        [STOKER, "isolate", "--reason", "a test", "--cluster", "cluster.yaml"],
        cwd=hosts.folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def answer_of(command: subprocess.Popen[str]) -> str:
    """Wait for the verdict, and return what the command printed."""
    text, _ = command.communicate(timeout=ISOLATION_SECONDS)
    assert command.returncode == 0, text
    return text


def records(hosts: HostHarness) -> list[object]:
    """Return what the journal has by now."""
    return [record for entry in Journal(hosts.store).replay() for record in entry.records]


# In one of four commits: a minute.
@pytest.mark.shared(1)
def test_a_link_at_a_tenth_of_its_rate_takes_its_node_out(hosts: HostHarness) -> None:
    """The node with the slow link is quarantined for it, with its hardware, also under another name; all others serve."""
    hosts.host("h3").limit(mbit=BAD_MBIT)
    text = answer_of(isolate(hosts))
    assert "h3 is bad, its link" in text
    expected = {**dict.fromkeys(NODES, "spare"), "h3": "quarantined"}
    hosts.wait(lambda view: states_of(view) == expected, "all others are spares")
    assert "its link is bad" in node_of(hosts.view(), "h3").reason
    hosts.host("h3").kill()
    hosts.host("h3").start()
    hosts.agent("h3", "h9", of="h3")
    hosts.wait(lambda view: states_of(view).get("h9") == "quarantined", "h9 is quarantined")


@pytest.mark.skipif(not IS_SOAK, reason="two minutes, for `make soak`")
def test_a_path_that_loses_all_packets_is_named_and_no_node(hosts: HostHarness) -> None:
    """Both ends are good with all others, so both serve."""
    hosts.host("h3").drop_inbound(source=hosts.host("h4").address)
    hosts.host("h4").drop_inbound(source=hosts.host("h3").address)
    text = answer_of(isolate(hosts))
    assert "the path between" in text
    (judged,) = [each.judged for each in records(hosts) if isinstance(each, IsolationJudged)]
    found = [(sorted(each.nodes), each.verdict) for each in judged.paths]
    assert found == [(["h3", "h4"], "bad")]
    spares = dict.fromkeys(NODES, "spare")
    hosts.wait(lambda view: states_of(view) == spares, "all are spares")


@pytest.mark.skipif(not IS_SOAK, reason="more than a minute, for `make soak`")
def test_a_host_that_dies_in_a_pair_costs_that_pair_alone(hosts: HostHarness) -> None:
    """In the middle of the first round of pairs: its pair has its end as the failed one, and the other pairs have rates."""
    command = isolate(hosts)

    def first_pairs() -> tuple[tuple[str, str], ...]:
        begun = [each.measure for each in records(hosts) if isinstance(each, RoundBegun)]
        return next((each.pairs for each in begun if each.pairs), ())

    pairs = hosts.until(first_pairs, "a round of pairs")
    before = hosts.host("h3").received_bytes()
    # In the middle of its messages.
    while hosts.host("h3").received_bytes() < before + (8 << 20):
        time.sleep(0.05)
    hosts.host("h3").kill()
    answer_of(command)
    measured = [each.pair for each in records(hosts) if isinstance(each, IsolationMeasured)]
    results: dict[tuple[str, str], PairResult] = {}
    for each in measured:
        if each is not None:
            results.setdefault(each.nodes, each)
    assert [results[pair].failed for pair in pairs if "h3" in pair] == [("h3",)]
    assert all(results[pair].rate is not None for pair in pairs if "h3" not in pair)
