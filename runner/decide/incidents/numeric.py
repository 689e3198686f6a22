"""Incidents about a run's numbers: one at a time for each run, from the finding to the verdict that ends it.

A finding opens the incident; the ladder of its page takes a rung; a trial watches the steps after it. Helped: it is over. Not: what
the rung changed is taken back, and the next one follows. When the ladder ends, a person is paged and the incident stays open. What
else is found meanwhile is evidence, or makes it worse: then the page of the worse fault takes over.
"""

from typing import Any

from runner.decide.decision import Decision
from runner.decide.incidents import trials
from runner.decide.incidents.ladder import respond
from runner.decide.incidents.rungs.going_back import attribute_to_hardware
from runner.decide.state.cluster_state import LAUNCHED, Attempt, Incident, Run
from runner.facts.faults import Finding, fault_kind
from runner.facts.messages.records_trials import TrialEnded
from runner.facts.trials import TrialJudged
from runner.rootcause.fingerprints import fingerprint

# From the lightest to the worst: what is found later takes over from what is left of it.
ORDER = (
    "grad_norm_drift",
    "grad_norm_spike",
    "loss_spike",
    "skipped_steps",
    "loss_scale_floor",
    "divergence",
    "nan_loss",
    "replicas_disagree",
)
# All nodes have reported a step by then: they send a heartbeat a second. Chosen.
NAMING_SECONDS = 5.0
# Pieces of evidence of one such incident, verdicts not counted. Chosen.
MAX_EVIDENCE = 12


def on_finding(decision: Decision, run: Run, attempt: Attempt, finding: Finding) -> None:
    """Open the run's incident, or tell it what else was found."""
    known = trials.run_incident(decision, run)
    if known is None:
        if not finding.recovered:
            _open(decision, run, attempt, finding)
        return
    is_changed = known.state == "acting" or (known.trial is not None and known.trial.is_change)
    # A detector compares with the level before alone; a trial, where one is under way, with where the loss would be by now.
    is_judged = known.trial is not None and known.trial.before is not None
    is_back = finding.recovered and finding.fault == known.fault
    if is_back and not is_changed and not is_judged:
        decision.move_incident(known, "resolved", f"healed by itself: {finding.evidence}")
    elif not finding.recovered and not is_changed and _is_worse(finding.fault, known.fault):
        _escalate(decision, known, attempt, finding)
    else:
        _add_evidence(decision, known, attempt, finding)


def _add_evidence(decision: Decision, known: Incident, attempt: Attempt, finding: Finding) -> None:
    """Keep what else was found; what no trial can see ends the trial that it disproves."""
    if len(known.evidence) < MAX_EVIDENCE or _names_more(known, finding):
        _amend(decision, known, attempt, finding)
    is_seen = fault_kind(finding.fault).judged_by != "metrics" and not finding.recovered
    if (
        is_seen
        and finding.fault == known.fault
        and known.trial is not None
        and not known.trial.is_last
    ):
        _end(decision, known, finding.evidence, step=finding.step)


def _open(decision: Decision, run: Run, attempt: Attempt, finding: Finding) -> None:
    if decision.policy.runbook_for(finding.fault) is None:
        return
    step = max(run.best_step, attempt.last_step or 0, finding.step or 0)
    mark = fingerprint(finding.fault)
    decision.open_incident(
        finding,
        run=run.run,
        fingerprint=mark,
        step=step,
        non_fatal=True,
        answer_at=_answer_at(decision, finding),
    )


def _answer_at(decision: Decision, finding: Finding) -> float | None:
    """Return until when the rank that a fault began in may yet be named; None: it is, or no rank can be."""
    kind = fault_kind(finding.fault)
    can_be_named = (kind.judged_by, kind.scope, finding.node) == ("metrics", "rank", None)
    return decision.now + NAMING_SECONDS if can_be_named else None


def _is_worse(fault: str, known: str) -> bool:
    return fault in ORDER and (known not in ORDER or ORDER.index(fault) > ORDER.index(known))


def _names_more(known: Incident, finding: Finding) -> bool:
    is_new = known.node is None and finding.node is not None
    return is_new or (known.node is None and bool(finding.suspects) and not known.suspects)


def _escalate(decision: Decision, known: Incident, attempt: Attempt, finding: Finding) -> None:
    """Let the page of a worse fault take over; the wait for the lighter one is over."""
    if known.trial is not None:
        _end(decision, known, finding.evidence, step=finding.step)
    named = _named(finding)
    decision.amend(
        known,
        finding.evidence,
        fault=finding.fault,
        attempt=attempt.attempt,
        answer_at=_answer_at(decision, finding),
        sick_loss=finding.before.sick_loss if finding.before is not None else None,
        **named,
    )


def _named(finding: Finding) -> dict[str, Any]:
    place = {"node": finding.node, "rank": finding.rank} if finding.node is not None else {}
    return {**place, "suspects": finding.suspects}


def _end(decision: Decision, known: Incident, evidence: str, *, step: int | None) -> None:
    assert known.run is not None, "it is about a run"
    name, run = known.incident, known.run
    decision.add(
        TrialEnded(incident=name, run=run, verdict="not_helped", evidence=evidence, step=step)
    )


def _amend(decision: Decision, known: Incident, attempt: Attempt, finding: Finding) -> None:
    named = _named(finding) if _names_more(known, finding) else {}
    is_new = known.attempt != attempt.attempt
    name = attempt.attempt if is_new else None
    decision.amend(known, finding.evidence, attempt=name, **named)


def on_judged(decision: Decision, judged: TrialJudged) -> None:
    """Record the verdict of a trial that is under way; the incident of one that helped is over."""
    incident = decision.state.incidents.get(judged.incident)
    attempt = decision.state.attempt_of(judged.attempt)
    if incident is None or not incident.is_live or incident.trial is None or incident.run is None:
        return
    if attempt is None or attempt.state not in LAUNCHED or attempt.attempt.run != incident.run:
        return
    decision.add(
        TrialEnded(
            incident=incident.incident,
            run=incident.run,
            verdict=judged.verdict,
            evidence=judged.evidence,
            step=judged.step,
            loss=judged.loss,
        )
    )
    if judged.verdict == "helped":
        if incident.trial.is_change:
            attribute_to_hardware(decision, incident)
        how = "it helped" if incident.trial.is_change else "healed by itself"
        decision.move_incident(incident, "resolved", f"{how}: {judged.evidence}")


def settle(decision: Decision, run: Run, attempt: Attempt) -> None:
    """Take the next rung of an incident that asks for one."""
    incident = trials.run_incident(decision, run)
    if incident is None or not trials.awaits_rung(incident) or attempt.state != "running":
        return
    if incident.node is None and decision.now < (incident.answer_at or 0.0):
        return
    respond(decision, incident, reason=incident.evidence[-1])


def on_launched(decision: Decision, run: Run, attempt: Attempt) -> None:
    """Begin the trial of what a rung has changed, with the attempt that has it; one under way goes on."""
    incident = trials.run_incident(decision, run)
    if incident is not None and incident.state == "acting":
        trials.begin(decision, incident, attempt, is_change=True)
