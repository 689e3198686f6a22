import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from runner.decide.state.cluster_state import Hardware, HardwareFault, Node, State
from runner.facts import wire
from runner.facts.messages import records as r
from runner.facts.messages.cluster_status import (
    DrainStatus,
    NodeStatus,
    SparesStatus,
    StandbyStatus,
)
from runner.facts.messages.records_checks import MeasuredValue, OutcomeGroup
from runner.facts.messages.requests import Answer
from runner.facts.messages.signals import NodeJoined
from runner.history.ledger import Ledger
from runner.journal.journal import Journal
from runner.supervisor.decisions import Recovery
from tests.cli.conftest import Cluster, example_view, stoker
from tests.history.journal_script import crash_and_restart

LEMON = "board:PF3A0LEMON"


def many_nodes(num: int) -> tuple[NodeStatus, ...]:
    """Make a healthy fleet, except for a lost node, one with a hardware fault, and a draining one."""
    nodes = {
        f"n{k}": NodeStatus(
            node=f"n{k}", state="active" if k % 20 else "spare", hardware=f"board:{k}"
        )
        for k in range(1, num + 1)
    }
    leaving = DrainStatus(to="maintenance", since=1_700_000_100.0, reason="loud fans", spare="n20")
    nodes["n3"] = NodeStatus(node="n3", state="lost", reason="dead", since=1_700_000_140.0)
    nodes["n5"] = NodeStatus(node="n5", state="active", hardware_faults=2, domain="switch s1")
    nodes["n7"] = NodeStatus(node="n7", state="active", pending_drain=leaving)
    return tuple(nodes.values())


def measured(known: Hardware, tflops: float, now: float) -> Hardware:
    """Let hardware have passed its checks at a rate."""
    known.hardware_class, known.measured_at, known.passed_at = "8 x H100", now, now
    known.passed_level, known.passes_due = "standard", 1
    rate = MeasuredValue(name="compute_rate.tflops", value=tflops, better="higher", unit="TFLOP/s")
    known.values = [rate]
    return known


def remember_a_lemon(cluster: Cluster, *, num_peers: int = 0) -> None:
    """Write hardware faults into the journal: in a snapshot, and in an entry after it; with peers, what was measured, too."""
    last = crash_and_restart().entries[-1]
    now = last.now
    hardware_faults = [
        HardwareFault(at=now - 40 * 86400, node="n1", fault="node_silent", evidence="long ago"),
        HardwareFault(
            at=now - 3600, node="n1", fault="node_silent", evidence="\x1b[31mdead", incident="i1"
        ),
    ]
    lemon = Hardware(
        hardware=LEMON, parts=[LEMON, "mac:02:00"], node_names=["n9", "n1"], faults=hardware_faults
    )
    state = State(sequence=last.sequence, now=now, hardware={LEMON: lemon})
    for number in range(num_peers):
        peer = measured(Hardware(hardware=f"board:{number}"), 800.0 + number, now)
        state.hardware |= {peer.hardware: peer, LEMON: measured(lemon, 300.0, now)}
    group = OutcomeGroup(outcome="FAIL", at=now - 7, level="quick", checks=("memory", "clock"))
    state.nodes["n1"] = Node(
        node="n1", index=0, hardware=LEMON, incarnation=4, check_outcomes=[group]
    )
    lease = cluster.store.acquire_lease("supervisor", "test:1:1", ttl_seconds=60.0)
    recovery = Recovery(state=state, ledger=Ledger().dump())
    Journal(cluster.store, lease).write_snapshot(recovery, last.sequence)
    cluster.store.release(lease)
    judged = r.HardwareJudged(
        hardware=LEMON, verdict="quarantined", reason="2 hardware faults", by="ann"
    )
    seen = r.HardwareSeen(hardware="board:NEW", node="n2", parts=("board:NEW",))
    joined = NodeJoined(node="n2", incarnation=1, hardware="board:NEW", slots=2, address="", pid=1)
    entry = r.JournalEntry(
        sequence=last.sequence + 1, now=now + 1, input=joined, records=(judged, seen)
    )
    cluster.store.append("journal", wire.encode(entry), at=entry.sequence)
    one = NodeStatus(node="n1", state="quarantined", hardware=LEMON, clock_ahead_seconds=-12.0)
    nodes = (one, *example_view().nodes[1:])
    cluster.publish(example_view(nodes=nodes, now=now + 2))


