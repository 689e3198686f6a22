"""The life cycle of nodes, and agents that are started and ended.

How a node joins is in `join`, silent nodes in `probes`, checks in `admission_checks`, the way out of service and back in
`drain`, its machine in `hardware`.
"""

from runner.decide.decision import Decision
from runner.decide.incidents import non_fatal
from runner.decide.incidents.attribution import report_failure
from runner.decide.incidents.ladder import respond
from runner.decide.nodes import drain, spares
from runner.decide.nodes.checks import admission_checks, requested_checks, spare_checks
from runner.decide.nodes.isolation import driver as isolations
from runner.decide.nodes.predicates import has_left, is_suspect, live_attempt
from runner.decide.nodes.probes import MAX_PROBES, next_probe_at, on_node_dead, probe
from runner.decide.runs.endings import end_attempt
from runner.decide.state.cluster_state import GONE, RUNNING, Node, State
from runner.facts.actions import Action, ActionResult, StartAgent, StopAgent
from runner.facts.faults import Finding
from runner.facts.messages import records as r
from runner.facts.wording import join_words

# States in which nothing is due by itself.
SETTLED = ("spare", "active", *GONE)


def on_supervisor_started(decision: Decision, started: r.SupervisorStarted) -> None:
    """Expect the nodes that providers can start; a cluster that was shut down is open again."""
    if has_closed(decision.state):
        decision.add(r.ClusterReopened())
        for node in decision.state.nodes.values():
            if node.state == "left":
                decision.move_node(node.node, "absent", "the cluster is open again")
    for name in started.nodes:
        if name not in decision.state.nodes:
            decision.add(r.NodeExpected(node=name))
    non_fatal.forget(decision, started.learned_runs)
    in_service = [
        node
        for node in decision.state.nodes.values()
        if node.node in started.nodes and node.state not in ("absent", *GONE)
    ]
    if all(node.node in started.down for node in in_service):
        _start_again(decision, in_service)


def _start_again(decision: Decision, nodes: list[Node]) -> None:
    """Start nodes whose processes have all ended, each with its checks; their gangs are over."""
    evidence = f"no process of {join_words([node.node for node in nodes])} is left"
    attempts = [live_attempt(decision, node) for node in nodes]
    for attempt in {each.attempt: each for each in attempts if each is not None}.values():
        if attempt.state in RUNNING:
            down = Finding(fault="nodes_down", evidence=evidence, attempt=attempt.attempt)
            report_failure(decision, down)
        else:
            end_attempt(decision, decision.run_of(attempt.attempt), outcome="lost", reason=evidence)
    for node in nodes:
        decision.clear_node(node, by_probe=True)
        decision.move_node(node.node, "absent", evidence)


def revive(decision: Decision, *, reason: str) -> bool:
    """Start the agents of lost nodes again, once for each time in service; return whether there are any."""
    lost = [
        node
        for node in decision.state.nodes.values()
        if node.state == "lost" and node.provided and not node.revived and not node.domain_down
    ]
    for node in lost:
        decision.move_node(node.node, "absent", reason)
    return bool(lost)


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
            if room > 0 and not isolations.is_measured(state, node):
                room -= admission_checks.settle(decision, node)
        elif node.state == "absent" and not state.closing:
            _start(decision, node)
        if is_suspect(node) and decision.now >= next_probe_at(node, cluster):
            probe(decision, node, reason="still suspect")
    if not decision.records:
        spares.settle(decision)
    if not decision.records:
        spare_checks.settle(decision)
    if not decision.records:
        requested_checks.settle(decision)
    if not decision.records:
        _close_silences(decision)


def _close_silences(decision: Decision) -> None:
    """Resolve what is open about an idle node that was silent and has left service meanwhile: nothing probes it any more."""
    for incident in decision.state.live_incidents(fault="node_silent", run=None):
        node = decision.state.nodes.get(incident.node or "")
        if node is not None and node.state in GONE:
            decision.move_incident(incident, "resolved", f"{node.node} is {node.state}")


def _start(decision: Decision, node: Node) -> None:
    if not decision.state.is_open("start_agent", node.node):
        decision.issue(StartAgent(node=node.node), "the cluster has this node")


def settle_closing(decision: Decision) -> None:
    """End all agents once no run has a live attempt."""
    state = decision.state
    attempts = [run.attempt for run in state.runs.values() if run.attempt is not None]
    if not state.closing or any(attempt.state != "ended" for attempt in attempts):
        return
    for node in state.nodes.values():
        # What ends a node sees only what runs: an agent that is being started is ended afterwards.
        is_starting = state.is_open("start_agent", node.node)
        if not (has_left(node) or is_starting or state.is_open("stop_agent", node.node)):
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
    if result.outcome == "done":
        decision.clear_node(node, by_probe=True)
    drain.agent_ended(decision, node, reason=result.message or "the cluster shut down")


def on_agent_started(decision: Decision, action: Action, result: ActionResult) -> None:
    """Give up a node whose agent could not be started; one that started joins by itself."""
    work = action.read(StartAgent)
    node = decision.state.nodes.get(work.node)
    if node is None:
        return
    if node.state == "retired" or (decision.state.closing and has_left(node)):
        if not decision.state.is_open("stop_agent", node.node):
            decision.issue(StopAgent(node=node.node), "it was to end while its agent was started")
        return
    if decision.state.closing:
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
    elif node.state == "absent":
        decision.move_node(node.node, "lost", evidence)
        decision.page(f"{node.node}: {evidence}")
    elif is_suspect(node):
        # No other failure is answered by this; and of a node that is back, it is stale.
        silent = decision.state.live_incidents(fault="node_silent", node=node.node)
        if (known := next(silent, None)) is not None:
            decision.amend(known, evidence)
            respond(decision, known, reason=evidence)
        elif node.probes < MAX_PROBES:
            decision.move_node(node.node, "suspect", evidence)
        else:
            on_node_dead(decision, node, evidence)
