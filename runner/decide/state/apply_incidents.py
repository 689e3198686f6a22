"""Apply, the part about incidents: their life cycle, their causes, and pending evidence."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from runner.decide.runs import resumes
from runner.decide.state.apply_people import count_page_use, let_ladder_go_on
from runner.decide.state.cluster_state import (
    MAX_FAILURES_KEPT,
    MAX_INCIDENTS_KEPT,
    MAX_MATCHES_KEPT,
    AwaitedAnswer,
    Incident,
    PagePlace,
    PendingEvidence,
    State,
    shared_fields,
)
from runner.facts.messages import records as r
from runner.facts.messages.records_trials import TrialEnded, TrialStarted


def opened_incident(record: r.IncidentOpened, now: float) -> Incident:
    """Return an incident as it begins."""
    failures = [record.failure] if record.failure is not None else []
    fields = {**shared_fields(record, Incident), "evidence": [record.evidence]}
    fields["failures"] = failures
    return Incident(**fields, opened_at=now)


def _incident_opened(state: State, record: r.IncidentOpened) -> None:
    state.incidents[record.incident] = opened_incident(record, state.now)
    state.next_incident += 1
    resumes.note_mismatch(state, state.incidents[record.incident])
    if record.run is not None and not record.non_fatal:
        state.runs[record.run].incident = record.incident
    if record.run is not None and record.on_trial:
        state.runs[record.run].trial_incident = record.incident
    state.count(f"incidents_{record.fault}")
    closed = [name for name, known in state.incidents.items() if not _is_needed(state, known)]
    for name in closed[: max(0, len(state.incidents) - MAX_INCIDENTS_KEPT)]:
        del state.incidents[name]


def _is_needed(state: State, incident: Incident) -> bool:
    """Whether something is still to come of it. Of a run that has ended, nothing is, though it may be open."""
    run = state.runs.get(incident.run or 0)
    return incident.is_live and (run is None or run.is_alive)


def _incident_amended(state: State, record: r.IncidentAmended) -> None:
    amend(state.incidents[record.incident], record)
    resumes.note_mismatch(state, state.incidents[record.incident])


def amend(incident: Incident, record: r.IncidentAmended) -> None:
    """Put later evidence into an incident."""
    incident.evidence.append(record.evidence)
    if record.fault is not None and record.fault != incident.fault:
        incident.fault, incident.rung, incident.tries = record.fault, -1, 0
    incident.node = record.node or incident.node
    if record.node is not None:
        incident.rank = record.rank
    incident.condition = record.condition or incident.condition
    incident.fingerprint = record.fingerprint or incident.fingerprint
    if record.attempt is not None:
        incident.attempt = record.attempt
    incident.suspects = record.suspects or incident.suspects
    incident.answer_at = record.answer_at or incident.answer_at
    if record.sick_loss is not None and incident.before is not None:
        incident.before = replace(incident.before, sick_loss=record.sick_loss)
    if record.step is not None:
        incident.step = record.step
    if record.failure is not None:
        incident.failures.append(record.failure)
        # Its lines are judged alone; the cause stands until they say otherwise.
        incident.matches.clear()
        del incident.failures[:-MAX_FAILURES_KEPT]


def _incident_diagnosed(state: State, record: r.IncidentDiagnosed) -> None:
    diagnose(state.incidents[record.incident], record)


def diagnose(incident: Incident, record: r.IncidentDiagnosed) -> None:
    """Put a cause into an incident, with the lines it was judged by."""
    incident.cause = record.cause
    if incident.failures and record.cause.node and record.cause.scope in ("gpu", "node"):
        # Not where the first rank died, but where the fault is.
        incident.failures[-1] = replace(incident.failures[-1], node=record.cause.node)
    if incident.is_live:
        incident.matches += record.matches[: MAX_MATCHES_KEPT - len(incident.matches)]


def _lines_kept(state: State, record: r.EvidenceRecorded) -> None:
    attempt = state.attempt_of(record.attempt)
    if attempt is None:
        return
    # A line that the ranks outlived by steps explains nothing, unless hardware wrote it.
    step = record.step or 0
    attempt.pending_evidence = [
        kept
        for kept in attempt.pending_evidence
        if kept.match.warrants_incident or (kept.step or step) >= step - 1
    ]
    for match in record.matches:
        pending = attempt.pending_evidence
        if len(pending) >= MAX_MATCHES_KEPT and match.warrants_incident:
            others = (at for at, kept in enumerate(pending) if not kept.match.warrants_incident)
            pending.pop(next(others, 0))
        if len(pending) < MAX_MATCHES_KEPT:
            pending.append(PendingEvidence(match=match, step=record.step, at=state.now))
    if record.judge_at is not None:
        attempt.judge_at = attempt.judge_at or record.judge_at


def _lines_judged(state: State, record: r.EvidenceJudged) -> None:
    attempt = state.attempt_of(record.attempt)
    if attempt is not None:
        attempt.judge_at = None


def _rung_taken(state: State, record: r.RungTaken) -> None:
    incident = state.incidents[record.incident]
    if incident.runbook and incident.runbook != record.runbook:
        incident.earlier_pages[incident.runbook] = PagePlace(
            rung=incident.rung, tries=incident.tries
        )
    incident.runbook, incident.rung, incident.tries = record.runbook, record.rung, record.try_number
    incident.rungs_taken.append(record.do)
    incident.answered = incident.attempt
    incident.awaited = None
    incident.state = "acting"
    let_ladder_go_on(state, record.incident)
    count_page_use(state, incident.run, record)
    state.count(f"rungs_{record.do}")


def _answer_awaited(state: State, record: r.AnswerAwaited) -> None:
    incident = state.incidents[record.incident]
    incident.awaited = AwaitedAnswer(node=record.node, until=record.until, reason=record.reason)


def _incident_changed(state: State, record: r.IncidentChanged) -> None:
    incident = state.incidents[record.incident]
    incident.state, incident.reason = record.state, record.reason or incident.reason
    if not incident.is_live:
        incident.matches.clear()
        incident.awaited = None
        incident.closed_at = state.now
        sick = state.runs.get(incident.run or 0)
        if incident.is_in_weights and sick is not None:
            sick.clean_since = sick.best_step
        incident.trial = None
        let_ladder_go_on(state, record.incident)
        for run in state.runs.values():
            if run.incident == record.incident:
                run.incident = None
            if run.trial_incident == record.incident:
                run.trial_incident = None


def _trial_started(state: State, record: TrialStarted) -> None:
    state.incidents[record.incident].trial = record.trial
    state.count("trials")


def _trial_ended(state: State, record: TrialEnded) -> None:
    incident = state.incidents[record.incident]
    incident.trial = None
    incident.evidence.append(f"{record.verdict.replace('_', ' ')}: {record.evidence}")
    state.count(f"trials_{record.verdict}")


OF_INCIDENTS: dict[type, Callable[[State, Any], None]] = {
    r.IncidentOpened: _incident_opened,
    r.IncidentAmended: _incident_amended,
    r.IncidentDiagnosed: _incident_diagnosed,
    r.EvidenceRecorded: _lines_kept,
    r.EvidenceJudged: _lines_judged,
    r.AnswerAwaited: _answer_awaited,
    r.RungTaken: _rung_taken,
    r.IncidentChanged: _incident_changed,
    TrialStarted: _trial_started,
    TrialEnded: _trial_ended,
}
