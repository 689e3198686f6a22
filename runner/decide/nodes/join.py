"""Join: an agent registers under a name: which hardware it is, whether the name is free, and what the node is now.

The agent's report overrides our last known state. A name with a live agent is never reassigned, and refused hardware is
recognised under any name.
"""

from runner.decide.decision import Decision
from runner.decide.incidents.attribution import report_failure
from runner.decide.nodes import drain, hardware
from runner.decide.nodes.predicates import free_state, has_left, is_up, live_attempt
from runner.decide.nodes.probes import leave_correlated_silence
from runner.decide.state.cluster_state import OUT, RUNNING, Attempt, Node
from runner.facts.faults import Finding
from runner.facts.messages import records as r
from runner.facts.messages.signals import NodeJoined, NodeLeft

# States from which a node is checked.
NEVER_CHECKED = ("absent", "joining", "lost", "left", *OUT)


def on_node_joined(decision: Decision, joined: NodeJoined) -> None:
    """Register an agent's node, or refuse it. An agent may repeat a join that was answered."""
    state = decision.state
    node = state.nodes.get(joined.node)
    if node is not None and _is_old(node, joined):
        return
    known_as = hardware.identify(state, joined.hardware, joined.parts)
    same = node is not None and hardware.is_same(state, node, hardware=known_as, parts=joined.parts)
    reason = _objection(decision, node, joined, known_as=known_as, same=same)
    if reason:
        _refuse(decision, node, joined, reason=reason, same=same)
        return
    refused_as = _refused_as(decision, joined, known_as)
    _register(decision, joined, node, known_as)
    if node is not None:
        if joined.attempt is None and not _has_yet_to_start(decision, node):
            decision.clear_node(node)
        leave_correlated_silence(decision, node)
    if refused_as:
        _quarantine(decision, node, joined, reason=refused_as)
        return
    if node is not None and node.state in OUT and (same or node.state == "maintenance"):
        # Only an operator readmits it.
        return
    # An agent that names an attempt has found its keeper; it reports ranks that ended meanwhile one by one.
    adopted = joined.attempt is not None and node is not None and joined.attempt == node.attempt
    if node is None or node.state != "active" or not adopted:
        _set_state(decision, joined, node, adopted=adopted, same=same)
    _resolve(decision, joined, adopted=adopted)


def _has_yet_to_start(decision: Decision, node: Node) -> bool:
    """Whether the node is to start ranks and has not reported a launch: its new agent may yet launch, or fail to."""
    attempt = decision.state.attempt_of(node.attempt)
    if attempt is None or attempt.state != "launching":
        return False
    return node.node not in attempt.launched


def _is_old(node: Node, joined: NodeJoined) -> bool:
    """Whether this agent is registered already, or began earlier. Incarnations of different folders do not compare."""
    if joined.instance_id and node.instance_id:
        return joined.instance_id == node.instance_id
    return joined.incarnation <= node.incarnation


def _objection(
    decision: Decision, node: Node | None, joined: NodeJoined, *, known_as: str, same: bool
) -> str:
    """Return why this agent may not have the name now; "" when it may. Live agents and live ranks come first."""
    for other in decision.state.nodes.values():
        if known_as and other.hardware == known_as and other.node != joined.node and is_up(other):
            return (
                f"its hardware {known_as} is {other.node}, whose agent is alive; one machine is one node, and nodes that share "
                "a machine need a hardware.json each in their folders"
            )
    if node is None:
        return ""
    if not same and is_up(node):
        return (
            f"{node.node} is hardware {node.hardware}, whose agent is alive; this one is {known_as}"
        )
    if not same and node.ranks_may_run is not None and live_attempt(decision, node) is not None:
        return f"ranks of {node.ranks_may_run} may still live on {node.hardware}, which was {node.node} before"
    if not (same and is_up(node) and joined.instance_id and node.instance_id):
        return ""
    if joined.incarnation <= node.incarnation:
        return "an agent of the same hardware that began later is alive"
    owes = [name for name in (node.attempt, node.ranks_may_run) if name is not None]
    if owes and joined.attempt not in owes:
        return f"an agent of the same hardware is alive, and has ranks of {owes[0]} that this one does not know"
    return ""


