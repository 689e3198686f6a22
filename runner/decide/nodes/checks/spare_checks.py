"""Checks of idle spares: again when their pass expires, so that a spare that went bad is found while it is a spare.

A spare of which something hints at a fault is checked at once, whatever it passed before (`Node.check_wanted`).

They stay inside the node, and give way: a spare that is needed takes ranks at once, and its agent ends the checks. Where another
node of the same machine has ranks, they wait.
"""

from collections.abc import Iterator, Sequence

from runner.decide.decision import Decision
from runner.decide.nodes.checks import admission_checks, check_results, requested_checks
from runner.decide.nodes.checks.check_results import HOUR_SECONDS
from runner.decide.state.cluster_state import Node, State
from runner.facts.specs.cluster import ClusterSpec

# At the same time, so that most spares are undisturbed; and after a check without a verdict, unless passes expire sooner. Both
# chosen, not measured.
MAX_AT_ONCE, RETRY_SECONDS = 8, 3600.0


def settle(decision: Decision) -> None:
    """Issue the checks that are due, the oldest result first."""
    state, cluster = decision.state, decision.policy.cluster
    if state.closing or not _may_be_due(state, cluster):
        return
    due = sorted((at, node.index) for at, node in _dues(state, cluster) if at <= decision.now)
    room = min(MAX_AT_ONCE, admission_checks.room(state)) - state.num_open("node_task", "check")
    nodes = list(state.nodes.values())
    for _, index in due:
        if room <= 0:
            return
        node = nodes[index]
        why = node.check_wanted or "its pass has expired"
        room -= admission_checks.issue(decision, node, why=why)


def is_wanted(cluster: ClusterSpec) -> bool:
    """Whether passes expire at all."""
    return bool(cluster.check_level) and cluster.check_valid_hours > 0


def _may_be_due(state: State, cluster: ClusterSpec) -> bool:
    """Whether to look at the nodes at all: of a cluster without checks, only when a person asks."""
    return cluster.wants_checks or requested_checks.is_any_open(state)


def next_due(state: State, cluster: ClusterSpec) -> float | None:
    """Return when the next spare is to be checked; None for none."""
    if not _may_be_due(state, cluster):
        return None
    return min((at for at, _ in _dues(state, cluster)), default=None)


def _dues(state: State, cluster: ClusterSpec) -> Iterator[tuple[float, Node]]:
    busy = {node.address for node in state.nodes.values() if node.ranks_may_run is not None}
    machines: dict[str, list[Node]] = {}
    for node in state.nodes.values():
        machines.setdefault(node.address or node.node, []).append(node)
    for node in state.nodes.values():
        is_idle = node.state == "spare" and node.pending_drain is None and node.hardware
        is_asked = bool(node.check_wanted) and bool(cluster.wants_checks or node.check_wanted_level)
        if not (is_asked or is_wanted(cluster)):
            continue
        if is_idle and node.address not in busy:
            machine = machines[node.address or node.node]
            yield _due_at(state, node, cluster, machine=machine), node


def _due_at(state: State, node: Node, cluster: ClusterSpec, *, machine: Sequence[Node]) -> float:
    """Return when a spare's pass expires, or a while after its last check; one that was behind once is checked again at once."""
    known, checked = state.hardware.get(node.hardware), node.checked
    # Of a task for which it refused its checks.
    ends_at = node.check_after if node.check_awaits else 0.0
    if node.check_wanted:
        return max(node.check_wanted_at, ends_at)
    if known is not None and known.num_behind == 1:
        return max(node.since, ends_at)
    last = check_results.last_pass(state, node, cluster, machine=machine)
    valid_seconds = cluster.check_valid_hours * HOUR_SECONDS
    expires_at = max(ends_at, node.since if last is None else last + valid_seconds)
    wait_seconds = min(RETRY_SECONDS, valid_seconds)
    return expires_at if checked is None else max(expires_at, checked.at + wait_seconds)
