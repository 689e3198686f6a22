"""The fleet: nodes join, fall silent, are looked at from outside, and leave.

A silent node is never blamed on silence alone: it is probed first, and what the probe finds decides the rung.
"""

from __future__ import annotations

from dataclasses import replace

from runner.decide.blame import strike
from runner.decide.draft import Draft
from runner.decide.ladder import respond
from runner.decide.state import Attempt, Incident, Node, Run
from runner.facts import records as r
from runner.facts.actions import Action, ActionResult
from runner.facts.cluster_spec import ClusterSpec
from runner.facts.faults import Finding, MassSilence, NodeHeard
from runner.facts.signals import DevicesReleased, NodeJoined, NodeLeft

LIVE = ("preparing", "prepared", "launching", "running", "asked", "stopping")
# In a row that find a living agent which is not heard, or does not clear its node: then the node is given up; chosen.
MAX_PROBES = 3
# In a row that do not reach a node, before it is blamed: by the second look, whoever fell silent with it is known to be.
MIN_UNREACHABLE = 2
MIN_CROWD = (
    3  # fewer silent nodes than that are not silent "together" any more; chosen, not measured
)


# The node's life cycle, checked in tests against every NodeChanged that the scenarios make; ARCHITECTURE.md prints it.
TRANSITIONS: dict[str, tuple[str, ...]] = {
    "absent": ("joining", "spare", "lost", "left"),
    "joining": ("spare", "suspect", "lost", "left"),
    "spare": ("active", "suspect", "lost", "left"),
    "active": ("spare", "suspect", "lost", "left"),
    "suspect": ("spare", "active", "suspect", "lost", "left"),
    "lost": ("spare", "active", "left"),
    "left": ("absent", "spare", "active"),
}


def on_supervisor_started(draft: Draft, started: r.SupervisorStarted) -> None:
    """Expect the nodes our places can start; a cluster that had shut down is open again."""
    nodes = draft.state.nodes.values()
    request = draft.state.requests.get(draft.state.closing_request)
    answered = request is None or request.state != "open"  # else the shutdown has yet to end
    if draft.state.closing and answered and all(node.state == "left" for node in nodes):
        draft.add(r.Opened())
        for node in nodes:
            draft.add(
                r.NodeChanged(node=node.node, state="absent", reason="the cluster is open again")
            )
    for name in started.nodes:
        if name not in draft.state.nodes:
            draft.add(r.NodeExpected(node=name))


def on_node_joined(draft: Draft, joined: NodeJoined) -> None:
    """Take a node in, or take it back: what runs there is what it says, not what we last believed."""
    node = draft.state.nodes.get(joined.node)
    if node is not None and joined.incarnation <= node.incarnation:
        return
    draft.add(
        r.NodeRegistered(
            node=joined.node,
            incarnation=joined.incarnation,
            hardware=joined.hardware,
            slots=joined.slots,
            address=joined.address,
            pid=joined.pid,
        )
    )
    # An agent that names an attempt has found its keeper; ranks that ended meanwhile it will tell of one by one.
    adopted = joined.attempt is not None and node is not None and joined.attempt == node.attempt
    if node is not None and node.uncleared is not None and joined.attempt is None:
        draft.add(r.NodeCleared(node=joined.node, attempt=node.uncleared))
    if node is not None:
        _leave_crowd(draft, node)
    if node is None or node.state != "active" or not adopted:
        _place(draft, joined, node, adopted=adopted)
    for incident in draft.state.incidents.values():
        about = incident.is_live and incident.node == joined.node
        answered = incident.fault == "node_silent" and incident.did[-1:] in ([], ["start_agent"])
        if about and answered and (adopted or incident.run is None):
            reason = "ranks adopted" if adopted else "joined again"
            draft.add(
                r.IncidentChanged(incident=incident.incident, state="resolved", reason=reason)
            )


def _place(draft: Draft, joined: NodeJoined, node: Node | None, *, adopted: bool) -> None:
    """Say what the joined node is now: serving on, or free; and that its ranks died when they did."""
    if adopted:
        draft.add(
            r.NodeChanged(node=joined.node, state="active", reason="agent back, ranks adopted")
        )
        return
    live = live_attempt(draft, node) if node is not None else None
    if live is not None and node is not None and node.attempt is not None:
        run, attempt = live
        if attempt.state in ("running", "launching") and node.node in attempt.launched:
            if node.state != "active":
                reason = "agent back without its ranks"
                draft.add(r.NodeChanged(node=node.node, state="active", reason=reason))
            evidence = f"{node.node} came back (incarnation {joined.incarnation}) without its ranks"
            strike(draft, run, attempt, fault="rank_crash", evidence=evidence, node=node.node)
        return
    if node is None or node.state != "spare":
        reason = f"joined, incarnation {joined.incarnation}"
        draft.add(r.NodeChanged(node=joined.node, state="spare", reason=reason))


