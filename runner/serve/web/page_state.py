"""The published status -> what the page shows: plain objects by section and name, small enough to send whenever one changes.

What changes with every heartbeat and means nothing (ages, memory) is left out, so that a fleet at rest costs nothing. Text from
outside is cut and has no control characters.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from runner.facts.messages.cluster_status import (
    ClusterStatus,
    IncidentStatus,
    NodeStatus,
    ProposalStatus,
)
from runner.facts.wording import printable, printable_words
from runner.serve.status_words import (
    PLAIN_STATES,
    incident_fault,
    is_open,
    ranks_text,
)
from runner.serve.web.page_item import MAX_NAME, MAX_TEXT, PageSection, place_of
from runner.serve.web.run_items import newest_restarts, run_item

# Older incidents are in `stoker incidents`; chosen.
MAX_INCIDENTS = 100
# A node that reported nothing for so long has no news of its own; chosen.
SILENT_SECONDS = 15.0
# In which it neither serves nor is refused: on its way in, or out in order.
PASSING_STATES = ("absent", "joining", "checking", "maintenance", "left", "retired")


def sections(status: ClusterStatus) -> dict[str, PageSection]:
    """Return what the page has of a status, by the names of sections."""
    runs = {str(run.run): run for run in status.runs}
    restarts = newest_restarts(status)
    incidents = {one.incident: one for one in status.incidents[:MAX_INCIDENTS]}
    proposals = {one.action: one for one in status.proposals}
    nodes = {node.node: node for node in status.nodes}
    return {
        "runs": PageSection(
            {name: (run, restarts.get(run.run)) for name, run in runs.items()},
            lambda name: run_item(runs[name], restarts.get(runs[name].run)),
        ),
        "incidents": PageSection(incidents, lambda name: _incident(incidents[name])),
        "proposals": PageSection(proposals, lambda name: _proposal(proposals[name])),
        "nodes": PageSection(_node_keys(nodes), lambda name: _node(nodes[name])),
    }


def head(status: ClusterStatus) -> dict[str, Any]:
    """Return what is true of the whole cluster."""
    return {
        "cluster": status.cluster,
        "now": status.now,
        "closing": status.closing,
        "notes": _notes(status),
        "spares": _spares_text(status),
        "nodes": dict(Counter(node.state for node in status.nodes).most_common()),
    }


def _notes(status: ClusterStatus) -> list[str]:
    """List what is wrong with the cluster as a whole."""
    notes = [f"store: {printable(status.store_note)}"] if status.store_note else []
    for domain, fallen in status.domains_down.items():
        names = printable_words(fallen)
        notes.append(f"{printable(domain, MAX_NAME)} is down, its nodes are not suspected: {names}")
    if status.pages is not None and status.pages.problem:
        waiting = f"{status.pages.waiting} wait; " if status.pages.waiting else ""
        notes.append(f"pages do not get through: {waiting}{printable(status.pages.problem)}")
    if status.unsigned:
        notes.append("messages are not signed: any process that reaches the store is obeyed")
    if status.decision_failures:
        notes.append(f"{status.decision_failures} of Stoker's own decisions failed")
    return notes


def _spares_text(status: ClusterStatus) -> str:
    pool = status.pool
    if pool is None:
        return ""
    text = f"{pool.spares} spare{'' if pool.spares == 1 else 's'}"
    if pool.recommended is not None:
        text += f", {pool.recommended} recommended"
    return f"spares are low: {text}" if pool.low else text


# ---- incidents ------------------------------------------------------------------------------------------------------


def _incident(incident: IncidentStatus) -> dict[str, Any]:
    return {
        "incident": incident.incident,
        "version": incident.version,
        "state": incident.state,
        "open": is_open(incident),
        "fault": incident_fault(incident),
        "where": place_of(incident),
        "run": incident.run,
        "step": incident.step,
        "opened_at": incident.opened_at,
        "closed_at": incident.closed_at,
        "recovered": incident.recovered_after_seconds,
        "steps_lost": incident.steps_lost,
        "done": list(incident.rungs),
        "why": printable(incident.reason or next(iter(incident.evidence), ""), MAX_TEXT),
        "acknowledged_by": printable(incident.acknowledged_by, MAX_NAME),
        "page": printable(incident.page, MAX_NAME),
    }


def incident_detail(incident: IncidentStatus) -> dict[str, Any]:
    """Return what an opened incident shows besides its line: cause, the lines behind it, evidence and events."""
    cause, lines = incident.cause, list[str]()
    if cause is not None:
        whose = (
            f", {cause.culprit.kind} {printable(cause.culprit.id, MAX_NAME)}"
            if cause.culprit
            else ""
        )
        where = f" on {printable(cause.node, MAX_NAME)}" if cause.node else ""
        text = f"{cause.fault}{whose}{where}, {cause.confidence:.0%} sure"
        lines = [printable(line, MAX_TEXT) for line in cause.lines]
    else:
        text = (
            "unknown; the run goes on"
            if incident.non_fatal
            else "unknown: no known line in the output of its ranks"
        )
    return {
        "incident": incident.incident,
        "cause": text,
        "cause_fault": incident.fault if cause is None else cause.fault,
        "lines": lines,
        "evidence": [printable(line, MAX_TEXT) for line in incident.evidence],
        "events": [printable(event, MAX_TEXT) for event in incident.events],
        "reason": printable(incident.reason, MAX_TEXT),
    }


# ---- proposals and nodes --------------------------------------------------------------------------------------------


def _proposal(proposal: ProposalStatus) -> dict[str, Any]:
    return {
        "action": proposal.action,
        "run": proposal.run,
        "incident": proposal.incident,
        "text": printable(proposal.text, MAX_TEXT),
        "reason": printable(proposal.reason, MAX_TEXT),
        "since": proposal.since,
    }


# All that the page shows of a node, but its last heartbeat.
_NODE_KEY = attrgetter(
    "state",
    "since",
    "reason",
    "attempt",
    "ranks_alive",
    "hardware_faults",
    "domain",
    "domain_down",
    "pending_drain",
    "shortage",
    "clock_ahead_seconds",
)


def _node_keys(nodes: Mapping[str, NodeStatus]) -> dict[str, object]:
    """Return the key of each node; thousands of them cost the most of an update."""
    keys: dict[str, object] = dict(zip(nodes, map(_NODE_KEY, nodes.values()), strict=True))
    for name in [name for name, node in nodes.items() if _is_silent(node)]:
        keys[name] = keys[name], "silent"
    return keys


def _is_silent(node: NodeStatus) -> bool:
    return (node.last_heartbeat_seconds_ago or 0.0) > SILENT_SECONDS


def _node(node: NodeStatus) -> dict[str, Any]:
    why = _node_notes(node)
    return {
        "state": node.state,
        "health": _health(node, why),
        "since": node.since,
        "attempt": str(node.attempt or ""),
        "ranks": printable(ranks_text(node.ranks_alive), MAX_NAME) if node.ranks_alive else "",
        "domain": printable(node.domain, MAX_NAME),
        "why": printable("; ".join(why), MAX_TEXT),
    }


def _node_notes(node: NodeStatus) -> list[str]:
    drain, ahead = node.pending_drain, node.clock_ahead_seconds
    notes = [f"leaves for {drain.to}{f': {drain.reason}' if drain.reason else ''}"] if drain else []
    notes += [f"down with {node.domain_down}"] if node.domain_down else []
    if node.state == "active" and _is_silent(node):
        notes.append(f"no heartbeat for {SILENT_SECONDS:g} s")
    notes += [f"clock {abs(ahead):.0f} s {'ahead' if ahead > 0 else 'behind'}"] if ahead else []
    notes += [f"short: {node.shortage}"] if node.shortage else []
    faults = node.hardware_faults
    notes += [f"{faults} hardware fault{'' if faults == 1 else 's'}"] if faults else []
    return [*notes, node.reason] if node.reason and node.state not in PLAIN_STATES else notes


def _health(node: NodeStatus, notes: Sequence[str]) -> str:
    """Return "ok", "notice" (it serves, with something to know), "passing" (on its way in or out) or "out"."""
    if node.state in PLAIN_STATES:
        return "notice" if notes else "ok"
    return "passing" if node.state in PASSING_STATES else "out"
