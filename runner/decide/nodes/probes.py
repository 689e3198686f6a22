"""Probes: a silent node is probed from outside before it is given up, and the result of the probe decides the rung."""

from msgspec.structs import replace

from runner.decide.decision import Decision
from runner.decide.incidents.attribution import report_failure, respond_or_stop
from runner.decide.incidents.diagnosis import diagnose, is_echo, is_same, verdict_on
from runner.decide.incidents.ladder import respond
from runner.decide.nodes import failure_domains
from runner.decide.nodes.predicates import free_state, is_suspect, live_attempt
from runner.decide.state.cluster_state import GONE, LAUNCHED, RUNNING, Attempt, Incident, Node
from runner.facts.actions import Action, ActionResult, ProbeNode, StartAgent
from runner.facts.causes import Cause, Culprit
from runner.facts.faults import (
    CorrelatedSilence,
    DomainSilence,
    Finding,
    GangStillStepping,
    HeartbeatResumed,
)
from runner.facts.messages import records as r
from runner.facts.messages.signals import DevicesReleased
from runner.facts.specs.cluster import ClusterSpec

# In a row that find a live agent without heartbeats, one that does not clear its node, or none that starts: then the node is given
# up; chosen.
MAX_PROBES = 3
# In a row that do not reach a node, before it is given up: by the second probe, nodes that fell silent with it are known.
MIN_UNREACHABLE = 2
# Fewer silent nodes no longer count as correlated; chosen, not measured.
MIN_CORRELATED = 3


def on_node_silent(decision: Decision, finding: Finding) -> None:
    """Probe a silent node, and open the incident that the probe will decide."""
    node = decision.state.nodes.get(finding.node or "")
    if node is None or not (
        node.state in ("joining", "checking", "spare", "active") or node.devices_busy
    ):
        return
    decision.move_node(node.node, "suspect", finding.evidence)
    attempt = live_attempt(decision, node)
    if attempt is None:
        decision.open_incident(replace(finding, attempt=None))
    elif attempt.state in RUNNING:
        of_attempt = replace(finding, attempt=attempt.attempt)
        report_failure(decision, of_attempt, mark=f"node_silent:{node.node}")
    probe(decision, node, reason=finding.evidence)


def on_domain_silence(decision: Decision, silence: DomainSilence) -> None:
    """Probe all nodes of a silent domain."""
    for node in failure_domains.on_domain_silence(decision, silence):
        probe(decision, node, reason=f"{silence.domain} {silence.name} is silent")


def on_gang_still_stepping(decision: Decision, finding: GangStillStepping) -> None:
    """Record that silent nodes have live ranks: a probe that does not reach them does not give them up."""
    nodes = [decision.state.nodes[name] for name in finding.nodes if name in decision.state.nodes]
    named = [n.node for n in nodes if is_suspect(n) and n.attempt == finding.attempt]
    if named:
        decision.add(
            r.GangSteppedOn(
                attempt=finding.attempt,
                nodes=tuple(named),
                step=finding.step,
                step_seconds=finding.step_seconds,
            )
        )


def on_heartbeat_resumed(decision: Decision, resumed: HeartbeatResumed) -> None:
    """Trust a suspect node again; one that was given up comes back by its checks."""
    node = decision.state.nodes.get(resumed.node)
    if node is None or resumed.incarnation != node.incarnation:
        return
    cluster = decision.policy.cluster
    clear = node.ranks_may_run is None and node.attempt is None and not node.left_behind
    if node.state == "lost" and clear:
        free = free_state(cluster, unchecked=True)
        decision.move_node(node.node, free, "heartbeats resumed, node is clear")
    leave_correlated_silence(decision, node)
    if node.state != "suspect" or node.devices_busy:
        return
    free = free_state(cluster, unchecked=node.unchecked)
    state: r.NodeStateName = "active" if node.attempt is not None else free
    decision.move_node(node.node, state, "heartbeats resumed")
    for incident in decision.state.live_incidents(fault="node_silent", node=node.node):
        is_idle = incident.run is None and incident.rungs_taken[-1:] == ["start_agent"]
        if is_idle or not incident.rungs_taken:
            decision.move_incident(incident, "resolved", "heartbeats resumed")


def on_devices_released(decision: Decision, released: DevicesReleased) -> None:
    """Take a node back whose devices were busy."""
    node = decision.state.nodes.get(released.node)
    if node is not None and node.devices_busy and released.incarnation == node.incarnation:
        state: r.NodeStateName = "active" if node.attempt is not None else "spare"
        decision.move_node(node.node, state, "its devices are free again")


