"""Apply, the part about people: holds, open requests, acknowledgements, and the versions of incidents."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from runner.decide.state.cluster_state import Incident, Run, State, shared_fields
from runner.decide.state.people import (
    DAY_SECONDS,
    MAX_EVENT_CHARACTERS,
    MAX_EVENTS_KEPT,
    MAX_PROPOSALS_KEPT,
    Hold,
    IncidentEvent,
    PendingRequest,
    Proposal,
)
from runner.facts.messages import records as r
from runner.facts.messages import records_people as p
from runner.facts.specs.runbook import PASSIVE_VERBS
from runner.facts.wording import printable

# Requests that end or start an attempt: until one is done, the run's ladder waits.
PENDING = (
    "pause_run",
    "resume_run",
    "restart_run",
    "rewind_run",
    "add_remedy",
    "revert_remedy",
)
# Those after which a run starts afresh: what failed before is no reason to give up.
FRESH_STARTS = ("resume_run", "restart_run", "rewind_run")
Apply = Callable[[State, Any], None]


def _run_held(state: State, record: p.RunHeld) -> None:
    run = state.runs[record.run]
    run.hold = Hold(**shared_fields(record, Hold), since=state.now)


def _hold_ended(state: State, record: p.HoldEnded) -> None:
    run = state.runs[record.run]
    run.hold = None
    _start_afresh(run)


def _start_afresh(run: Run) -> None:
    run.attempts_without_progress = run.failed_preparations = 0
    run.retry_at = None


def _acknowledged(state: State, record: p.IncidentAcknowledged) -> None:
    incident = state.incidents.get(record.incident)
    if incident is not None:
        incident.acknowledged_by, incident.acknowledged_at = record.by, state.now


def _note_added(state: State, record: p.NoteAdded) -> None:
    state.count("notes")


def _ladder_suspended(state: State, record: p.LadderSuspended) -> None:
    state.runs[record.run].suspended[record.incident] = record.needs_person


def _action_proposed(state: State, record: p.ActionProposed) -> None:
    state.proposals[record.action] = Proposal(**shared_fields(record, Proposal), since=state.now)
    state.next_action += 1
    state.count("actions_proposed")
    decided = [name for name, known in state.proposals.items() if known.state != "proposed"]
    for name in decided[: max(0, len(state.proposals) - MAX_PROPOSALS_KEPT)]:
        del state.proposals[name]


def _proposal_decided(state: State, record: p.ProposalDecided) -> None:
    known = state.proposals.get(record.action)
    if known is not None:
        state.proposals[record.action] = replace(
            known, state=record.state, by=record.by, why=record.reason, decided_at=state.now
        )
    incident = state.incidents.get(record.incident)
    if record.state == "denied" and incident is not None:
        incident.left_to = record.by or "a person"


def count_page_use(state: State, run: int | None, record: r.RungTaken) -> None:
    """Keep when a page took a rung of this run by itself that changes something: its limits are by the day."""
    known = state.runs.get(run or 0)
    if known is not None and record.do not in PASSIVE_VERBS and not record.by:
        times = known.page_times.get(record.runbook, [])
        within = [at for at in times if at > state.now - DAY_SECONDS]
        known.page_times[record.runbook] = [*within, state.now]


def apply_pending(state: State, run: Run, record: r.RequestRecorded) -> None:
    """Keep an open request about a run until it is answered."""
    run.pending_requests = [
        pending for pending in run.pending_requests if pending.request != record.id
    ]
    if record.state == "open" and record.request in PENDING:
        run.pending_requests.append(
            PendingRequest(
                request=record.id,
                kind=record.request,
                since=state.now,
                by=record.by,
                reason=record.reason,
                after=run.attempt.attempt if run.attempt is not None else None,
            )
        )
        if record.request in FRESH_STARTS:
            _start_afresh(run)


def let_ladder_go_on(state: State, incident: str) -> None:
    """An incident is answered, or over: its ladder waits no longer."""
    for run in state.runs.values():
        run.suspended.pop(incident, None)


# ---- versions -------------------------------------------------------------------------------------------------------


def _requested(record: r.RequestRecorded) -> tuple[str, bool]:
    if record.request in ("add_note", "acknowledge_incident") and record.state == "done":
        # Its own record says what it says.
        return "", False
    who = record.by or "a person"
    what = f"{who}: {record.request.replace('_', ' ')}"
    why = f" ({record.reason})" if record.reason else ""
    return f"{what} {record.state}{why}", record.state != "refused"


# What an event is called, and whether it is decisive.
_EVENTS: Mapping[type, Callable[[Any], tuple[str, bool]]] = {
    r.IncidentOpened: lambda d: (f"opened: {d.fault}", True),
    r.IncidentAmended: lambda d: (d.evidence, d.node is not None or d.fault is not None),
    r.IncidentDiagnosed: lambda d: (f"cause: {d.cause.fault}", False),
    r.RungTaken: lambda d: (f"{d.do} (try {d.try_number})", True),
    r.IncidentChanged: lambda d: (f"{d.state}: {d.reason}", True),
    r.RequestRecorded: _requested,
    p.NoteAdded: lambda d: (f"note of {d.by or 'a person'}: {d.text}", False),
    p.IncidentAcknowledged: lambda d: (f"{d.by or 'a person'} looks at it", False),
    p.LadderSuspended: lambda d: (d.reason, False),
    p.ActionProposed: lambda d: (f"{d.action} proposed: {d.text}", True),
    p.ProposalDecided: lambda d: (f"{d.action} {d.state} by {d.by}: {d.reason}", True),
}


def counted(kind: type, apply: Apply) -> Apply:
    """Return the function that applies a kind of record, and counts it as an event of the incident that it names."""
    words = _EVENTS.get(kind)
    if words is None:
        return apply

    def apply_and_count(state: State, record: Any) -> None:
        apply(state, record)
        incident = state.incidents.get(record.incident or "")
        text, decisive = words(record)
        if incident is not None and text:
            _count(incident, state.now, text, decisive)

    return apply_and_count


def _count(incident: Incident, now: float, text: str, decisive: bool) -> None:
    incident.version += 1
    text = printable(text, MAX_EVENT_CHARACTERS)
    event = IncidentEvent(version=incident.version, at=now, text=text, decisive=decisive)
    incident.events = [*incident.events, event][-MAX_EVENTS_KEPT:]


OF_PEOPLE: dict[type, Apply] = {
    p.RunHeld: _run_held,
    p.HoldEnded: _hold_ended,
    p.NoteAdded: _note_added,
    p.IncidentAcknowledged: _acknowledged,
    p.LadderSuspended: _ladder_suspended,
    p.ActionProposed: _action_proposed,
    p.ProposalDecided: _proposal_decided,
}
