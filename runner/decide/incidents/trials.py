"""Trials of an incident about a run's numbers: begun when its rung is taken, or when what the rung changed is launched.

Such an incident is over when a trial says so, and in no other way: steps that go on show nothing, a run with a ruined loss goes
on as well. `numeric` says what follows from a verdict.
"""

import math

from msgspec.structs import replace

from runner.decide.decision import Decision
from runner.decide.runs import remedies
from runner.decide.state.cluster_state import Attempt, Incident, Run
from runner.facts.messages.records_trials import TrialEnded, TrialStarted
from runner.facts.specs.runbook import Runbook, Rung
from runner.facts.trials import Trajectory, Trial

# Steps of a trial whose page names none; chosen.
STEPS = 64


def begin(
    decision: Decision,
    incident: Incident,
    attempt: Attempt,
    *,
    steps: int = 0,
    is_change: bool = False,
    is_last: bool = False,
) -> None:
    """Watch the steps of an attempt from its resume, and past the onset, against those before it. `steps` 0: as the page says."""
    book = decision.policy.page_for(incident)
    proof = book.verify if book is not None else None
    trial = Trial(
        incident=incident.incident,
        fault=incident.fault,
        attempt=attempt.attempt,
        after_step=max(incident.onset or 0, attempt.resume_step),
        steps=steps or (proof.steps if proof is not None else 0) or STEPS,
        statistic=proof.statistic if proof is not None else "loss",
        before=_before(decision, incident),
        is_change=is_change,
        is_last=is_last,
    )
    name, run = attempt.attempt, attempt.attempt.run
    decision.add(TrialStarted(incident=incident.incident, run=run, attempt=name, trial=trial))
    until = "until they are back" if is_last else f"for {trial.steps} steps"
    since = f"{name} launched" if is_change else "the run goes on"
    decision.move_incident(incident, "proving", f"{since}; its numbers are watched {until}")


def _before(decision: Decision, incident: Incident) -> Trajectory | None:
    """Return the numbers before the onset, and how far the loss went without an answer, or with those so far."""
    before, run = incident.before, decision.state.runs.get(incident.run or 0)
    last = run.last_loss if run is not None else None
    if before is None or last is None or not math.isfinite(last):
        return before
    return replace(before, sick_loss=max(last, before.sick_loss or last))


def take_back(decision: Decision, incident: Incident) -> None:
    """Revert what earlier rungs of an incident have changed, for it did not help; called before another one is taken."""
    run = decision.state.runs.get(incident.run or 0)
    for applied in run.applied_remedies if run is not None else ():
        if run is not None and applied.incident == incident.incident:
            why = f"{incident.incident}: {incident.evidence[-1]}"[:200]
            if applied.state != "reverted":
                by = f"page {incident.runbook}"
                remedies.revert(decision, run, applied.id, by=by, reason=why)


def on_rung(decision: Decision, incident: Incident, rung: Rung) -> None:
    """Begin the trial of a rung that leaves the gang alone; any other is tried once the next attempt is launched."""
    attempt = _attempt_of(decision, incident)
    if not rung.ends_gang and attempt is not None:
        steps = int(rung.args.get("steps", 0))
        begin(decision, incident, attempt, steps=steps, is_last=rung.do == "watch")


def on_ladder_ended(decision: Decision, incident: Incident, book: Runbook, reason: str) -> None:
    """No rung is left: a person is paged, and the incident stays open until the run's numbers are back."""
    take_back(decision, incident)
    attempt = _attempt_of(decision, incident)
    text = f"{incident.incident} {incident.fault}: every rung of {book.name} was tried, and the run goes on as it is"
    decision.page(f"{text}; {reason}"[:500], run=incident.run, incident=incident.incident)
    if attempt is not None:
        begin(decision, incident, attempt, is_last=True)


def on_run_ended(decision: Decision, incident: Incident, why: str, *, is_asked: bool) -> None:
    """Keep an incident open whose run ends without a verdict that its numbers are back; a person is paged, unless one ended it."""
    if not decision.is_live(incident):
        return
    last = incident.evidence[-1]
    decision.move_incident(incident, "open", f"{why}, and its numbers are not back: {last}")
    if not is_asked:
        text = f"{incident.incident} {incident.fault} is open: {why} with it: {last}"
        decision.page(text[:500], run=incident.run, incident=incident.incident)


def give_up_rung(decision: Decision, incident: Incident, why: str) -> None:
    """Write down that a rung cannot be taken: the next one follows."""
    assert incident.run is not None, "it is about a run"
    decision.add(
        TrialEnded(incident=incident.incident, run=incident.run, verdict="not_tried", evidence=why)
    )
    decision.move_incident(incident, "proving", why)


def awaits_rung(incident: Incident | None) -> bool:
    """Whether an incident about numbers has neither a trial under way nor a rung that is being carried out."""
    return (
        incident is not None
        and incident.on_trial
        and incident.is_live
        and incident.trial is None
        and incident.state != "acting"
    )


def run_incident(decision: Decision, run: Run) -> Incident | None:
    """Return the incident about a run's numbers that is live."""
    incident = decision.state.incidents.get(run.trial_incident or "")
    return incident if incident is not None and decision.is_live(incident) else None


def _attempt_of(decision: Decision, incident: Incident) -> Attempt | None:
    run = decision.state.runs.get(incident.run or 0)
    return run.attempt if run is not None else None
