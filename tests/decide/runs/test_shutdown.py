"""When a shutdown is complete, and when the next supervisor reopens the cluster."""

from runner.facts.actions import ActionResult
from runner.facts.messages import records as r
from runner.facts.messages import signals as s
from runner.facts.messages.requests import ShutDown
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