def on_node_left(draft: Draft, left: NodeLeft) -> None:
    """A node leaves on purpose; a gang that it served is ended like after any loss."""
    node = draft.state.nodes.get(left.node)
    if node is None or left.incarnation < node.incarnation or node.state == "left":
        return
    draft.add(r.NodeChanged(node=left.node, state="left", reason="its agent was told to end"))
    if node.uncleared is not None:
        draft.add(r.NodeCleared(node=node.node, attempt=node.uncleared))
    live = live_attempt(draft, node)
    if live is not None and live[1].state in ("launching", "running") and not draft.state.closing:
        evidence = f"{node.node} left on purpose"
        strike(draft, live[0], live[1], fault="rank_crash", evidence=evidence, node=node.node)


def on_node_silent(draft: Draft, finding: Finding) -> None:
    """Look at a silent node from outside, and open the incident that the look will decide."""
    node = draft.state.nodes.get(finding.node or "")
    if node is None or not (node.state in ("joining", "spare", "active") or node.held):
        return
    draft.add(r.NodeChanged(node=node.node, state="suspect", reason=finding.evidence))
    live = live_attempt(draft, node)
    if live is not None and live[1].state in ("launching", "running"):
        strike(
            draft,
            live[0],
            live[1],
            fault="node_silent",
            evidence=finding.evidence,
            node=node.node,
            fingerprint=f"node_silent:{node.node}",
            detected_after_seconds=finding.silent_seconds,
        )
    elif live is None:
        draft.open_incident(
            "node_silent",
            finding.evidence,
            node=node.node,
            detected_after_seconds=finding.silent_seconds,
        )
    probe(draft, node, reason=finding.evidence)


def on_node_heard(draft: Draft, heard: NodeHeard) -> None:
    """A suspect node speaks again."""
    node = draft.state.nodes.get(heard.node)
    if node is None or heard.incarnation != node.incarnation:
        return
    clear = node.uncleared is None and node.attempt is None and not node.left_behind
    if node.state == "lost" and clear:
        draft.add(r.NodeChanged(node=node.node, state="spare", reason="heard again, and clear"))
    _leave_crowd(draft, node)
    if node.state != "suspect" or node.held:
        return
    state: r.NodeStateName = "active" if node.attempt is not None else "spare"
    draft.add(r.NodeChanged(node=node.node, state=state, reason="heard again"))
    for incident in draft.state.incidents.values():
        if (
            incident.is_live
            and incident.fault == "node_silent"
            and incident.node == node.node
            and not incident.did
        ):
            draft.add(
                r.IncidentChanged(
                    incident=incident.incident, state="resolved", reason="heard again"
                )
            )


def on_devices_released(draft: Draft, released: DevicesReleased) -> None:
    """Take a node back whose devices had been held."""
    node = draft.state.nodes.get(released.node)
    if node is None or not node.held or released.incarnation != node.incarnation:
        return
    state: r.NodeStateName = "active" if node.attempt is not None else "spare"
    draft.add(r.NodeChanged(node=node.node, state=state, reason="its devices are free again"))


def on_mass_silence(draft: Draft, silence: MassSilence) -> None:
    """Note that many nodes fell silent at once; the nodes themselves are left alone."""
    if list(silence.nodes) == draft.state.silent_en_masse:
        return
    draft.add(r.MassSilenceNoted(nodes=silence.nodes))
    if silence.nodes and not draft.state.silent_en_masse:
        names = ", ".join(silence.nodes)
        draft.page(
            f"{len(silence.nodes)} nodes fell silent together ({names}): store or fabric suspected, no node blamed"
        )


def _leave_crowd(draft: Draft, node: Node) -> None:
    """Take a node that was heard out of those that are silent together; a few are no crowd."""
    crowd = draft.state.silent_en_masse
    if node.node in crowd:
        rest = tuple(name for name in crowd if name != node.node)
        draft.add(r.MassSilenceNoted(nodes=rest if len(rest) >= MIN_CROWD else ()))