def on_correlated_silence(decision: Decision, silence: CorrelatedSilence) -> None:
    """Record a correlated silence; no action is taken on its nodes."""
    if list(silence.nodes) == decision.state.correlated_silence:
        return
    decision.add(r.CorrelatedSilenceRecorded(nodes=silence.nodes))
    if silence.nodes and not decision.state.correlated_silence:
        names = ", ".join(silence.nodes)
        decision.page(
            f"{len(silence.nodes)} nodes are silent at the same time ({names}): suspecting the store or the fabric, not the nodes"
        )


def leave_correlated_silence(decision: Decision, node: Node) -> None:
    """Remove a node from a correlated silence; below MIN_CORRELATED the rest no longer counts as one."""
    silent = decision.state.correlated_silence
    if node.node in silent:
        rest = tuple(name for name in silent if name != node.node)
        decision.add(r.CorrelatedSilenceRecorded(nodes=rest if len(rest) >= MIN_CORRELATED else ()))


def next_probe_at(node: Node, cluster: ClusterSpec) -> float:
    """Return when a suspect node is to be probed again: soon after the first probe that did not reach it."""
    soon, timeout_seconds = 2 * cluster.heartbeat_seconds, cluster.heartbeat_timeout_seconds
    return node.probed_at + (soon if 0 < node.unreachable < MIN_UNREACHABLE else timeout_seconds)


def probe(decision: Decision, node: Node, *, reason: str) -> None:
    """Issue a probe of a node, one at a time."""
    if not decision.state.open_actions("probe_node", node=node.node):
        deadline = decision.policy.cluster.probe_seconds
        decision.issue(ProbeNode(node=node.node), reason, deadline_seconds=deadline)


def on_probed(decision: Decision, action: Action, result: ActionResult) -> None:
    """Judge the result of a probe."""
    node = decision.state.nodes.get(action.read(ProbeNode).node)
    if node is None or node.state in GONE:
        return
    clearing_since = _clearing_since(decision, node)
    if not is_suspect(node) and clearing_since is None:
        # Its heartbeats resumed, or it has joined again: the result is stale.
        return
    detail, is_reachable = result.detail, bool(result.detail.get("reachable"))
    agent = detail.get("agent") if result.outcome == "done" else None
    if agent == "alive":
        patience = MAX_PROBES * decision.policy.cluster.heartbeat_timeout_seconds
        if not is_suspect(node) and decision.now < (clearing_since or 0.0) + patience:
            # It may still be ending its ranks.
            return
        if is_suspect(node) and node.probes < MAX_PROBES:
            decision.move_node(node.node, "suspect", "probe: agent alive but no heartbeat")
            return
    if agent == "dead" and detail.get("keeper") == "alive":
        _on_agent_dead(decision, node, f"probe: agent of {node.node} dead, keeper alive")
    elif is_reachable:
        if not detail.get("ranks_alive"):
            decision.clear_node(node, by_probe=True)
        on_node_dead(decision, node, f"probe: {node.node} {_describe(result)}")
    elif _may_be_correlated(decision, node):
        return
    elif _gang_still_steps(decision, node):
        _keep_in_service(decision, node)
    else:
        on_node_dead(decision, node, f"probe: {node.node} {_describe(result)}")


def _may_be_correlated(decision: Decision, node: Node) -> bool:
    """Whether other nodes are silent too, or may be: each has the silence limit and one more heartbeat to show it."""
    state, cluster = decision.state, decision.policy.cluster
    if failure_domains.domain_of(state, node):
        return node.node in state.correlated_silence
    known_at = state.receiving_since + cluster.heartbeat_timeout_seconds + cluster.heartbeat_seconds
    soon = node.unreachable + 1 < MIN_UNREACHABLE or decision.now < known_at
    return node.node in state.correlated_silence or soon


def _gang_still_steps(decision: Decision, node: Node) -> bool:
    """Whether its gang was seen to step not long ago: a synchronous gang that steps has all its ranks.

    Long steps are no evidence either way, so an observation counts for two more of them.
    """
    attempt = decision.state.attempt_of(node.attempt)
    if node.gang_stepped_at is None or attempt is None or not is_suspect(node):
        return False
    limit = 2 * (decision.policy.cluster.heartbeat_timeout_seconds + node.gang_step_seconds)
    return attempt.state in LAUNCHED and decision.now < node.gang_stepped_at + limit


def _keep_in_service(decision: Decision, node: Node) -> None:
    """Keep an unreachable node in service, and page the operator, again after each hard cap."""
    paged_at, pause_seconds = node.kept_in_service_at, decision.policy.cluster.hard_cap_seconds
    if paged_at is not None and decision.now < paged_at + pause_seconds:
        return
    decision.add(r.NodeKeptInService(node=node.node))
    attempt = live_attempt(decision, node)
    incident = incident_about(decision, node, attempt)
    decision.page(
        f"no heartbeat from {node.node}, but its gang still steps; its agent died or cannot reach the store: "
        f"restart its agent (`systemctl restart stoker-agent@{node.node}`)",
        run=attempt.attempt.run if attempt else None,
        incident=incident.incident if incident else None,
    )


