"""Answers that wait for a cause, and causes that come after the answer.

Where ranks wrote why they ended, the gang ends at once and the rung waits for the lines of their node, `diagnose_seconds` at most:
a restart that must be undone costs more. A cause that comes later brings its own page; only `stop`, `swap` and `quarantine` may
end an attempt that is launched by then.
"""

from runner.decide.decision import Decision
from runner.decide.incidents import consent
from runner.decide.incidents.attribution import respond_or_stop
from runner.decide.incidents.ladder import next_rung, respond
from runner.decide.incidents.rungs.retries import delays_of
from runner.decide.state.cluster_state import LAUNCHED, Incident, Run, State
from runner.facts.messages.signals import LinesMatched
from runner.facts.specs.runbook import Rung

# Rungs that may end an attempt which is launched already.
MAY_UNDO = ("stop", "swap", "quarantine")


def due_at(state: State, run: Run) -> list[float]:
    """Return when an answer is due that no signal may announce, and when the next attempt may be planned."""
    incident = state.incidents.get(run.incident or "")
    times = [incident.awaited.until] if incident is not None and incident.awaited else []
    return times + ([run.retry_at] if run.retry_at is not None else [])


def is_awaited(decision: Decision, run: Run) -> bool:
    """Whether the answer to what ended the run's attempt still waits for lines."""
    incident = decision.state.incidents.get(run.incident or "")
    awaited = incident.awaited if incident is not None and incident.is_live else None
    return awaited is not None and decision.now < awaited.until


def settle(decision: Decision, run: Run) -> None:
    """Answer an incident whose node has not reported in time why its ranks ended."""
    incident = decision.state.incidents.get(run.incident or "")
    if incident is None or incident.awaited is None or not incident.is_live:
        return
    if decision.now >= incident.awaited.until:
        _answer(decision, run, incident)


def _answer(decision: Decision, run: Run, incident: Incident) -> None:
    attempt = run.attempt
    # With a later attempt a person has answered.
    if attempt is not None and attempt.attempt == incident.attempt and incident.awaited is not None:
        respond_or_stop(decision, attempt, incident, reason=incident.awaited.reason)


def on_lines(decision: Decision, incident: Incident, lines_read: LinesMatched) -> None:
    """Answer an incident whose node has reported why; or amend the answer, if the cause has another page."""
    run = decision.state.runs.get(incident.run or 0)
    if run is None or run.incident != incident.incident or not run.is_wanted:
        return
    if incident.awaited is None:
        _amend_answer(decision, run, incident)
    elif lines_read.is_last and lines_read.node == incident.awaited.node:
        _answer(decision, run, incident)


def _amend_answer(decision: Decision, run: Run, incident: Incident) -> None:
    book, attempt = decision.policy.page_for(incident), run.attempt
    if not incident.runbook or book is None or book.name == incident.runbook or attempt is None:
        return
    chosen = next_rung(book, decision.state, incident)
    if chosen is None or run.stop_requests or consent.refusal(decision, incident) is not None:
        return
    rung, tries = book.ladder[chosen[0]], chosen[1]
    if not _may_amend(rung, run, incident, tries=tries):
        return
    line = incident.cause.lines[0] if incident.cause is not None and incident.cause.lines else ""
    respond(decision, incident, reason=f"the cause is known now: {line}"[:300].rstrip(": "))


def _may_amend(rung: Rung, run: Run, incident: Incident, *, tries: int) -> bool:
    """Whether a rung changes anything that it may still change."""
    attempt = run.attempt
    if attempt is not None and attempt.attempt != incident.attempt and attempt.state in LAUNCHED:
        return rung.do in MAY_UNDO
    delays = delays_of(rung) or (0.0,)
    return rung.do != "restart" or delays[min(tries, len(delays)) - 1] > 0
