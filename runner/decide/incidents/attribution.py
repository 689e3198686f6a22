"""Attribution: what a failure is, which rank or node caused it, and whether its incident is open already.

The first death decides the first response. Later evidence amends: a node-scoped sign (silence, a dead host) outranks the echo
that other ranks make when their peer is gone. A failure is "the same again" when its fingerprint is equal and the run has made
no new step since.
"""

from __future__ import annotations

from msgspec.structs import replace

from runner.decide.decision import Decision
from runner.decide.incidents.diagnosis import explain
from runner.decide.incidents.ladder import end_attempt, give_up, respond
from runner.decide.state.cluster_state import Attempt, Incident, Run
from runner.facts.faults import Finding, awaits_probe
from runner.rootcause.fingerprints import fingerprint


def report_failure(
    decision: Decision,
    run: Run,
    attempt: Attempt,
    finding: Finding,
    *,
    mark: str = "",
    reached: int | None = None,
) -> None:
    """Something ended or must end this attempt: open an incident or amend the one it belongs to, and take a rung.

    `mark`: the failure's fingerprint, if more than its fault makes it the same again. `reached`: the step that this input reports.
    """
    known = decision.state.incidents.get(run.incident or "")
    mark = mark or fingerprint(finding.fault)
    best = max(run.best_step, attempt.last_step or 0, reached or 0)
    if known is not None and known.is_live and known.attempt == attempt.attempt:
        _amend_existing(decision, known, finding)
        if awaits_probe(known.fault) and not awaits_probe(finding.fault):
            # The diagnosis goes on, the gang cannot.
            end_attempt(decision, run, incident=known, outcome="crashed")
        return
    if (
        known is not None
        and known.is_live
        and known.fingerprint == mark
        and best <= (known.step or 0)
    ):
        decision.amend(known, finding.evidence, attempt=attempt.attempt)
        explain(decision, attempt, known, reached=best)
        reason = f"same failure ({mark}), no new step since step {known.step}"
        _answer(decision, run, attempt, known, reason=reason, reached=best)
        return
    incident = decision.open_incident(finding, run=run.run, fingerprint=mark, step=best)
    explain(decision, attempt, incident, reached=best)
    _answer(decision, run, attempt, incident, reason=finding.evidence, reached=best)


def _attempts_without_progress(
    decision: Decision, run: Run, attempt: Attempt, *, reached: int
) -> int:
    """Count the attempts in a row that made no progress, this one included; 0 when this one did."""
    progressed = reached > attempt.best_before or run.has_proved_itself(decision.now)
    return 0 if progressed else run.attempts_without_progress + 1


def _amend_existing(decision: Decision, known: Incident, finding: Finding) -> None:
    """Later evidence on an attempt that is down already: keep it, and let a node-scoped sign correct the culprit."""
    if awaits_probe(finding.fault) and not awaits_probe(known.fault):
        decision.amend(known, finding.evidence, fault=finding.fault, node=finding.node, rank=None)
    else:
        decision.amend(known, finding.evidence)


def _answer(
    decision: Decision, run: Run, attempt: Attempt, incident: Incident, *, reason: str, reached: int
) -> None:
    """Respond to a failure. Silence has ended nothing yet: the next probe decides, not an earlier one."""
    if awaits_probe(incident.fault):
        respond(decision, replace(incident, condition="always"), reason=reason)
    else:
        respond_or_stop(decision, run, attempt, incident, reason=reason, reached=reached)


def respond_or_stop(
    decision: Decision,
    run: Run,
    attempt: Attempt,
    incident: Incident,
    *,
    reason: str,
    reached: int | None = None,
) -> None:
    """Answer what ends this attempt, or give up if it is one too many without progress."""
    best = max(run.best_step, attempt.last_step or 0) if reached is None else reached
    fruitless = _attempts_without_progress(decision, run, attempt, reached=best)
    limit = run.spec.max_attempts_without_progress
    if fruitless >= limit:
        tried = f"{fruitless} attempts in a row ended without a new step (limit {limit})"
        give_up(decision, incident, reason=f"{tried}; {reason}")
        return
    respond(decision, incident, reason=reason)
