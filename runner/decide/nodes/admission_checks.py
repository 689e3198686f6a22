"""Admission checks: a node must pass them before it takes ranks, whenever it joins the pool. Unknown is not healthy."""

from collections.abc import Mapping
from typing import Any

from runner.decide.decision import Decision
from runner.decide.incidents.ladder import respond
from runner.decide.nodes.hardware import may_quarantine, record_hardware_fault
from runner.decide.state.cluster_state import Node, State
from runner.facts.actions import Action, ActionResult, NodeTask
from runner.facts.faults import Finding

# At the same time: a fleet that joins at once is checked in turns, so that no result waits behind all others past its deadline;
# chosen, not measured.
MAX_AT_ONCE = 64
# Without a verdict in a row, before the node is quarantined; chosen, not measured.
MAX_TRIES = 2
# Characters of check results in pages and reasons; chosen, not measured.
MAX_SUMMARY = 300


def room(state: State) -> int:
    """Return how many more nodes may be checked now."""
    return MAX_AT_ONCE - state.num_open("node_task", "check")


def settle(decision: Decision, node: Node) -> bool:
    """Issue the checks of a node, one task at a time; without configured checks it is a spare. Return whether a task is issued.

    A task outlives the agent it was sent to: the next agent answers it, or its deadline passes and it is tried again.
    """
    checks = decision.policy.cluster.checks
    if not checks:
        decision.move_node(node.node, "spare", "the cluster wants no checks")
        return False
    state = decision.state
    if node.ranks_may_run is not None:
        # They have the devices that are to be checked.
        return False
    if state.is_open("node_task", node.node, "check") or state.is_open("start_agent", node.node):
        return False
    args = {"checks": list(checks)}
    reason = "once more" if node.check_tries else node.reason
    decision.issue(
        NodeTask(node=node.node, task="check", generation=node.generation, args=args),
        f"check {node.node}: {reason}",
        deadline_seconds=decision.policy.cluster.check_seconds,
    )
    return True


def on_checked(decision: Decision, action: Action, result: ActionResult) -> None:
    """Admit or quarantine a node by its verdict; without one it is checked once more. A late result is ignored."""
    work = action.read(NodeTask)
    node = decision.state.nodes.get(work.node)
    if node is None or node.state != "checking":
        return
    outcome = result.detail.get("outcome") if result.outcome == "done" else "UNKNOWN"
    if outcome == "PASS":
        checks = ", ".join(work.args["checks"])
        decision.move_node(node.node, "spare", f"passed its checks ({checks})")
    elif outcome == "FAIL":
        _failed(decision, node, summary(result))
    elif node.check_tries + 1 < MAX_TRIES:
        decision.move_node(node.node, "checking", f"no verdict ({summary(result)})")
    else:
        reason = f"its checks gave no verdict {MAX_TRIES} times: {summary(result)}"
        decision.move_node(node.node, "quarantined", reason)
        decision.page(
            f"{node.node} is quarantined: {reason}; unknown is not healthy, its hardware gets no verdict; "
            f"`stoker readmit {node.node}` checks it again"
        )


def _failed(decision: Decision, node: Node, reason: str) -> None:
    """Answer failed checks by the runbook; beyond the quarantine limit the node is kept out, its hardware not judged."""
    evidence = f"{node.node} failed its checks: {reason}"
    incident = decision.open_incident(
        Finding(fault="node_unfit", evidence=evidence, node=node.node)
    )
    outcome = "the node is out of service"
    if may_quarantine(decision):
        respond(decision, incident, reason=evidence)
    else:
        outcome = "the node is kept out, its hardware is not judged"
        decision.move_node(node.node, "quarantined", evidence, incident=incident.incident)
        decision.page(
            f"{evidence}; it is kept out, but its hardware is not judged, since others were quarantined without a person "
            f"already: `stoker quarantine {node.node}` does it, `stoker readmit {node.node}` checks it again",
            incident=incident.incident,
        )
    record_hardware_fault(
        decision, node, fault="node_unfit", evidence=evidence, incident=incident.incident
    )
    if decision.is_live(incident):
        decision.move_incident(incident, "resolved", outcome)


def summary(result: ActionResult) -> str:
    """Return what the checks found wrong."""
    verdicts = result.detail.get("checks") or ()
    found = [_verdict(each) for each in verdicts if isinstance(each, Mapping)]
    text = "; ".join(each for each in found if each) or result.message or "no words"
    return text[:MAX_SUMMARY]


def _verdict(verdict: Mapping[str, Any]) -> str:
    if verdict.get("outcome") == "PASS" or not verdict.get("check"):
        return ""
    return f"{verdict['check']} {verdict.get('outcome')}: {verdict.get('reason', '')}".rstrip(": ")
