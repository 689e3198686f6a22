"""Attribution: what a failure is, which rank or node caused it, and whether its incident is open already.

The first death decides the first response. Later evidence amends: a node-scoped sign (silence, a dead host) outranks the echo
that other ranks make when their peer is gone. A failure is "the same again" when its fingerprint is equal and the run has made
no new step since.
"""

from msgspec.structs import replace

from runner.decide.decision import Decision
from runner.decide.incidents import consent
from runner.decide.incidents.conditions import sure_cause
from runner.decide.incidents.diagnosis import explain
from runner.decide.incidents.ladder import hold_for_person, respond
from runner.decide.runs.endings import end_attempt, end_run, give_up
from runner.decide.state.cluster_state import RUNNING, Attempt, Incident, Run
from runner.facts.causes import Failure
from runner.facts.faults import Finding, awaits_probe, fault_kind
from runner.facts.matches import DEEP
from runner.facts.messages import records as r
from runner.facts.wording import counted
from runner.rootcause.fingerprints import describe_fingerprint, fingerprint


def report_failure(
    decision: Decision,
    finding: Finding,
    *,
    mark: str = "",
    reached: int | None = None,
    has_words: bool = False,
) -> None:
    """Something ended or must end the finding's attempt: open an incident or amend the one it belongs to, and take a rung.

    `mark`: the failure's fingerprint, if more than its fault makes it the same again. `reached`: the step that this input reports.
    `has_words`: ranks wrote why, so the rung waits for these lines.
    """
    attempt = decision.state.attempt_of(finding.attempt)
    assert attempt is not None, "a superseded attempt cannot fail"
    run = decision.run_of(attempt.attempt)
    known = decision.state.incidents.get(run.incident or "")
    mark = mark or fingerprint(finding.fault)
    best = max(run.best_step, attempt.last_step or 0, reached or 0)
    failure = _failure(attempt, finding, reached=reached)
    if known is None or not known.is_live:
        known = None
    elif known.attempt == attempt.attempt:
        # A node-scoped sign corrects the culprit of an attempt that is down already.
        is_of_node = awaits_probe(finding.fault) and not awaits_probe(known.fault)
        culprit = {"fault": finding.fault, "node": finding.node} if is_of_node else {}
        decision.amend(known, finding.evidence, **culprit)
        if _was_left_hanging(run, attempt, known, finding):
            end_attempt(decision, run, incident=known, outcome=fault_kind(known.fault).outcome)
            wait_for_person(decision, run, known)
            return
        if awaits_probe(known.fault) and not awaits_probe(finding.fault):
            # The diagnosis goes on, the gang cannot.
            end_attempt(decision, run, incident=known, outcome="crashed")
            wait_for_person(decision, run, known)
        return
    elif known.fingerprint != mark or best > (known.step or 0):
        known = None
    if known is not None:
        known = decision.amend(
            known,
            finding.evidence,
            attempt=attempt.attempt,
            node=finding.node,
            rank=finding.rank,
            failure=failure,
        )
        what = describe_fingerprint(mark)
        reason = f"the same failure again ({what}), no new step since step {known.step}"
    else:
        known = decision.open_incident(
            finding, run=run.run, fingerprint=mark, step=best, failure=failure
        )
        reason = finding.evidence
    known = explain(decision, attempt, known, reached=best)
    if awaits_probe(known.fault):
        # Silence has ended nothing yet: the next probe decides, not an earlier one.
        respond(decision, replace(known, condition="always"), reason=reason)
    elif has_words and finding.node and _is_worth_a_wait(decision, known):
        _await_lines(decision, run, known, node=finding.node, reason=reason)
    else:
        respond_or_stop(decision, attempt, known, reason=reason, reached=best)


def _was_left_hanging(run: Run, attempt: Attempt, known: Incident, finding: Finding) -> bool:
    """Whether a gang that was left to people as it hung has died since: a person ended it, or a library gave up."""
    is_left = known.incident in run.suspended and fault_kind(known.fault).outcome == "hung"
    return is_left and attempt.state in RUNNING and fault_kind(finding.fault).outcome != "hung"


def _is_worth_a_wait(decision: Decision, incident: Incident) -> bool:
    """Whether lines may still name the cause: nothing is deeper than the hardware that is named already."""
    fault = sure_cause(incident)
    is_deep = any(match.layer in DEEP and match.fault == fault for match in incident.matches)
    return bool(decision.policy.cluster.diagnose_seconds) and not is_deep


def _await_lines(
    decision: Decision, run: Run, incident: Incident, *, node: str, reason: str
) -> None:
    """End the gang now, and let the rung wait for the lines of the node (`answers`)."""
    until = decision.now + decision.policy.cluster.diagnose_seconds
    name = incident.incident
    decision.add(r.AnswerAwaited(incident=name, node=node, until=until, reason=reason[:500]))
    end_attempt(decision, run, incident=incident, outcome=fault_kind(incident.fault).outcome)


def _failure(attempt: Attempt, finding: Finding, *, reached: int | None) -> Failure:
    done = max(attempt.last_step or 0, reached or 0)
    return Failure(
        attempt=attempt.attempt,
        node=finding.node,
        rank=finding.rank,
        step=max(done, attempt.resume_step),
        checkpoint=attempt.resume,
        steps_made=done > attempt.resume_step,
    )


def wait_for_person(decision: Decision, run: Run, incident: Incident) -> None:
    """Hold a run whose gang has died where its ladder may not answer by itself; it is told so once."""
    refusal = consent.refusal(decision, incident)
    if refusal is not None and refusal.needs_person:
        hold_for_person(decision, run, incident, refusal.why)


def stop_if_spent(decision: Decision, run: Run) -> None:
    """Give up a run that has had its attempts without progress, whatever ended the last one; a person's request is one more."""
    num, limit = run.attempts_without_progress, run.spec.max_attempts_without_progress
    if num < limit or consent.awaited(run):
        return
    reason = f"{counted(num, 'attempt')} in a row ended without a new step (limit {limit})"
    incident = decision.state.incidents.get(run.incident or "")
    if incident is None or not incident.is_live:
        decision.page(f"run {run.spec.name}: {reason}", run=run.run)
        end_run(decision, run, state="failed", reason=reason)
    elif consent.refusal(decision, incident) is None:
        give_up(decision, incident, reason=reason)
    else:
        wait_for_person(decision, run, incident)


def respond_or_stop(
    decision: Decision, attempt: Attempt, incident: Incident, *, reason: str, reached: int = 0
) -> None:
    """Answer what ends this attempt, or give up if it is one too many without progress."""
    run = decision.run_of(attempt.attempt)
    best = max(run.best_step, attempt.last_step or 0, reached)
    progressed = best > attempt.best_before or run.has_proved_itself(decision.now)
    # An attempt that refused something is not counted: the next one does without that.
    is_counted = fault_kind(incident.fault).outcome != "refused"
    if attempt.state == "ended":
        # It is counted already.
        fruitless = run.attempts_without_progress
    else:
        fruitless = 0 if progressed else run.attempts_without_progress + is_counted
    limit = run.spec.max_attempts_without_progress
    if fruitless >= limit and consent.refusal(decision, incident) is None:
        tried = f"{counted(fruitless, 'attempt')} in a row ended without a new step (limit {limit})"
        give_up(decision, incident, reason=f"{tried}; {reason}")
    else:
        respond(decision, incident, reason=reason)
