"""Checks that a person asks for: which nodes are refused and why, and what a request waits for."""

from typing import Any

import pytest

from runner.decide.controller import Controller
from runner.decide.decision import Policy
from runner.decide.state.cluster_state import Node, PendingDrain
from runner.facts.actions import ActionResult
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.messages.requests import CheckNodes
from runner.facts.specs.cluster import ClusterSpec
from tests.decide.scenario import runbooks

LEAVING = PendingDrain(to="maintenance", since=0.0)
RANKS = AttemptId.parse("1.1.0")


def controller_with(*nodes: Node, **cluster: Any) -> Controller:
    """Make a controller of a cluster with these nodes."""
    spec = ClusterSpec(**{"name": "c", "check_level": "standard", **cluster})
    controller = Controller(Policy(cluster=spec, runbooks=runbooks()))
    for index, node in enumerate(nodes):
        node.index = index
        controller.state.nodes[node.node] = node
    return controller


def take(controller: Controller, fact: object) -> None:
    """Handle an input and settle, as the decision log does."""
    while True:
        now = controller.state.now + 1.0
        records = controller.decide(fact, now)
        sequence = controller.state.sequence + 1
        controller.apply(r.JournalEntry(sequence=sequence, now=now, input=fact, records=records))
        if not records:
            return
        fact = r.Settle()


def ask(controller: Controller, *nodes: str, level: Any = "", name: str = "q") -> r.RequestRecorded:
    """Ask for checks; return the request as it is afterwards."""
    take(controller, CheckNodes(id=name, by="ann", nodes=nodes, level=level))
    return controller.state.requests[name]


def spare(name: str, **fields: Any) -> Node:
    """Make an idle node that has a machine of its own."""
    number = int(name[1:])
    given = {"state": "spare", "address": f"10.0.0.{number}", "hardware": f"board:{number}"}
    return Node(node=name, index=0, **{**given, **fields})


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (spare("n1", state="active", ranks_may_run=RANKS), "n1 is active, and only idle nodes"),
        (spare("n1", state="quarantined", reason="bad"), "n1 is quarantined (bad), and only idle"),
        (spare("n1", state="checking"), "its checks are under way: `stoker nodes` has the verdict"),
        (spare("n1", pending_drain=LEAVING), "`stoker readmit n1` checks it, or leave it out"),
        (spare("n1", address="10.0.0.9"), "ranks of n9 run on the machine of n1"),
    ],
)
def test_a_busy_node_is_refused_by_name(node: Node, words: str) -> None:
    """The refusal has the way out; no other node of the request is checked."""
    serving = spare("n9", state="active", ranks_may_run=RANKS)
    controller = controller_with(spare("n2"), node, serving, check_valid_hours=0.0)
    request = ask(controller, "n2", "n1")
    assert request.state == "refused"
    assert words in request.message
    checked = [task.args["node"] for task in controller.state.open_actions("node_task")]
    assert "n2" not in checked


def test_a_request_is_answered_when_all_have_a_verdict() -> None:
    """At its own level; a second request for the same node waits, and a node that got ranks meanwhile is not waited for."""
    controller = controller_with(spare("n1"), spare("n2"), check_valid_hours=0.0)
    assert ask(controller, "n1", "n2", level="deep").state == "open"
    tasks = {task.args["node"]: task for task in controller.state.open_actions("node_task")}
    assert [task.args["args"]["level"] for task in tasks.values()] == ["deep", "deep"]
    assert all(task.deadline_seconds >= 3600 for task in tasks.values())
    again = ask(controller, "n1", name="q2")
    assert (again.state, "being measured already" in again.message) == ("refused", True)
    detail = {"outcome": "PASS", "checks": [{"check": "clock", "outcome": "PASS"}]}
    done = ActionResult(id=tasks["n1"].id, outcome="done", message="PASS", detail=detail)
    take(controller, done)
    assert controller.state.requests["q"].state == "open"
    controller.state.nodes["n2"].state = "active"
    gave_way = ActionResult(id=tasks["n2"].id, outcome="failed", message="the checks gave way")
    take(controller, gave_way)
    request = controller.state.requests["q"]
    assert (request.state, request.message) == ("done", "n1 PASS, n2 UNKNOWN (it is active: )")


def test_a_cluster_without_checks_has_them_when_a_person_asks() -> None:
    """Then once, not from time to time."""
    controller = controller_with(spare("n1"), check_level="", checks=())
    assert ask(controller, "n1", level="quick").state == "open"
    (task,) = controller.state.open_actions("node_task", task="check")
    detail = {"outcome": "UNKNOWN", "checks": [{"check": "clock", "outcome": "UNKNOWN"}]}
    take(controller, ActionResult(id=task.id, outcome="done", message="UNKNOWN", detail=detail))
    assert controller.state.requests["q"].message == "n1 UNKNOWN"
    assert not controller.state.open_actions("node_task", task="check")


def test_an_unknown_node_and_none_are_refused() -> None:
    """With the names that are known."""
    controller = controller_with(spare("n1"))
    assert "no node 'n7'" in ask(controller, "n7").message
    assert "no node is named" in ask(controller, name="q2").message
