"""Diagnosing: what the lines of ranks that died say it was. It amends an incident; the first response did not wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from runner.decide.correlate import correlate
from runner.decide.draft import Draft
from runner.decide.state import Incident, State
from runner.facts import records as r
from runner.facts.ids import AttemptId
from runner.facts.matches import ECHOES, Match
from runner.facts.signals import LinesMatched
from runner.facts.verdicts import Cause, Verdict

MAX_LINES = 6  # that a cause is shown with; chosen
LEAST_CONFIDENCE = 0.5  # of a cause that is worth a word; chosen


def on_lines_matched(draft: Draft, said: LinesMatched) -> None:
    """Judge the lines of one node together with those of the nodes that spoke before it."""
    incident = _incident_of(draft.state, said.attempt)
    if incident is None:
        return
    # Whatever a line says of its node: ours is the one that sent it. Files of one name stand on every node.
    # Ranks elsewhere that only lost their peer explain nothing: who died first is known.
    new = tuple(
        replace(match, node=said.node)
        for match in said.matches
        if match.layer not in ECHOES or incident.node in (None, said.node)
    )
    placed = [
        replace(match, file=f"{match.node} {match.file}") for match in (*incident.matches, *new)
    ]
    steps = [replace(step, file=f"{said.node} {step.file}") for step in said.steps]
    verdicts = correlate(placed, steps)
    cause = _cause(verdicts[0]) if verdicts else None
    if cause is None or cause.confidence < LEAST_CONFIDENCE or cause == incident.cause:
        return
    known = incident.cause
    # Of one that is closed the lines are gone: an echo that comes late is judged without them.
    if incident.is_live or known is None or cause.confidence > known.confidence:
        draft.add(r.IncidentDiagnosed(incident=incident.incident, cause=cause, matches=new))


def _incident_of(state: State, attempt: AttemptId) -> Incident | None:
    """Return the newest incident that struck an attempt, closed or not."""
    for incident in reversed(state.incidents.values()):
        if incident.attempt == attempt:
            return incident
    return None


def _cause(verdict: Verdict) -> Cause:
    evidence: Sequence[Match] = verdict.evidence
    return Cause(
        fault=verdict.fault,
        scope=verdict.scope,
        culprit=verdict.culprit,
        node=evidence[0].node,
        confidence=verdict.confidence,
        action_class=verdict.action_class,
        lines=tuple(f"{one.file}:{one.line}: {one.text[:300]}" for one in evidence[:MAX_LINES]),
    )
