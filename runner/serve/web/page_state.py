"""The published status -> what the page shows: plain objects by section and name, small enough to send whenever one changes.

What changes with every heartbeat and means nothing (ages, memory) is left out, so that a fleet at rest costs nothing. Text from
outside is cut and has no control characters.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from runner.facts.messages.cluster_status import (
    ClusterStatus,
    IncidentStatus,
    NodeStatus,
    ProposalStatus,
    RunStatus,
)
from runner.facts.remedies import REMEDIES
from runner.facts.wording import printable, printable_words

# Of one text; chosen.
MAX_TEXT = 240
MAX_NAME = 80
# Older incidents are in `stoker incidents`; chosen.
MAX_INCIDENTS = 100
# A node that reported nothing for so long has no news of its own; chosen.
SILENT_SECONDS = 15.0
OPEN_STATES = ("open", "acting", "proving")
# In which a node serves, or could.
PLAIN_STATES = ("active", "spare")
# In which it neither serves nor is refused: on its way in, or out in order.
PASSING_STATES = ("absent", "joining", "checking", "maintenance", "left", "retired")


class PageItem(NamedTuple):
    """One item of a section: a key that changes whenever the item does, and what makes the item."""

    key: object
    make: Callable[[], dict[str, Any]]


def items(status: ClusterStatus) -> dict[str, dict[str, PageItem]]:
    """Return section -> name -> item. An item whose key is the same as before need not be made."""
    restarts = _newest_restarts(status)
    return {
        "runs": {str(run.run): _run_item(run, restarts.get(run.run)) for run in status.runs},
        "incidents": {
            one.incident: _incident_item(one) for one in status.incidents[:MAX_INCIDENTS]
        },
        "proposals": {one.action: _proposal_item(one) for one in status.proposals},
        "nodes": {node.node: _node_item(node) for node in status.nodes},
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


# ---- runs -----------------------------------------------------------------------------------------------------------


def _newest_restarts(status: ClusterStatus) -> dict[int, IncidentStatus]:
    """Return, by run, the newest incident for which something was done about it."""
    found: dict[int, IncidentStatus] = {}
    for incident in status.incidents:
        if incident.run is not None and incident.rungs and not incident.non_fatal:
            found.setdefault(incident.run, incident)
    return found


def _run_item(run: RunStatus, restart: IncidentStatus | None) -> PageItem:
    return PageItem((run, restart), lambda: _run(run, restart))


def _run(run: RunStatus, restart: IncidentStatus | None) -> dict[str, Any]:
    last = run.last
    is_live = run.state in ("active", "waiting", "paused")
    return {
        "run": run.run,
        "name": run.name,
        "state": run.attempt_state or run.state if run.state == "active" else run.state,
        "live": is_live,
        "held": None if run.hold is None else _hold(run),
        "reason": printable(run.reason, MAX_TEXT),
        "attempt": str(run.attempt or ""),
        "attempts": run.num_attempts,
        "mode": run.mode,
        "phase": printable(run.phase, MAX_NAME),
        "step": run.step,
        "total_steps": run.total_steps,
        "loss": None if last is None else last.loss,
        "grad_norm": None if last is None else last.grad_norm,
        "lr": None if last is None else last.lr,
        "tokens_per_second": None if last is None else last.tokens_per_second,
        "checkpoint": run.checkpoint_step,
        "ettr": run.ettr_ratio,
        "lost": {name: round(seconds, 1) for name, seconds in run.lost_seconds.items() if seconds},
        "nodes": len(run.nodes),
        "asked": [printable(each, MAX_TEXT) for each in run.open_requests],
        "trends": [printable(each, MAX_TEXT) for each in run.metric_notes] if is_live else [],
        "remedies": _remedies(run),
        "restarted": None if restart is None else _restarted(restart),
    }


def _hold(run: RunStatus) -> dict[str, Any]:
    assert run.hold is not None
    return {
        "hold": run.hold.hold,
        "by": printable(run.hold.by, MAX_NAME),
        "reason": printable(run.hold.reason, MAX_TEXT),
        "since": run.hold.since,
    }


def _remedies(run: RunStatus) -> list[str]:
    live = [each for each in run.applied_remedies if each.state != "reverted"]
    return [
        f"{each.id} {printable(REMEDIES[each.name].words(each.value))}: {each.state.replace('_', ' ')}"
        for each in live
        if each.name in REMEDIES
    ]


def _restarted(incident: IncidentStatus) -> dict[str, Any]:
    return {"incident": incident.incident, "at": incident.opened_at, "why": _why(incident)}


# ---- incidents ------------------------------------------------------------------------------------------------------


def fault_of(incident: IncidentStatus) -> str:
    """Return an incident's fault and its cause: "rank_crash: cuda_oom"."""
    cause = incident.cause
    if cause is None or cause.fault == incident.fault:
        return incident.fault
    return f"{incident.fault}: {cause.fault}"


def place_of(incident: IncidentStatus) -> str:
    """Return the place of an incident: "n2 rank 3"; "" for none."""
    rank = "" if incident.rank is None else f"rank {incident.rank}"
    return f"{printable(incident.node or '', MAX_NAME)} {rank}".strip()


def _why(incident: IncidentStatus) -> str:
    place, evidence = place_of(incident), incident.evidence[0] if incident.evidence else ""
    text = f"{fault_of(incident)}{f' on {place}' if place else ''}"
    because = printable(evidence or incident.reason, MAX_TEXT)
    return f"{text}: {because}" if because else text


def _incident_item(incident: IncidentStatus) -> PageItem:
    return PageItem(incident, lambda: _incident(incident))


def _incident(incident: IncidentStatus) -> dict[str, Any]:
    return {
        "incident": incident.incident,
        "version": incident.version,
        "state": incident.state,
        "open": incident.state in OPEN_STATES,
        "fault": fault_of(incident),
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


def _proposal_item(proposal: ProposalStatus) -> PageItem:
    return PageItem(proposal, lambda: _proposal(proposal))


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


def _node_item(node: NodeStatus) -> PageItem:
    silent = (node.last_heartbeat_seconds_ago or 0.0) > SILENT_SECONDS
    return PageItem((_NODE_KEY(node), silent), lambda: _node(node, silent))


def _node(node: NodeStatus, silent: bool) -> dict[str, Any]:
    why = _node_notes(node, silent)
    return {
        "state": node.state,
        "health": _health(node, why),
        "since": node.since,
        "attempt": str(node.attempt or ""),
        "ranks": _ranks_text(node.ranks_alive),
        "domain": printable(node.domain, MAX_NAME),
        "why": printable("; ".join(why), MAX_TEXT),
    }


def _node_notes(node: NodeStatus, silent: bool) -> list[str]:
    drain, ahead = node.pending_drain, node.clock_ahead_seconds
    notes = [f"leaves for {drain.to}{f': {drain.reason}' if drain.reason else ''}"] if drain else []
    notes += [f"down with {node.domain_down}"] if node.domain_down else []
    notes += [f"no heartbeat for {SILENT_SECONDS:g} s"] if silent and node.state == "active" else []
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


def _ranks_text(ranks: Sequence[int]) -> str:
    if len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"{ranks[0]}-{ranks[-1]}"
    return ",".join(map(str, ranks[:16]))