def is_in_doubt(node: Node) -> bool:
    """Whether it is not known to live: a look from outside is due from time to time. One that only lacks its devices speaks."""
    return node.state == "suspect" and not node.held


def look_again_at(node: Node, cluster: ClusterSpec) -> float:
    """Return when a suspect node is to be looked at again; soon, if it was out of reach for the first time."""
    first = 0 < node.unreachable < MIN_UNREACHABLE
    return node.probed_at + (2 * cluster.heartbeat_seconds if first else cluster.silence_seconds)


def probe(draft: Draft, node: Node, *, reason: str) -> None:
    """Ask for a look from outside, once at a time."""
    if not draft.state.open_actions("probe_node", node=node.node):
        deadline = draft.policy.cluster.probe_seconds
        draft.issue("probe_node", reason, args={"node": node.node}, deadline_seconds=deadline)


def on_probed(draft: Draft, action: Action, result: ActionResult) -> None:
    """Decide what a look from outside means."""
    node = draft.state.nodes.get(str(action.args.get("node")))
    if node is None or node.state in ("lost", "left"):
        return
    owes_since = _owes_since(draft, node)
    if not is_in_doubt(node) and owes_since is None:
        return  # it was heard meanwhile, or has joined anew: this look is old
    detail = result.detail
    if result.outcome == "done" and detail.get("agent") == "alive":
        patience = MAX_PROBES * draft.policy.cluster.silence_seconds
        if not is_in_doubt(node) and draft.now < (owes_since or 0.0) + patience:
            return  # it is heard, and may still be at it
        if is_in_doubt(node) and node.probes < MAX_PROBES:
            reason = "probe: agent alive but not heard"
            draft.add(r.NodeChanged(node=node.node, state="suspect", reason=reason))
            return
    if (
        result.outcome == "done"
        and detail.get("agent") == "dead"
        and detail.get("keeper") == "alive"
    ):
        _struck_by_probe(
            draft,
            node,
            condition="agent_only",
            evidence=f"probe: agent of {node.node} dead, keeper alive",
        )
        return
    if not detail.get("reachable") and _may_be_one_of_many(draft, node):
        return  # it proves nothing about this one
    evidence = f"probe: {node.node} {_found(result)}"
    if detail.get("reachable") and not detail.get("ranks_alive") and node.uncleared is not None:
        draft.add(r.NodeCleared(node=node.node, attempt=node.uncleared, seen_by="probe"))
    _struck_by_probe(draft, node, condition="node_dead", evidence=evidence)


def _may_be_one_of_many(draft: Draft, node: Node) -> bool:
    """Whether others are silent too, or may turn out to be: each has had the silence limit and one more heartbeat to show."""
    state, cluster = draft.state, draft.policy.cluster
    known_at = state.listening_since + cluster.silence_seconds + cluster.heartbeat_seconds
    soon = node.unreachable + 1 < MIN_UNREACHABLE or draft.now < known_at
    return node.node in state.silent_en_masse or soon


def _found(result: ActionResult) -> str:
    if result.outcome != "done" or not result.detail.get("reachable"):
        return f"not reachable {result.message}".rstrip()
    parts = [f"{what} {result.detail.get(what)}" for what in ("agent", "keeper")]
    return ", ".join(parts) + f", ranks alive {list(result.detail.get('ranks_alive') or [])}"


def _owes_since(draft: Draft, node: Node) -> float | None:
    """Return since when the node was to confirm that it is clear of an attempt that is ending; None if it is not."""
    attempt = draft.state.attempt_of(node.uncleared) if node.uncleared is not None else None
    return attempt.stopping_at if attempt is not None and attempt.state == "stopping" else None


