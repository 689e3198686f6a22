"""Four hosts, two more for supervisors, and a store: hosts are killed, cut off, cut one way, and brought back."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.facts.ids import AttemptId
from runner.facts.messages.cluster_status import ClusterStatus
from tests.e2e.chaos import LENGTHS, NUM_PARTITIONS, Partitions
from tests.e2e.cluster_harness import Training, incidents_of, node_of, run_of
from tests.e2e.fleet_harness import HostHarness, goes_on, redis_server, write_redis_cluster
from tests.e2e.hosts import Host, network, require_hosts
from tests.e2e.observer import RankSeen
from tests.e2e.soak import CHAIN, PYTHON_IMPORTS, check_chain

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NODES = ("h1", "h2", "h3", "h4")


@pytest.fixture
def hosts(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[HostHarness]:
    """Give a cluster of four nodes on hosts of their own, led from c1 or c2, the other one as standby.

    Its parameter: other limits. With these, ranks that are cut off go on until their agent ends them, so that a returning node
    ends them first.
    """
    require_hosts()
    limits = getattr(request, "param", {"fence_seconds": 120.0, "hard_cap_seconds": 240.0})
    with (
        network(*NODES, "c1", "c2") as net,
        redis_server(tmp_path / "redis", bind=(net.address,)) as redis,
    ):
        harness = HostHarness(tmp_path / "harness", net, redis)
        with harness.observer:
            racks = {"rack": {"r1": ["h1", "h2"], "r2": ["h3", "h4"]}}
            write_redis_cluster(harness, redis, local={"nodes": 0}, domains=racks, **limits)
            for name in ("c1", "c2"):
                harness.supervise(name)
            for name in NODES:
                harness.agent(name)
            harness.wait(lambda view: are(view, "spare", *NODES), "four spares")
            yield harness
            for host in net.hosts.values():
                host.kill()
            left = harness.end()
        assert not left, f"left behind: {left}"
        harness.observer.check(out_of_reach=True)


def are(view: ClusterStatus, state: str, *names: str) -> bool:
    """Whether these nodes are in this state."""
    found = {node.node: node.state for node in view.nodes}
    return all(found.get(name) == state for name in names)


def begin(harness: HostHarness) -> Training:
    """Start the run that needs both its ranks in every step."""
    harness.write_script(CHAIN)
    harness.write_run(
        command="{python} train.py",
        nodes=2,
        python=sys.executable,
        preload=list(PYTHON_IMPORTS),
        working_directory=str(harness.folder),
    )
    handed = harness.stoker("run", "run.yaml", "--detach", "--cluster", "cluster.yaml")
    assert handed.returncode == 0, handed
    return harness.training(past_step=5)


def on(harness: HostHarness, name: str, attempt: AttemptId) -> list[RankSeen]:
    """Return the ranks of an attempt that the observer saw on a node's host."""
    view = harness.view()
    assert view is not None
    index = run_of(view).nodes.index(name)
    return [
        seen for seen in harness.observer.seen if seen.attempt == attempt and seen.rank == index
    ]


def swapped(harness: HostHarness, gone: str, before: Training) -> Training:
    """Wait until the gang goes on without a node."""
    after = harness.training(past_step=before.step, after=before.attempt)
    assert gone not in run_of(harness.view()).nodes
    return after


def checked_and_spare(harness: HostHarness, name: str) -> None:
    """Wait until a node is a spare again, and find its check in the story."""
    harness.wait(lambda view: are(view, "spare", name), f"{name} is a spare again")
    story = harness.stoker("story", "--cluster", "cluster.yaml").stdout
    lines = [line for line in story.splitlines() if name in line]
    assert any("checking" in line for line in lines[-12:]), story


def finish(harness: HostHarness) -> None:
    """Let the run end, check every step, and check that a shutdown ends agents on other hosts too."""
    (harness.folder / "enough").touch()
    harness.wait(lambda view: run_of(view).state == "finished", "the end of the run")
    assert check_chain(harness.folder) > 0
    assert {incident.state for incident in incidents_of(harness.view())} <= {"resolved"}
    shut = harness.stoker("shutdown", "--cluster", "cluster.yaml")
    assert shut.returncode == 0, shut
    for name in NODES:
        assert set(harness.host(name).ended()) == {0}, harness.report()


def test_a_host_that_dies_is_swapped_and_checked_when_it_is_back(hosts: HostHarness) -> None:
    """A spare takes its place; back again, it passes its checks before it is a spare. Then the leader's host dies as well."""
    before = begin(hosts)
    gone = run_of(hosts.view()).nodes[1]
    hosts.host(gone).kill()
    after = swapped(hosts, gone, before)
    hosts.host(gone).start()
    hosts.agent(gone)
    checked_and_spare(hosts, gone)
    leader = hosts.store.lease_holder("supervisor")
    assert leader is not None
    hosts.host(leader.holder.partition(":")[0]).kill()
    goes_on(hosts, after)
    hosts.wait(
        lambda view: view.holder.partition(":")[0] not in ("", leader.holder.partition(":")[0]),
        "the standby leads",
    )
    goes_on(hosts, hosts.training(past_step=after.step))
    finish(hosts)


