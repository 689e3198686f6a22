"""The results of checks that the supervisor publishes, from an agent's answer on."""

import pytest

from runner.decide.controller import Controller
from runner.decide.decision import Policy
from runner.facts.actions import ActionResult
from runner.facts.messages import records as r
from runner.facts.messages.cluster_status import CheckStatus
from runner.facts.messages.signals import NodeJoined, NodeLeft
from runner.facts.specs.cluster import ClusterSpec
from runner.history.ledger import Ledger
from runner.supervisor import status_builder
from runner.supervisor.status_builder import LastHeartbeats, StatusBuilder

CLUSTER = ClusterSpec(name="c", check_level="quick")
RATE = {"name": "rate", "value": 2.5, "better": "higher"}


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


def join(controller: Controller, node: str, *, incarnation: int = 1, hardware: str) -> None:
    """Have an agent join."""
    fact = NodeJoined(
        node=node,
        incarnation=incarnation,
        sequence=1,
        instance_id=f"{hardware}.{incarnation}",
        hardware=hardware,
        parts=(hardware,),
        slots=1,
        address=node,
        pid=1,
    )
    take(controller, fact)


def answer(controller: Controller, outcome: str) -> None:
    """Answer the open task."""
    (task,) = controller.state.open_actions("node_task", task="check")
    verdicts = [
        {"check": "rates", "outcome": outcome, "evidence": [RATE]},
        {"check": "gpu", "outcome": "UNKNOWN"},
    ]
    detail = {"outcome": outcome, "checks": verdicts, "hardware_class": "x"}
    take(controller, ActionResult(id=task.id, outcome="done", message=outcome, detail=detail))


def published(controller: Controller) -> CheckStatus:
    """Build what the supervisor publishes."""
    state = controller.state
    builder = StatusBuilder(state, CLUSTER, Ledger(), LastHeartbeats(), state.now)
    builder.status(state.now, {"wall": 0.0})
    return builder.check_status()


def test_an_answer_is_published_by_check_and_leaves_with_its_hardware() -> None:
    """UNKNOWN as well, although it says nothing of the hardware; other hardware under the node's name has no results yet."""
    controller = Controller(Policy(cluster=CLUSTER))
    join(controller, "n1", hardware="board:1")
    assert published(controller).nodes == ()
    answer(controller, "UNKNOWN")
    (node,) = published(controller).nodes
    found = [(each.outcome, each.level, each.checks) for each in node.outcomes]
    assert found == [("UNKNOWN", "quick", ("rates", "gpu"))]
    assert node.values == ()
    answer(controller, "PASS")
    (node,) = published(controller).nodes
    found = [(each.outcome, each.level, each.checks) for each in node.outcomes]
    assert found == [("PASS", "quick", ("rates",)), ("UNKNOWN", "quick", ("gpu",))]
    assert [(each.name, each.value) for each in node.values] == [("rate", 2.5)]
    left = NodeLeft(node="n1", incarnation=1, sequence=2, instance_id="board:1.1")
    take(controller, left)
    join(controller, "n1", incarnation=2, hardware="board:2")
    assert published(controller).nodes == ()


def test_values_beyond_the_limit_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fleet of any size is published: the outcomes of all nodes, and as many values as fit."""
    monkeypatch.setattr(status_builder, "MAX_VALUES_SHOWN", 1)
    controller = Controller(Policy(cluster=CLUSTER))
    for number in (1, 2, 3):
        join(controller, f"n{number}", hardware=f"board:{number}")
        answer(controller, "PASS")
    status = published(controller)
    assert [len(node.values) for node in status.nodes] == [1, 0, 0]
    assert all(node.outcomes for node in status.nodes)
    assert status.num_left_out == 2
