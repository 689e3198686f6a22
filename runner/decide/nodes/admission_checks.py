"""Checking: what a node must pass before it may take ranks, whenever it comes into the pool. Unknown is not healthy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runner.decide.decision import Decision
from runner.decide.incidents.ladder import respond
from runner.decide.nodes.hardware import may_quarantine, record_hardware_fault
from runner.decide.state.cluster_state import Node, State
from runner.facts.actions import Action, ActionResult, NodeTask
from runner.facts.messages import records as r

# At the same time: a fleet that comes at once is checked in turns, so that no answer waits behind those of all others until it
# is too late; chosen, not measured.
MAX_AT_ONCE = 64
# checks in a row without a verdict, then the node is out; chosen, not measured
MAX_TRIES = 2
# characters of what checks said, in pages and reasons; chosen, not measured
MAX_SAID = 300


def room(state: State) -> int:
    """Return how many more nodes may be checked now."""
    return MAX_AT_ONCE - state.num_open("node_task", "check")


def settle(decision: Decision, node: Node) -> bool:
    """Have a node checked that is to be, once at a time; where no checks are wanted any more it is a spare.

    A check outlives the agent it was sent to: the next one answers it, or its deadline passes and it is tried again. Returns
    whether a check begins.
    """
    checks = decision.policy.cluster.checks
    if not checks:
        reason = "the cluster wants no checks"
        decision.add(r.NodeChanged(node=node.node, state="spare", reason=reason))
        return False
    state = decision.state
    if state.is_open("node_task", node.node, "check") or state.is_open("start_agent", node.node):
        # it is being checked, or its agent is on its way
        return False
    args = {"checks": list(checks)}
    reason = "once more" if node.check_tries else node.reason
    decision.issue(
        NodeTask(node=node.node, task="check", epoch=node.epoch, args=args),
        f"check {node.node}: {reason}",
        deadline_seconds=decision.policy.cluster.check_seconds,
    )
    return True


def on_checked(decision: Decision, action: Action, result: ActionResult) -> None:
    """Take the node in, or out; without a verdict it is tried again once. What came too late says nothing."""
    work = action.read(NodeTask)
    node = decision.state.nodes.get(work.node)
    if node is None or node.state != "checking":
        return
    outcome = result.detail.get("outcome") if result.outcome == "done" else "UNKNOWN"
    if outcome == "PASS":
        checks = ", ".join(work.args["checks"])
        reason = f"passed its checks ({checks})"
        decision.add(r.NodeChanged(node=node.node, state="spare", reason=reason))
    elif outcome == "FAIL":
        _failed(decision, node, said(result))
    elif node.check_tries + 1 < MAX_TRIES:
        reason = f"no verdict ({said(result)})"
        decision.add(r.NodeChanged(node=node.node, state="checking", reason=reason))
    else:
        reason = f"its checks gave no verdict {MAX_TRIES} times: {said(result)}"
        decision.add(r.NodeChanged(node=node.node, state="quarantined", reason=reason))
        decision.page(
            f"{node.node} is quarantined: {reason}; unknown is not healthy, its hardware is not judged; "
            f"`stoker readmit {node.node}` checks it again"
        )


def _failed(decision: Decision, node: Node, reason: str) -> None:
    """Answer failed checks by the runbook; hardware beyond what may be quarantined at once is kept out, and not judged."""
    evidence = f"{node.node} failed its checks: {reason}"
    incident = decision.open_incident("node_unfit", evidence, node=node.node)
    what = "the node is out of service"
    if may_quarantine(decision):
        respond(decision, incident, reason=evidence)
    else:
        what = "the node is kept out, its hardware is not judged"
        decision.add(
            r.NodeChanged(
                node=node.node, state="quarantined", reason=evidence, incident=incident.incident
            )
        )
        decision.page(
            f"{evidence}; it is kept out, but its hardware is not judged, since others were quarantined without a person "
            f"already: `stoker quarantine {node.node}` does it, `stoker readmit {node.node}` checks it again",
            incident=incident.incident,
        )
    record_hardware_fault(
        decision, node, fault="node_unfit", evidence=evidence, incident=incident.incident
    )
    if decision.is_live(incident):
        decision.add(r.IncidentChanged(incident=incident.incident, state="resolved", reason=what))


def said(result: ActionResult) -> str:
    """Say what checks found that is not as it should be."""
    verdicts = result.detail.get("checks") or ()
    found = [_verdict(each) for each in verdicts if isinstance(each, Mapping)]
    text = "; ".join(each for each in found if each) or result.message or "no words"
    return text[:MAX_SAID]


def _verdict(verdict: Mapping[str, Any]) -> str:
    if verdict.get("outcome") == "PASS" or not verdict.get("check"):
        return ""
    return f"{verdict['check']} {verdict.get('outcome')}: {verdict.get('reason', '')}".rstrip(": ")
