"""Endings: how attempts and runs end, and incidents without success. Rungs, attempts and requests call these.

An attempt ends by assigning every node of it to end its ranks; `reconcile` follows until all are clear.
"""

from runner.decide.decision import Decision
from runner.decide.incidents import trials
from runner.decide.state.cluster_state import Attempt, Incident, Run
from runner.facts.faults import fault_kind
from runner.facts.messages import records as r


def give_up(decision: Decision, incident: Incident, *, reason: str) -> None:
    """End the incident without success, and its run with it: everything is kept, and an operator is paged."""
    decision.move_incident(incident, "gave_up", reason)
    run = decision.state.runs.get(incident.run or 0)
    if run is not None and run.is_wanted:
        end_attempt(decision, run, incident=incident, outcome=fault_kind(incident.fault).outcome)
        end_run(decision, run, state="failed", reason=reason, gave_up=incident.incident)
    text = f"{incident.incident} {incident.fault}: gave up: {reason}"
    book = decision.policy.page_for(incident)
    to = book.pages if book is not None else ""
    decision.page(text, run=incident.run, incident=incident.incident, is_new=True, to=to)


def end_run(
    decision: Decision,
    run: Run,
    *,
    state: r.RunStateName,
    reason: str,
    message: str = "",
    gave_up: str | None = None,
) -> None:
    """End a run for good: its other incidents close, and its open requests are answered.

    `message` is for those who asked; `gave_up` is the incident that ended the run, closed already.
    """
    decision.add(r.RunChanged(run=run.run, state=state, reason=reason, incident=gave_up))
    closing = "gave_up" if state == "failed" else "resolved"
    why = "the run was stopped" if state == "stopped" else f"the run {state}"
    for incident in decision.state.live_incidents(run=run.run):
        if incident.on_trial and closing == "resolved":
            trials.on_run_ended(decision, incident, why, is_asked=state == "stopped")
        elif decision.is_live(incident):
            decision.move_incident(incident, closing, why)
    asked = (
        *run.stop_requests,
        *run.settings_requests,
        *(pending.request for pending in run.pending_requests),
    )
    for request_id in dict.fromkeys(asked):
        request = decision.state.requests[request_id]
        is_done = request.request == "stop_run" and state != "failed"
        text = message or f"the run {state}: {reason}"
        decision.answer(request, "done" if is_done else "failed", text)


def end_attempt(
    decision: Decision,
    run: Run,
    *,
    outcome: r.Outcome,
    incident: Incident | None = None,
    reason: str = "",
) -> None:
    """End the run's live attempt now: all its nodes idle by SIGKILL. Nothing to do when it is ending already."""
    attempt = run.attempt
    if attempt is None or attempt.state in ("stopping", "ended"):
        return
    if attempt.state in ("preparing", "prepared"):
        decision.move_attempt(attempt, "ended", reason, outcome="withdrawn")
        return
    name, fault = (incident.incident, incident.fault) if incident else (None, "")
    decision.move_attempt(attempt, "stopping", reason or fault, outcome=outcome, incident=name)
    # Where ranks hang is known only as long as they live.
    stacks_seconds = decision.policy.cluster.stacks_seconds if outcome == "hung" else 0.0
    idle(decision, attempt, stacks_seconds=stacks_seconds)


def idle(
    decision: Decision, attempt: Attempt, *, grace_seconds: float = 0.0, stacks_seconds: float = 0.0
) -> None:
    """Assign every node of an attempt to end its ranks; lost nodes too, should they come back."""
    seconds = {"grace_seconds": grace_seconds, "stacks_seconds": stacks_seconds}
    for name in attempt.nodes:
        if decision.state.nodes[name].attempt == attempt.attempt:
            generation = decision.generation()
            decision.add(r.Assigned(node=name, generation=generation, attempt=None, **seconds))
