"""Checks that a node refuses since another task is under way there: no verdict, and asked for again when that task ends.

The supervisor no longer waits for that other task: it gave the task up at its deadline, or with the agent that had it, and the
next agent found it all the same. A check that is refused counts as no try, and says nothing about the hardware.
"""

from runner.decide.decision import Decision
from runner.decide.state.cluster_state import Node
from runner.facts.actions import ActionResult, NodeTask, UnderWay
from runner.facts.messages.records_checks import CheckDeferred

# Of the time that the other task has left, by its agent; the node is asked again then, whatever it says. Chosen, not measured.
LEAST_SECONDS, MOST_SECONDS = 1.0, 3600.0


def is_occupied(node: Node, now: float) -> bool:
    """Whether a task that nothing waits for is under way there, as far as is known."""
    return bool(node.check_awaits) and now < node.check_after


def defer(decision: Decision, work: NodeTask, other: UnderWay) -> None:
    """Ask a node again when what is under way there has ended."""
    if work.node in decision.state.nodes:
        seconds = min(max(other.seconds_left, LEAST_SECONDS), MOST_SECONDS)
        decision.add(CheckDeferred(node=work.node, task=other.task, until=decision.now + seconds))


def on_late_result(decision: Decision, result: ActionResult) -> None:
    """Ask the node again that refused a check for the task that ended here."""
    for node in decision.state.nodes.values():
        if node.check_awaits == result.id and is_occupied(node, decision.now):
            decision.add(CheckDeferred(node=node.node, until=decision.now))
