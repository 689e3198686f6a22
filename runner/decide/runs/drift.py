"""Drift: an attempt runs with other code, packages or variables than the ones before it, and no person approved of that.

Node 0 finds out while its ranks start, so that no launch waits; an attempt that differs is ended and its run waits for a person.
"""

from runner.decide.decision import Decision
from runner.decide.incidents.attribution import report_failure
from runner.decide.state.cluster_state import RUNNING, Run
from runner.facts import launch_conditions
from runner.facts.faults import Finding
from runner.facts.messages import records_drift as d
from runner.facts.messages import signals as s
from runner.facts.messages.requests import Request
from runner.facts.wording import join_words


def on_conditions(decision: Decision, found: s.ConditionsFound) -> None:
    """Record what an attempt runs with; end it if that is not what the run was launched with before."""
    attempt = decision.state.attempt_of(found.attempt)
    if attempt is None or attempt.state == "ended" or found.node not in attempt.nodes[:1]:
        return
    run, now = decision.run_of(attempt.attempt), found.conditions
    known = run.conditions
    differing = launch_conditions.differences(known, now) if known is not None else ()
    decision.add(
        d.ConditionsRecorded(
            attempt=attempt.attempt, node=found.node, conditions=now, differences=differing
        )
    )
    if not differing or attempt.state not in RUNNING:
        return
    evidence = (
        f"{attempt.attempt} on {found.node} is not the same run: {join_words(differing)}; put it back and "
        f"`stoker restart {run.spec.name}`, or approve it: `stoker restart {run.spec.name} --accept-drift`"
    )
    finding = Finding(fault="configuration_drift", evidence=evidence, attempt=attempt.attempt)
    # Each refused attempt is an incident of its own, with what differed then.
    report_failure(decision, finding, mark=f"{finding.fault}:{attempt.attempt}")


def accept(decision: Decision, run: int, request: Request) -> None:
    """Let whatever the next attempt runs with count from then on."""
    accepted = d.DriftAccepted(run=run, by=request.by, request=request.id, reason=request.reason)
    decision.add(accepted)


def carry_over(decision: Decision, run: Run, before: Run) -> None:
    """Compare a run with the one that it goes on from."""
    if before.conditions is not None:
        decision.add(d.ConditionsKept(run=run.run, before=before.run))