def _refuse(
    decision: Decision, node: Node | None, joined: NodeJoined, *, reason: str, same: bool
) -> None:
    """Refuse an agent: it asks again from time to time, and the operator is paged once.

    A second agent of the same machine may begin before the end of the first is known, so the operator is paged only when it asks
    again while the first still sends heartbeats.
    """
    name, instance_id = joined.node, joined.instance_id
    refused_agents = decision.state.refused_agents
    last_refused = node.refused_instance_id if node is not None else refused_agents.get(name)
    is_again = bool(instance_id) and last_refused == instance_id
    if is_again and (node is None or not same or node.refusals > 1):
        return
    decision.add(
        r.JoinRefused(node=name, instance_id=instance_id, hardware=joined.hardware, reason=reason)
    )
    if not same or is_again:
        decision.page(f"an agent was refused the name {name}: {reason}")


def _refused_as(decision: Decision, joined: NodeJoined, known_as: str) -> str:
    """Return why this hardware is refused; "" when it is not."""
    known = decision.state.hardware.get(known_as)
    if known is None or not known.verdict:
        return ""
    before = next((name for name in reversed(known.node_names) if name != joined.node), "")
    called = f", before this {before}," if before else ""
    return f"hardware {known_as}{called} is {known.verdict} ({known.reason or 'no reason given'})"


def _register(decision: Decision, joined: NodeJoined, node: Node | None, known_as: str) -> None:
    # An agent that reports no hardware is on that last registered under its name.
    last = node.hardware if node is not None else ""
    hardware.record_seen(decision, hardware=known_as, node=joined.node, parts=joined.parts)
    decision.add(
        r.NodeRegistered(
            node=joined.node,
            incarnation=joined.incarnation,
            hardware=known_as or last,
            slots=joined.slots,
            address=joined.address,
            pid=joined.pid,
            parts=joined.parts,
            instance_id=joined.instance_id,
        )
    )


def _quarantine(decision: Decision, node: Node | None, joined: NodeJoined, *, reason: str) -> None:
    """Quarantine a node whose hardware is refused, unless it is out of service already."""
    if node is not None and node.state in ("quarantined", "retired"):
        return
    decision.move_node(joined.node, "quarantined", reason)
    decision.page(f"{joined.node} is quarantined: {reason}")


def _set_state(
    decision: Decision, joined: NodeJoined, node: Node | None, *, adopted: bool, same: bool
) -> None:
    """Set the state of the joined node: active with adopted ranks, or free; a gang whose ranks died fails."""
    if adopted:
        decision.move_node(joined.node, "active", "agent back, ranks adopted")
        return
    attempt = live_attempt(decision, node) if node is not None else None
    if node is not None and node.attempt is not None and attempt is not None:
        if attempt.state in RUNNING and node.node in attempt.launched:
            if node.state != "active":
                decision.move_node(node.node, "active", "agent back without its ranks")
            evidence = f"{node.node} came back (incarnation {joined.incarnation}) without its ranks"
            _fail_ranks(decision, attempt, node, evidence)
        return
    known = node if node is not None and same and node.incarnation > 0 else None
    unchecked = known is None or known.unchecked or known.state in NEVER_CHECKED
    free = free_state(decision.policy.cluster, unchecked=unchecked)
    if node is None or node.state != free:
        decision.move_node(joined.node, free, f"joined, incarnation {joined.incarnation}")


def _fail_ranks(decision: Decision, attempt: Attempt, node: Node, evidence: str) -> None:
    """Fail an attempt whose ranks on this node are gone."""
    report_failure(
        decision,
        Finding(fault="rank_crash", evidence=evidence, attempt=attempt.attempt, node=node.node),
    )


def _resolve(decision: Decision, joined: NodeJoined, *, adopted: bool) -> None:
    """Resolve incidents about the silence of a node that has joined."""
    for incident in decision.state.live_incidents(fault="node_silent", node=joined.node):
        is_answered = incident.rungs_taken[-1:] in ([], ["start_agent"])
        if is_answered and (adopted or incident.run is None):
            reason = "ranks adopted" if adopted else "joined again"
            decision.move_incident(incident, "resolved", reason)


def on_node_left(decision: Decision, left: NodeLeft) -> None:
    """Handle a node that leaves on purpose; a gang that it served ends as after any loss."""
    node = decision.state.nodes.get(left.node)
    if node is None or left.incarnation < node.incarnation or has_left(node):
        return
    drain.agent_ended(decision, node, reason="its agent ended as asked")
    decision.clear_node(node)
    attempt = live_attempt(decision, node)
    if attempt is not None and attempt.state in RUNNING and not decision.state.closing:
        _fail_ranks(decision, attempt, node, f"{node.node} left on purpose")