def _describe(result: ActionResult) -> str:
    if result.outcome != "done" or not result.detail.get("reachable"):
        return f"not reachable {result.message}".rstrip()
    parts = [f"{what} {result.detail.get(what)}" for what in ("agent", "keeper")]
    return ", ".join(parts) + f", ranks alive {list(result.detail.get('ranks_alive') or [])}"


def _clearing_since(decision: Decision, node: Node) -> float | None:
    """Return since when the node is to confirm that it is clear of an ending attempt; None: it is not to."""
    attempt = decision.state.attempt_of(node.ranks_may_run)
    return attempt.stopping_at if attempt is not None and attempt.state == "stopping" else None


def _on_agent_dead(decision: Decision, node: Node, evidence: str) -> None:
    """Answer the death of an agent whose keeper and ranks live on."""
    attempt = live_attempt(decision, node)
    if attempt is not None and attempt.state == "stopping":
        decision.issue(StartAgent(node=node.node), evidence, incident=attempt.incident)
    else:
        respond(decision, _amended(decision, node, "agent_only", evidence), reason=evidence)


def on_node_dead(decision: Decision, node: Node, evidence: str) -> None:
    """Answer the death of a node, unless its failure domain is down with it."""
    if failure_domains.give_up(decision, node, evidence=evidence):
        return
    attempt = live_attempt(decision, node)
    incident = _amended(decision, node, "node_dead", evidence)
    if attempt is not None and attempt.state in RUNNING:
        respond_or_stop(decision, attempt, incident, reason=evidence)
    else:
        respond(decision, incident, reason=evidence)
    run = decision.state.runs.get(incident.run or 0)
    if (run is None or not run.is_wanted) and decision.is_live(incident):
        whose = (
            "an idle node" if run is None else f"a node of run {run.run}, which has {run.state},"
        )
        decision.move_incident(incident, "resolved", f"{whose} left the pool")


def _amended(decision: Decision, node: Node, condition: str, evidence: str) -> Incident:
    """Return the incident about a node's silence, open or opened now, with what a probe found."""
    fault, mark, attempt = "node_silent", f"node_silent:{node.node}", live_attempt(decision, node)
    known = incident_about(decision, node, attempt)
    if known is None:
        run = decision.run_of(attempt.attempt) if attempt else None
        known = decision.open_incident(
            Finding(
                fault=fault,
                evidence=evidence,
                attempt=attempt.attempt if attempt else None,
                node=node.node,
            ),
            run=run.run if run else None,
            fingerprint=mark,
            step=run.best_step if run else None,
        )
    found = {"fault": fault, "node": node.node, "condition": condition}
    amended = decision.amend(known, evidence, **found, fingerprint=mark)
    if condition == "node_dead":
        amended = _explain_death(decision, amended, node, evidence)
    # Each dead node is swapped by itself: others that died with it do not use up its tries.
    is_another = condition == "node_dead" and known.node != node.node
    if known.fault != fault or is_another:
        return replace(amended, rung=-1, tries=0)
    return amended


def _explain_death(decision: Decision, incident: Incident, node: Node, evidence: str) -> Incident:
    """Correct a cause that was judged by lines of other nodes: they only lost their peer. Lines of its own hardware count."""
    if incident.cause is None:
        return incident
    own = [match for match in incident.matches if not is_echo(match, incident)]
    verdict = verdict_on(own)
    cause = Cause(
        fault=incident.fault,
        scope="node",
        culprit=Culprit(kind="node", id=node.node),
        node=node.node,
        confidence=1.0,
        action_class="swap",
        lines=(evidence,),
    )
    if verdict is not None:
        cause = verdict.cause
    return incident if is_same(cause, incident.cause) else diagnose(decision, incident, cause, ())


def incident_about(
    decision: Decision, node: Node, attempt: Attempt | None = None
) -> Incident | None:
    """Return the live incident that evidence about a node belongs to: the run's governing one, or the node's own."""
    run = decision.run_of(attempt.attempt) if attempt else None
    governing = decision.state.incidents.get(run.incident or "") if run else None
    if governing is not None and governing.is_live:
        return governing
    # One that a run has an answer to, and only proves, is not about a node which that run has left.
    of_node = decision.state.live_incidents(node=node.node, non_fatal=False)
    return next((each for each in of_node if each.run is None or each.state != "proving"), None)