def _struck_by_probe(draft: Draft, node: Node, *, condition: str, evidence: str) -> None:
    live = live_attempt(draft, node)
    run = live[0] if live else None
    if condition == "agent_only" and live is not None and live[1].state == "stopping":
        draft.issue("start_agent", evidence, args={"node": node.node}, incident=live[1].incident)
        return
    known = _incident_about(draft, node, run)
    if known is None:
        about = (
            {"run": run.run, "attempt": live[1].attempt, "step": run.best_step}
            if live and run
            else {}
        )
        known = draft.open_incident(
            "node_silent", evidence, node=node.node, fingerprint=f"node_silent:{node.node}", **about
        )
    draft.add(
        r.IncidentAmended(
            incident=known.incident,
            evidence=evidence,
            fault="node_silent",
            node=node.node,
            condition=condition,
            fingerprint=f"node_silent:{node.node}",
        )
    )
    fresh = known.fault != "node_silent"
    amended = replace(
        known,
        fault="node_silent",
        node=node.node,
        rank=None,
        condition=condition,
        rung=-1 if fresh else known.rung,
        tries=0 if fresh else known.tries,
    )
    respond(draft, amended, reason=evidence)
    if amended.run is None and condition == "node_dead" and draft.is_live(amended):
        draft.add(
            r.IncidentChanged(
                incident=amended.incident, state="resolved", reason="an idle node left the pool"
            )
        )


def _incident_about(draft: Draft, node: Node, run: Run | None) -> Incident | None:
    """Find the live incident this evidence belongs to: the run's governing one, or one about this node."""
    governing = draft.state.incidents.get(run.incident or "") if run else None
    if governing is not None and governing.is_live:
        return governing
    return next(
        (i for i in draft.state.incidents.values() if i.is_live and i.node == node.node), None
    )


def live_attempt(draft: Draft, node: Node) -> tuple[Run, Attempt] | None:
    """Return the run and attempt that this node serves or still has to be cleared of, while that attempt lives."""
    for name in (node.attempt, node.uncleared):
        attempt = draft.state.attempt_of(name) if name is not None else None
        if attempt is not None and attempt.state in LIVE and node.node in attempt.nodes:
            return draft.run_of(attempt.attempt), attempt
    return None


def settle(draft: Draft) -> None:
    """Start agents that are missing; end them when the cluster closes; look again at nodes that stay suspect."""
    state, cluster = draft.state, draft.policy.cluster
    for node in state.nodes.values():
        missing = node.state == "absent" and not state.closing
        if missing and not state.open_actions("start_agent", node=node.node):
            draft.issue("start_agent", "the cluster has this node", args={"node": node.node})
        if is_in_doubt(node) and draft.now >= look_again_at(node, cluster):
            probe(draft, node, reason="still suspect")


def settle_closing(draft: Draft) -> None:
    """End all agents once no run has a live attempt."""
    state = draft.state
    busy = [
        run
        for run in state.runs.values()
        if run.attempt is not None and run.attempt.state != "ended"
    ]
    if not state.closing or busy:
        return
    for node in state.nodes.values():
        if node.state != "left" and not state.open_actions("stop_agent", node=node.node):
            draft.issue("stop_agent", "the cluster shuts down", args={"node": node.node})
    everybody_left = all(node.state == "left" for node in state.nodes.values())
    request = state.requests.get(state.closing_request)
    if everybody_left and request is not None and request.state == "open":
        draft.add(
            r.RequestNoted(
                id=request.id,
                request=request.request,
                by=request.by,
                state="done",
                message="shut down",
            )
        )


def on_agent_stopped(draft: Draft, action: Action, result: ActionResult) -> None:
    """Count a node as left once its place has ended what was there, whether or not its agent could still say so."""
    node = draft.state.nodes.get(str(action.args.get("node")))
    if node is None or node.state == "left":
        return
    if node.uncleared is not None and result.outcome == "done":
        draft.add(r.NodeCleared(node=node.node, attempt=node.uncleared, seen_by="probe"))
    draft.add(
        r.NodeChanged(
            node=node.node, state="left", reason=result.message or "the cluster shut down"
        )
    )


def on_agent_started(draft: Draft, action: Action, result: ActionResult) -> None:
    """Give a node up whose agent could not be started; one that started will join and say so itself."""
    node = draft.state.nodes.get(str(action.args.get("node")))
    if node is None or draft.state.closing or node.state in ("lost", "left"):
        return
    if result.outcome == "done":
        if node.state == "absent":
            draft.add(r.NodeChanged(node=node.node, state="joining", reason=result.message))
        return
    evidence = f"start_agent {result.outcome}: {result.message}"
    if node.state == "absent":
        draft.add(r.NodeChanged(node=node.node, state="lost", reason=evidence))
        draft.page(f"{node.node}: {evidence}")
        return
    known = _incident_about(draft, node, None)
    if known is not None:
        draft.add(r.IncidentAmended(incident=known.incident, evidence=evidence))
        respond(draft, known, reason=evidence)