def cut(hosts: HostHarness, host: Host, how: str, peer: str) -> None:
    """Cut a host off, from the subnet or from one address."""
    if how == "both ways":
        host.cut()
    elif how == "outbound lost":
        host.drop_outbound(destination=peer)
    else:
        host.drop_inbound(source=peer)


@pytest.mark.parametrize("how", ["both ways", "outbound lost", "inbound lost"])
def test_a_host_that_is_cut_off_is_swapped_and_ends_its_ranks_on_return(
    hosts: HostHarness, how: str
) -> None:
    """The gang goes on elsewhere while its old rank still runs on the host; that rank is gone before the node is a spare."""
    before = begin(hosts)
    gone = run_of(hosts.view()).nodes[0]
    stranded = on(hosts, gone, before.attempt)
    host = hosts.host(gone)
    cut(hosts, host, how, hosts.network.subnet)
    swapped(hosts, gone, before)
    host.reconnect()
    checked_and_spare(hosts, gone)
    assert stranded
    assert all(seen.is_gone for seen in stranded)
    finish(hosts)


@pytest.mark.parametrize("how", ["outbound lost", "inbound lost"])
def test_a_host_without_the_store_stays_in_service_while_its_gang_steps(
    hosts: HostHarness, how: str
) -> None:
    """The steps of its gang prove its rank alive: the supervisor ends no rank and pages; reconnected, the host is active again."""
    before = begin(hosts)
    away = run_of(hosts.view()).nodes[1]
    host = hosts.host(away)
    cut(hosts, host, how, hosts.network.address)
    hosts.wait(lambda view: are(view, "suspect", away), f"{away} is suspect")

    def is_in_story() -> bool:
        story = hosts.stoker("story", "--cluster", "cluster.yaml").stdout
        return f"{away} stays in service" in story

    hosts.until(is_in_story, f"{away} is left in service")
    during = goes_on(hosts, before)
    host.reconnect()
    hosts.wait(lambda view: are(view, "active", away), f"heartbeats of {away} resumed")
    goes_on(hosts, during)
    finish(hosts)


@pytest.mark.parametrize(
    "hosts", [{"fence_seconds": 2.0, "hard_cap_seconds": 8.0}], indirect=True, ids=["short cap"]
)
def test_a_silent_rack_is_no_hardware_fault_of_its_nodes(hosts: HostHarness) -> None:
    """Its nodes leave and return without a hardware fault; the run, which was wholly in it, goes on in the other rack.

    The state of its ranks is unknown, so the run goes on once the hard cap has passed, when they must have ended.
    """
    before = begin(hosts)
    rack = tuple(sorted(run_of(hosts.view()).nodes))
    assert rack in (("h1", "h2"), ("h3", "h4")), "placed in one rack"
    for name in rack:
        hosts.host(name).cut()
    after = hosts.training(past_step=before.step, after=before.attempt)
    view = hosts.view()
    assert not set(rack) & set(run_of(view).nodes)
    assert "domain_silent" in [incident.fault for incident in incidents_of(view)]
    for name in rack:
        hosts.host(name).reconnect()
    hosts.wait(lambda view: are(view, "spare", *rack), "the rack's nodes are spares again")
    view = hosts.view()
    assert [node_of(view, name).hardware_faults for name in NODES] == [0, 0, 0, 0]
    states = [record.state for record in hosts.node_changes()]
    assert "quarantined" not in states
    goes_on(hosts, hosts.training(past_step=after.step))
    finish(hosts)


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    "hosts", [{"fence_seconds": 2.0, "hard_cap_seconds": 8.0}], indirect=True, ids=["short cap"]
)
def test_a_run_goes_on_after_any_sequence_of_partitions(hosts: HostHarness) -> None:
    """Hosts of supervisors and nodes are cut off in any order: never two gangs, no step missing, and no run that stalls."""
    begin(hosts)
    seed = int(os.environ.get("STOKER_SOAK_SEED", "20261123"))
    print(f"seed {seed}, {NUM_PARTITIONS} partitions")
    partitions = Partitions(hosts, seed, LENGTHS)
    partitions.run(NUM_PARTITIONS)
    finish(hosts)
    print(partitions.summary())


def test_bad_hardware_is_refused_under_another_name(hosts: HostHarness) -> None:
    """A quarantined node whose agent comes back with a new name is recognised by its hardware, and gets no ranks."""
    agent = hosts.wait(lambda view: node_of(view, "h4").agent_pid, "the agent of h4")
    assert agent
    done = hosts.stoker("quarantine", "h4", "--reason", "ECC", "--cluster", "cluster.yaml")
    assert done.returncode == 0, done
    hosts.host("h4").kill()
    hosts.host("h4").start()
    hosts.agent("h4", "h9", of="h4")
    hosts.wait(lambda view: are(view, "quarantined", "h9"), "h9 is quarantined")
    reason = node_of(hosts.view(), "h9").reason
    assert "h4" in reason
    assert "ECC" in reason
    begin(hosts)
    assert not {"h4", "h9"} & set(run_of(hosts.view()).nodes)
    back = hosts.stoker("readmit", "h9", "--cluster", "cluster.yaml")
    assert back.returncode == 0, back
    checked_and_spare(hosts, "h9")
    finish(hosts)