def test_a_small_fleet_is_shown_whole_with_counts_and_spares(cluster: Cluster) -> None:
    """The head counts nodes by state and shows the spares; the table leaves out empty columns."""
    pool = SparesStatus(spares=0, low_mark=1, recommended=2, low=True)
    cluster.publish(example_view(pool=pool))
    output = stoker("nodes").stdout
    assert "3 nodes: 2 active, 1 lost" in output
    assert "SPARES ARE LOW; spares: 0 (minimum 1, 2 recommended)" in output
    assert "faults" not in output
    assert all(name in output for name in ("n1 ", "n2 ", "n3 "))


def test_a_large_fleet_is_shown_by_its_unusual_nodes(cluster: Cluster) -> None:
    """Of 2,000 nodes the table lists lost, draining and faulty ones and counts the others; --all and --state list more."""
    cluster.publish(example_view(nodes=many_nodes(2000), now=1_700_000_200.0))
    output = stoker("nodes").stdout.splitlines()
    assert output[0] == "2000 nodes: 1899 active, 100 spare, 1 lost; 1 draining"
    assert output[1].startswith("1997 active and spare nodes are not shown")
    assert [line.split()[0] for line in output[3:]] == ["node", "n3", "n5", "n7"]
    assert "switch s1" in output[5]
    assert "leaves for maintenance since 100.0 s, n20 replaces it: loud fans" in output[6]
    assert len(stoker("nodes", "--all").stdout.splitlines()) > 2000
    spares = stoker("nodes", "--state", "spare", "--state", "lost").stdout.splitlines()
    assert len([line for line in spares if line.startswith("n")]) == 1 + 100 + 1
    listed = json.loads(stoker("nodes", "--json").stdout)
    assert len(listed) == 2000
    assert len(json.loads(stoker("nodes", "--state", "lost", "--json").stdout)) == 1
    status = stoker("status").stdout
    assert "2000 nodes: 1899 active" in status
    assert "n7 " in status
    assert "n8 " not in status


def test_one_node_is_shown_in_full(cluster: Cluster) -> None:
    """The command shows its hardware, parts, earlier names and dated hardware faults, which only the journal has."""
    remember_a_lemon(cluster)
    output = stoker("nodes", "n1").stdout
    assert "n1: quarantined" in output
    assert "incarnation 4" in output
    assert f"hardware {LEMON}" in output
    assert "mac:02:00" in output
    assert "n9, n1" in output
    assert "FAIL     memory, clock (9.00 s ago, quick)" in output
    assert "12 s behind the supervisor's, limit 5 s: set it by a time service (NTP)" in output
    assert "1 count, of the last 28 days; 3 make a lemon" in output
    assert "by ann: 2 hardware faults" in output
    assert "node_silent as n1: [31mdead (i1)" in output
    assert "long ago" in output
    plain = json.loads(stoker("nodes", "n1", "--json").stdout)
    assert plain["node"] == "n1"
    assert plain["hardware_history"]["verdict"] == "quarantined"
    assert len(plain["hardware_history"]["faults"]) == 2


def test_what_was_measured_is_shown_beside_the_peers(cluster: Cluster) -> None:
    """Of a node and of its hardware: when it passed, what it owes, and each value with the median of its class."""
    remember_a_lemon(cluster, num_peers=4)
    for output in (stoker("nodes", "n1").stdout, stoker("hardware", LEMON).stdout):
        assert "8 x H100" in output
        assert "at level standard; owes 1 more in a row before it serves" in output
        assert "compute_rate.tflops 300 TFLOP/s  (median of 4 peers 801.5)" in output


