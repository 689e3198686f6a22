"""Questions about nodes that their state alone answers."""

from runner.decide.decision import Decision
from runner.decide.state.cluster_state import OUT, Attempt, Node, Run, State
from runner.facts.ids import is_same_agent
from runner.facts.messages import records as r
from runner.facts.messages.signals import Signal
from runner.facts.specs.cluster import ClusterSpec


def is_current_agent(node: Node | None, signal: Signal) -> bool:
    """Whether a signal is of the node's registered agent, as far as is known. Any agent may join as an unknown node."""
    if node is None or node.instance_id == signal.instance_id:
        return True
    return is_same_agent(node.instance_id, signal.instance_id)


def is_up(node: Node) -> bool:
    """Whether the node is in service and not suspected of silence."""
    return not node.ended and (node.state in ("spare", "active", "checking") or node.devices_busy)


def is_suspect(node: Node) -> bool:
    """Whether a node is suspected of silence, so that probes are due. One that only lacks its devices sends heartbeats."""
    return node.state == "suspect" and not node.devices_busy


def others_of_machine(state: State, node: Node) -> list[Node]:
    """Return the other nodes of its machine: those that are reached at the same address."""
    return [other for other in state.nodes.values() if is_same_machine(node, other)]


def is_same_machine(node: Node, other: Node) -> bool:
    """Whether another node is one of the same machine."""
    return bool(node.address) and other.address == node.address and other is not node


def is_planned(state: State, node: Node) -> bool:
    """Whether an attempt is about to be launched on the node."""
    attempts = (run.attempt for run in state.runs.values())
    return any(
        attempt.state in ("preparing", "prepared") and node.node in attempt.nodes
        for attempt in attempts
        if attempt is not None
    )


def has_left(node: Node) -> bool:
    """Whether neither agent nor ranks run on the node any more; it may be out of service as well."""
    return node.state == "left" or (node.state in OUT and node.ended)


def free_state(cluster: ClusterSpec, *, unchecked: bool) -> r.NodeStateName:
    """Return the state of a node without ranks: a spare, unless it has yet to pass its checks."""
    return "checking" if unchecked and cluster.wants_checks else "spare"


def live_attempt(decision: Decision, node: Node) -> Attempt | None:
    """Return the live attempt that this node serves or has yet to be cleared of."""
    for name in (node.attempt, node.ranks_may_run):
        attempt = decision.state.attempt_of(name)
        if attempt is not None and attempt.state != "ended" and node.node in attempt.nodes:
            return attempt
    return None


def run_served(state: State, node: Node) -> Run | None:
    """Return the run whose gang includes this node, or included it until the next attempt is planned."""
    for run in state.runs.values():
        attempt = run.attempt
        if attempt is None or node.node not in attempt.nodes:
            continue
        if attempt.state != "ended" or run.state == "active":
            return run
    return None
