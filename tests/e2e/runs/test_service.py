"""An operator's actions on nodes during a run: drained at a checkpoint, refused, and readmitted."""

import json

import pytest

from runner.facts.messages.cluster_status import ClusterStatus, NodeStatus
from tests.e2e.cluster_harness import ClusterHarness, run_of
from tests.e2e.reference import NODES, RANKS, TRAINER


def node_in(view: ClusterStatus, name: str) -> NodeStatus:
    """Return one node of a status."""
    return next(node for node in view.nodes if node.node == name)


def ask(harness: ClusterHarness, *words: str) -> str:
    """Run a command, which must succeed; return its answer."""
    done = harness.stoker(*words, seconds=200)
    assert done.returncode == 0, done
    return done.stdout.strip()


@pytest.mark.trainer
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nodes_leave_at_checkpoints_and_come_back_by_their_checks(harness: ClusterHarness) -> None:
    """A swap loses no step and records no fault; refused hardware stays out until it is readmitted, retired hardware for good."""
    harness.write_cluster(nodes=NODES, slots=RANKS, spares=1)
    trainer = {**TRAINER, "steps": 5000, "checkpoint_every": 0}
    harness.write_run(trainer=trainer, nodes=NODES, ranks_per_node=RANKS)
    ask(harness, "run", "run.yaml", "--detach")
    first = harness.training(past_step=2)

    print(ask(harness, "swap", "n2", "--reason", "loud fans"))
    second = harness.training(past_step=first.step, after=first.attempt)
    view = harness.view()
    assert view is not None
    assert run_of(view).nodes == ("n1", "n3")
    assert node_in(view, "n2").state == "maintenance"
    assert view.incidents == ()
    account = json.loads(ask(harness, "lineage", "--json"))
    assert [row["outcome"] for row in account[:-1]] == ["moved"]
    assert account[-1]["resume_step"] == account[0]["last_step"] > 0
    assert "requested" in run_of(view).lost_seconds
    assert "rework" not in run_of(view).lost_seconds
    assert "done already" in ask(harness, "swap", "n2")

    print(ask(harness, "readmit", "n2"))
    harness.wait(lambda view: node_in(view, "n2").state == "spare" or None, "n2 checked, a spare")
    print(ask(harness, "quarantine", "n2", "--reason", "bit flips"))
    refused = json.loads(ask(harness, "nodes", "n2", "--json"))["hardware_history"]
    assert refused["verdict"] == "quarantined"
    assert "bit flips" in refused["reason"]
    no_spare = harness.stoker("swap", "n3")
    assert no_spare.returncode == 2, no_spare
    assert "stoker drain n3" in no_spare.stderr

    print(ask(harness, "retire", "n2", "--yes"))
    never = harness.stoker("readmit", "n2")
    assert never.returncode == 2, never
    assert second.attempt == run_of(harness.view()).attempt
    story = ask(harness, "story")
    for words in ("asks to swap n2: loud fans", "is refused from now on, under any name"):
        assert words in story
    ask(harness, "shutdown")
    harness.until(lambda: not harness.processes() or None, "the end of every process")
