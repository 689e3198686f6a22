"""Rewind: a run goes back to an older checkpoint, and takes another way from there.

What was sealed after that checkpoint is set aside for good, known or not (`Rewind`): a survey passes it over, also under another
supervisor and in a later run of the same folder. The live attempt ends at once, since what it makes is not wanted any more; the
next one is planned as any other, and begins at that checkpoint, for it is the newest that is left.
"""

from runner.decide.decision import Decision
from runner.decide.runs.endings import end_attempt
from runner.decide.state.cluster_state import Incident, Run
from runner.facts.checkpoints import Checkpoint, Rewind, Trust
from runner.facts.messages import records as r
from runner.facts.messages.records_checkpoints import RunRewound

# How many checkpoints a refusal names. Chosen.
MAX_NAMED = 8


def rewind(  # noqa: PLR0913 - what is gone back to, and what is written down of it
    decision: Decision,
    run: Run,
    *,
    before_step: int,
    least: Trust,
    reason: str,
    incident: Incident | None = None,
    request: str | None = None,
    outcome: r.Outcome = "rewound",
) -> str:
    """Go back to the newest checkpoint before `before_step` that is trusted as far as `least`; return "", or why not.

    A refusal leaves no record. `reason` is for people; `incident` or `request` is the id of what it answers; `outcome`: how the
    attempt ends that is live, if one is.
    """
    found, attempt = best_before_step(run, before_step, least), run.attempt
    problem = _problem(decision, run)
    if problem or found is None or attempt is None:
        return problem or _nothing_before(run, before_step, least)
    name = incident.incident if incident is not None else None
    left = Rewind(step=found.step, attempt=found.attempt, until=attempt.attempt)
    record = RunRewound(
        run=run.run,
        rewind=left,
        path=found.path,
        before_step=before_step,
        reason=reason,
        incident=name,
        request=request,
    )
    decision.add(record)
    end_attempt(decision, run, outcome=outcome, incident=incident, reason=reason)
    return ""


def best_before_step(run: Run, step: int, least: Trust) -> Checkpoint | None:
    """Return the newest checkpoint before `step` that is trusted as far as `least` and not set aside; None if there is none."""
    return next(
        (
            known
            for known in reversed(run.checkpoints)
            if known.step < step and known.is_at_least(least) and not run.is_set_aside(known)
        ),
        None,
    )


def _problem(decision: Decision, run: Run) -> str:
    name = run.spec.name
    if not run.is_wanted:
        return (
            f"run {name!r} is {run.state}: there is nothing to go back with; start it again first"
        )
    if run.stop_requests or decision.state.closing:
        return f"run {name!r} is being stopped; start it again to go back"
    return ""


def _nothing_before(run: Run, before_step: int, least: Trust) -> str:
    """Say what there is instead, the newest first."""
    known = [
        f"step {c.step} ({'set aside' if run.is_set_aside(c) else c.trust.value})"
        for c in reversed(run.checkpoints)
    ]
    more = f" and {len(known) - MAX_NAMED} older ones" if len(known) > MAX_NAMED else ""
    there = f"there are {', '.join(known[:MAX_NAMED])}{more}" if known else "there is none at all"
    of_trust = "" if least is Trust.COMMITTED else f" that is {least.value}"
    return f"run {run.spec.name!r} has no checkpoint{of_trust} before step {before_step}; {there}"
