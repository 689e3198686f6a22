"""The life cycle of nodes, and agents that are started and ended.

How a node joins is in `join`, silent nodes in `probes`, checks in `admission_checks`, the way out of service and back in
`drain`, its machine in `hardware`.
"""

from __future__ import annotations

from runner.decide.decision import Decision
from runner.decide.incidents import non_fatal
from runner.decide.incidents.ladder import respond
from runner.decide.nodes import admission_checks, drain, spares
from runner.decide.nodes.predicates import has_left, is_suspect
from runner.decide.nodes.probes import incident_about, next_probe_at, probe
from runner.decide.state.cluster_state import GONE, Node, State
from runner.facts.actions import Action, ActionResult, StartAgent, StopAgent
from runner.facts.messages import records as r

# States in which nothing is due by itself.
SETTLED = ("spare", "active", *GONE)


def on_supervisor_started(decision: Decision, started: r.SupervisorStarted) -> None:
    """Expect the nodes that providers can start; a cluster that was shut down is open again."""
    if has_closed(decision.state):
        decision.add(r.ClusterReopened())
        for node in decision.state.nodes.values():
            if node.state == "left":
                reason = "the cluster is open again"
                decision.move_node(node.node, "absent", reason)
    for name in started.nodes:
        if name not in decision.state.nodes:
            decision.add(r.NodeExpected(node=name))
    non_fatal.forget(decision)


def settle(decision: Decision) -> None:
    """Start missing agents, probe suspects, check and drain nodes where due, and count the spares."""
    state, cluster = decision.state, decision.policy.cluster
    room = admission_checks.room(state)
    for node in state.nodes.values():
        if node.state in SETTLED and node.pending_drain is None:
            # The fast path: this runs after every input, over thousands of nodes.
            continue
        if node.pending_drain is not None:
            drain.settle(decision, node)
        elif node.state == "checking" and not state.closing:
            if room > 0:
                room -= admission_checks.settle(decision, node)
        elif node.state == "absent" and not state.closing:
            _start(decision, node)
        if is_suspect(node) and decision.now >= next_probe_at(node, cluster):
            probe(decision, node, reason="still suspect")
    if not decision.records:
        spares.settle(decision)


def _start(decision: Decision, node: Node) -> None:
    if not decision.state.open_actions("start_agent", node=node.node):
        decision.issue(StartAgent(node=node.node), "the cluster has this node")


def settle_closing(decision: Decision) -> None:
    """End all agents once no run has a live attempt."""
    state = decision.state
    busy = [
        run
        for run in state.runs.values()
        if run.attempt is not None and run.attempt.state != "ended"
    ]
    if not state.closing or busy:
        return
    for node in state.nodes.values():
        if not has_left(node) and not state.open_actions("stop_agent", node=node.node):
            decision.issue(StopAgent(node=node.node), "the cluster shuts down")
    request = state.requests.get(state.closing_request)
    if _is_empty(state) and request is not None and request.state == "open":
        decision.answer(request, "done", "shut down")


def has_closed(state: State) -> bool:
    """Whether the cluster has shut down completely; the next supervisor opens it again."""
    is_answered = all(request.state != "open" for request in state.requests.values())
    return state.closing and is_answered and _is_empty(state) and not state.actions


def _is_empty(state: State) -> bool:
    return all(has_left(node) for node in state.nodes.values())


def on_agent_stopped(decision: Decision, action: Action, result: ActionResult) -> None:
    """Count a node as left once its provider has ended it, whether or not its agent reported it."""
    node = decision.state.nodes.get(action.read(StopAgent).node)
    if node is None or has_left(node):
        return
    if node.ranks_may_run is not None and result.outcome == "done":
        decision.add(
            r.NodeCleared(node=node.node, attempt=node.ranks_may_run, confirmed_by="probe")
        )
    drain.agent_ended(decision, node, reason=result.message or "the cluster shut down")


def on_agent_started(decision: Decision, action: Action, result: ActionResult) -> None:
    """Give up a node whose agent could not be started; one that started joins by itself."""
    work = action.read(StartAgent)
    node = decision.state.nodes.get(work.node)
    if node is None or decision.state.closing:
        return
    evidence = f"start_agent {result.outcome}: {result.message}"
    # An operator readmitted the node.
    if work.request is not None and result.outcome != "done":
        decision.page(f"{node.node}: {evidence}")
    if node.state in ("lost", "left"):
        return
    if result.outcome == "done":
        if node.state == "absent":
            decision.move_node(node.node, "joining", result.message)
        return
    if node.state == "absent":
        decision.move_node(node.node, "lost", evidence)
        decision.page(f"{node.node}: {evidence}")
        return
    known = incident_about(decision, node, None)
    if known is not None:
        decision.amend(known, evidence)
        respond(decision, known, reason=evidence)