def test_an_unknown_node_is_answered_with_the_nearest_name(cluster: Cluster) -> None:
    """The error of a typo names known nodes; the command refuses one node together with a filter."""
    result = stoker("nodes", "n33")
    assert result.exit_code == 2
    assert "no node 'n33'" in result.stderr
    assert "did you mean 'n3'?" in result.stderr
    assert stoker("nodes", "n1", "--state", "lost").exit_code == 2
    assert stoker("nodes", "--state", "ill").exit_code == 2


def test_hardware_is_listed_with_its_names_faults_and_verdict(cluster: Cluster) -> None:
    """The snapshot and later entries count alike; one piece can be shown in full."""
    assert "no hardware yet" in stoker("hardware").stdout
    remember_a_lemon(cluster)
    output = stoker("hardware").stdout.splitlines()
    assert output[0] == "2 pieces of hardware, 1 of them refused"
    assert output[3].split()[:5] == [LEMON, "n9,", "n1", "quarantined", "1"]
    assert output[4].split()[:4] == ["board:NEW", "n2", "-", "-"]
    assert "long ago" in stoker("hardware", LEMON).stdout
    listed = json.loads(stoker("hardware", "--json").stdout)
    assert [each["verdict"] for each in listed] == ["quarantined", ""]
    result = stoker("hardware", "board:NEWW")
    assert result.exit_code == 2
    assert "did you mean 'board:NEW'?" in result.stderr


def test_status_shows_domains_spares_signatures_and_the_standby(cluster: Cluster) -> None:
    """The first screen shows all risks of the whole fleet; it leaves out a standby without heartbeats."""
    cluster.publish(
        example_view(
            pool=SparesStatus(spares=0, low_mark=1, low=True),
            domains_down={"rack r2": ("n2", "n3")},
            unsigned=True,
        )
    )
    cluster.lead()
    for holder, age in (("b:2:1", 0), ("c:3:1", 3600)):
        standby = StandbyStatus(holder=holder, wall=time.time() - age, followed_through=41)
        cluster.store.put(f"status.standby.{holder}", wire.encode(standby))
    output = stoker("status").stdout
    assert "rack r2 IS DOWN, its nodes are not suspected: n2, n3" in output
    assert "SPARES ARE LOW" in output
    assert "messages are not signed" in output
    assert "b:2:1 takes over; it has applied entry 41" in output
    assert "c:3:1" not in output
    assert [
        each["holder"] for each in json.loads(stoker("status", "--json").stdout)["standbys"]
    ] == ["b:2:1"]


HEAVY = ("pydantic", "yaml", "rich", "redis", "asyncio", "prometheus_client")


@pytest.mark.parametrize(
    ("command", "needless"),
    [
        ("nodes", ("runner.supervisor.decisions", "runner.journal")),
        (
            "status",
            ("runner.decide", "runner.journal", "runner.load", "runner.supervisor.decisions"),
        ),
    ],
)
def test_read_only_commands_import_no_large_library(
    cluster: Cluster, command: str, needless: tuple[str, ...]
) -> None:
    """Such a command reads the published status: it imports neither the journal, the controller, nor a large library."""
    code = (
        f"import sys; from runner.cli.main import cli; cli([{command!r}], standalone_mode=False); "
        f"heavy = {set(HEAVY + needless)} & set(sys.modules); "
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("spoilt", [b"{", wire.encode(Answer(id="q", state="done"))])
def test_a_snapshot_that_cannot_be_read_is_passed_over(cluster: Cluster, spoilt: bytes) -> None:
    """The other snapshot, or the journal from its beginning, gives the same result."""
    remember_a_lemon(cluster)
    cluster.store.put("journal.snapshot.1", spoilt)
    assert LEMON in stoker("hardware").stdout


def test_read_only_commands_do_not_write_the_state_folder(cluster: Cluster, folder: Path) -> None:
    """`stoker hardware` leaves journal and registers as they were."""
    remember_a_lemon(cluster)
    before = cluster.store.last("journal"), cluster.store.registers("journal")
    stoker("hardware")
    stoker("nodes", "n1")
    assert (cluster.store.last("journal"), cluster.store.registers("journal")) == before
