"""`stoker check --nodes`: what is sent, what of the answer and the journal is shown, and what is refused."""

import json

import pytest

from runner.decide.state.cluster_state import CheckOutcome, Node, State
from runner.facts.messages.cluster_status import NodeStatus
from runner.facts.messages.records_checks import OutcomeGroup
from runner.history.ledger import Ledger
from runner.journal.journal import Journal
from runner.supervisor.decisions import Recovery
from tests.cli.conftest import Answering, Cluster, example_view, stoker


def remember(cluster: Cluster, *nodes: Node) -> None:
    """Write a state with these nodes into the journal, and publish them; the cluster has a leader."""
    state = State(sequence=1, now=100.0, nodes={node.node: node for node in nodes})
    lease = cluster.store.acquire_lease("supervisor", "test:1:1", ttl_seconds=60.0)
    recovery = Recovery(state=state, ledger=Ledger().dump())
    Journal(cluster.store, lease).write_snapshot(recovery, 0)
    cluster.store.release(lease)
    shown = tuple(NodeStatus(node=node.node, state=node.state) for node in nodes)
    cluster.publish(example_view(nodes=shown))
    cluster.lead()


def checked(name: str, index: int, outcome: str, message: str = "", **fields: object) -> Node:
    """Make a node whose checks have ended."""
    group = OutcomeGroup(outcome=outcome, at=99.0, level="quick", checks=("clock",))  # type: ignore[arg-type]
    node = Node(node=name, index=index, state="spare", check_outcomes=[group])
    node.checked = CheckOutcome(at=99.0, outcome=outcome, message=message or outcome)
    for field, value in fields.items():
        setattr(node, field, value)
    return node


@pytest.mark.parametrize(
    ("second", "outcome", "code"),
    [
        (checked("n2", 1, "PASS"), "PASS", 0),
        (checked("n2", 1, "FAIL", state="quarantined", reason="failed its checks"), "FAIL", 1),
        (checked("n2", 1, "UNKNOWN", "clock hung"), "UNKNOWN", 4),
        (checked("n2", 1, "PASS", state="active", check_wanted="asked"), "UNKNOWN", 4),
    ],
)
def test_the_worst_verdict_is_the_outcome(
    cluster: Cluster, second: Node, outcome: str, code: int
) -> None:
    """One row for each node; a check that gave way to ranks is no verdict, whatever the one before said."""
    remember(cluster, checked("n1", 0, "PASS"), second)
    answering = Answering(cluster, ("open", "2 nodes to be checked"), ("done", "as it was"))
    done = stoker("check", "--nodes", "n1,n2", "--level", "quick", "--json")
    answering.join()
    assert done.exit_code == code, done.output
    (request,) = cluster.requests()
    assert (request.nodes, request.level) == (("n1", "n2"), "quick")  # type: ignore[attr-defined]
    found = json.loads(done.stdout)
    assert (found["outcome"], found["level"]) == (outcome, "quick")
    assert [one["outcome"] for one in found["nodes"]] == ["PASS", outcome]
    assert found["nodes"][0]["checks"] == {"clock": "PASS"}


def test_a_refusal_is_the_supervisors_own(cluster: Cluster) -> None:
    """A node that is busy is named, with the way out."""
    remember(cluster, checked("n1", 0, "PASS"))
    answering = Answering(cluster, ("refused", "n1 is active, and only idle nodes are checked"))
    done = stoker("check", "--nodes", "n1")
    answering.join()
    assert done.exit_code == 2
    assert "n1 is active, and only idle nodes are checked" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--nodes", "n1", "--folder", "/tmp"), "--folder does not go with --nodes"),
        (("--nodes", " , "), "names no node; write --nodes n1,n2"),
        (("--nodes", "n7"), "no node 'n7'"),
        (("--timeout", "3"), "--timeout goes with --nodes only"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    cluster: Cluster, arguments: tuple[str, ...], words: str
) -> None:
    """Before anything is sent."""
    remember(cluster, checked("n1", 0, "PASS"))
    done = stoker("check", *arguments)
    assert done.exit_code == 2
    assert words in done.stderr
    assert cluster.requests() == []
