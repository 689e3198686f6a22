"""Each kind of action is performed for real and in the simulator, and its arguments survive the journal."""

from typing import Any

import pytest

from runner.act.action_handlers import action_handlers
from runner.facts import wire
from runner.facts.actions import (
    ACTIONS,
    Action,
    ActionArgs,
    InspectCheckpoint,
    NodeTask,
    PageOperator,
    PrepareAttempt,
    ProbeNode,
    PruneCheckpoints,
    StartAgent,
    StopAgent,
    VerifyCheckpoint,
)
from runner.facts.messages.records import ActionIssued
from runner.signer import UNSIGNED
from runner.simulate.action_outcomes import OUTCOMES

SAMPLES: tuple[ActionArgs, ...] = (
    PrepareAttempt(
        attempt="1.2.0",
        generation=4,
        folder="/c",
        refused=["/c/s1"],
        address="10.0.0.1",
        verified={"1.1.0-00000005": "ab"},
        set_aside=[[10, "1.1.0", "1.2.0"]],
    ),
    ProbeNode(node="n1"),
    StartAgent(node="n1"),
    StartAgent(node="n1", request="q1"),
    StopAgent(node="n1"),
    NodeTask(node="n1", task="check", generation=4, args={"checks": ["disk_space"]}),
    InspectCheckpoint(path="/c/s2", folder="/c", run_name="a", uncoded=[]),
    VerifyCheckpoint(path="/c/s2"),
    PruneCheckpoints(paths=["/c/s1"]),
    PageOperator(message="look"),
)


def test_every_kind_has_a_handler_and_a_simulated_outcome() -> None:
    """One without would be decided, and never done. The simulator sends tasks to its nodes itself."""
    nothing: Any = None
    assert set(action_handlers(nothing, nothing, nothing, UNSIGNED, cluster="c")) == set(ACTIONS)
    assert {*OUTCOMES, NodeTask.kind} == set(ACTIONS)
    assert {type(args).kind for args in SAMPLES} == set(ACTIONS)


@pytest.mark.parametrize("args", SAMPLES, ids=lambda args: str(args.kind))
def test_arguments_are_read_as_they_were_decided(args: ActionArgs) -> None:
    """Arguments of any kind come out of a decoded record unchanged."""
    action = Action(id="a1", action=args.kind, reason="", args=args.plain())
    record = wire.decode(wire.encode(ActionIssued(action=action)))
    assert isinstance(record, ActionIssued)
    assert record.action.read(type(args)) == args


def test_arguments_of_another_release_are_read_as_far_as_they_are_known() -> None:
    """A key that came later is passed over; one that came since has its default."""
    action = Action(id="a1", action="probe_node", reason="", args={"node": "n1", "colour": "red"})
    assert action.read(ProbeNode) == ProbeNode(node="n1")
