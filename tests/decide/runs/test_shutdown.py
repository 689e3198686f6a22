"""When a shutdown is complete, and when the next supervisor reopens the cluster."""

from collections.abc import Iterable

from runner.facts.actions import ActionResult
from runner.facts.messages import records as r
from runner.facts.messages import signals as s
from runner.facts.messages.requests import ReadmitNode, RetireNode, ShutDown
from tests.decide.controller_harness import ControllerHarness, kinds


def next_supervisor(harness: ControllerHarness) -> list[str]:
    """Let another supervisor lead; name the records it decides."""
    started = r.SupervisorStarted(holder="other", token=2, version="0", nodes=("n1", "n2"))
    return kinds([*harness.take(started), *harness.settle()])


def closed(harness: ControllerHarness) -> bool:
    """Return whether the shutdown is complete."""
    return harness.controller.has_closed


def test_the_successor_of_a_supervisor_that_died_at_the_end_of_a_shutdown_exits() -> None:
    """All nodes have left and the request is answered, but an action on an agent is still open: the cluster stays closed."""
    harness = ControllerHarness()
    harness.settle()
    for number, name in ((1, "n1"), (2, "n2")):
        harness.take(ActionResult(id=f"a{number}", outcome="done"))
        harness.join(name, "a")
    harness.take(ShutDown(id="q1", by="ann"))
    stops = [each.action.id for each in harness.settle() if isinstance(each, r.ActionIssued)]
    for name in ("n1", "n2"):
        harness.take(s.NodeLeft(node=name, incarnation=1, instance_id="a"))
    harness.settle()
    assert harness.state.requests["q1"].state == "done"
    harness.take(ActionResult(id=stops[0], outcome="done"))
    assert "ClusterReopened" not in next_supervisor(harness)
    assert not closed(harness)
    harness.take(ActionResult(id=stops[1], outcome="done"))
    assert closed(harness)
    assert "ClusterReopened" in next_supervisor(harness)


def stopped(records: Iterable[object]) -> dict[str, str]:
    """Return the ids of the actions that end agents, by node."""
    issued = [each.action for each in records if isinstance(each, r.ActionIssued)]
    return {each.args["node"]: each.id for each in issued if each.action == "stop_agent"}


def test_an_agent_that_is_being_started_is_ended_afterwards() -> None:
    """What ends a node sees only what runs: n2's start is over first, then its agent is ended, then the cluster has closed."""
    harness = ControllerHarness()
    harness.settle()
    harness.take(ActionResult(id="a1", outcome="done"))
    harness.join("n1", "a")
    harness.take(ShutDown(id="q1", by="ann"))
    stops = stopped(harness.settle())
    assert set(stops) == {"n1"}
    harness.take(ActionResult(id=stops["n1"], outcome="done"))
    assert stopped(harness.settle()) == {}
    assert harness.state.requests["q1"].state == "open"
    started = harness.take(ActionResult(id="a2", outcome="done", message="started"))
    stops = stopped([*started, *harness.settle()])
    assert set(stops) == {"n2"}
    harness.take(ActionResult(id=stops["n2"], outcome="done"))
    harness.settle()
    assert closed(harness)


def test_a_retired_node_s_agent_that_was_being_started_is_ended_afterwards() -> None:
    """Whether it could be started or not; nothing else is asked of a node that is retired."""
    for outcome in ("done", "failed"):
        harness = ControllerHarness()
        harness.settle()
        harness.take(ActionResult(id="a1", outcome="done"))
        harness.join("n1", "a")
        retired = harness.take(RetireNode(id="q1", by="ann", node="n2"))
        assert stopped([*retired, *harness.settle()]) == {}
        assert harness.state.nodes["n2"].state == "retired"
        started = harness.take(ActionResult(id="a2", outcome=outcome))
        assert set(stopped([*started, *harness.settle()])) == {"n2"}


def test_a_readmitted_node_whose_agent_is_being_started_is_ended_with_the_cluster() -> None:
    """Its processes had ended before, so nothing had to end them; its new agent is ended as soon as its start is over."""
    harness = ControllerHarness()
    harness.settle()
    for number, name in ((1, "n1"), (2, "n2")):
        harness.take(ActionResult(id=f"a{number}", outcome="done"))
        harness.join(name, "a")
    harness.take(s.NodeLeft(node="n2", incarnation=1, instance_id="a"))
    started = [
        each.action.id
        for each in [*harness.take(ReadmitNode(id="q2", by="ann", node="n2")), *harness.settle()]
        if isinstance(each, r.ActionIssued) and each.action.action == "start_agent"
    ]
    harness.take(ShutDown(id="q3", by="ann"))
    stops = stopped(harness.settle())
    assert set(stops) == {"n1"}
    harness.take(ActionResult(id=stops["n1"], outcome="done"))
    harness.settle()
    assert not closed(harness)
    stops = stopped([*harness.take(ActionResult(id=started[0], outcome="done")), *harness.settle()])
    assert set(stops) == {"n2"}
    harness.take(ActionResult(id=stops["n2"], outcome="done"))
    harness.settle()
    assert closed(harness)
