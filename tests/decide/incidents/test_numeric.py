"""Incidents about a run's numbers: opened, watched, judged; a run that ends with ruined numbers ends with an open incident."""

from typing import Any

import pytest
from msgspec.structs import replace

from runner.decide.decision import Policy
from runner.decide.state.cluster_state import Incident
from runner.facts import wire
from runner.facts.actions import PageOperator
from runner.facts.faults import Finding
from runner.facts.messages import records as r
from runner.facts.messages import signals as s
from runner.facts.specs.runbook import PageProof, Runbook, Rung
from runner.facts.trials import MetricLevel, Trajectory, TrialJudged
from tests.decide.controller_harness import ControllerHarness, exited, launch, training_harness

BEFORE = Trajectory(first_step=1, last_step=39, num_samples=39, loss=MetricLevel(level=1.0))


def numeric_harness(*ladder: Rung, steps: int = 20, **spec: Any) -> ControllerHarness:
    """Return a harness with one gang up, at step 50, whose numeric faults are answered by one ladder."""
    harness = training_harness(**spec)
    page = Runbook(
        name="numbers",
        title="numbers",
        faults=("loss_spike", "divergence", "nan_loss", "grad_norm_spike"),
        ladder=ladder,
        verify=PageProof(steps=steps),
    )
    policy = harness.controller.policy
    others = [book for book in policy.runbooks if not set(book.faults) & set(page.faults)]
    harness.controller.policy = Policy(cluster=policy.cluster, runbooks=(page, *others))
    stepped(harness, 50)
    return harness


def found(harness: ControllerHarness, fault: Any = "loss_spike", **fields: Any) -> list[object]:
    """Let a detector find something of the gang that is up; return all that follows."""
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    given = {"evidence": "it rose", "step": 40, "before": BEFORE, **fields}
    records = harness.take(Finding(fault=fault, attempt=attempt.attempt, **given))
    return records + harness.settle()


def judged(harness: ControllerHarness, verdict: Any, **fields: Any) -> list[object]:
    """Let the trial of the run's incident end."""
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    given = {"incident": "i1", "attempt": attempt.attempt, "step": 61, "evidence": "loss 2.7"}
    records = harness.take(TrialJudged(verdict=verdict, **{**given, **fields}))
    return records + harness.settle()


def stepped(harness: ControllerHarness, step: int) -> None:
    """Let the gang report a step."""
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    harness.take(s.Progress(node="n1", incarnation=1, attempt=attempt.attempt, step=step))
    harness.settle()


def incident_of(harness: ControllerHarness, name: str = "i1") -> Incident:
    """Return an incident."""
    return harness.state.incidents[name]


def pages(harness: ControllerHarness) -> list[str]:
    """Return what operators are paged with."""
    return [
        item.action.read(PageOperator).message
        for item in harness.state.actions.values()
        if item.action.action == "page"
    ]


def finish(harness: ControllerHarness) -> None:
    """Let all ranks end with 0."""
    for node, ranks in (("n1", (0, 1)), ("n2", (2, 3))):
        for rank in ranks:
            harness.take(exited(harness, node=node, rank=rank, exit_code=0))
    harness.settle()


def restart(harness: ControllerHarness, *, resume_step: int = 0) -> None:
    """Let a rank die, and the next attempt come up."""
    before = harness.state.runs[1].attempt
    assert before is not None
    harness.take(exited(harness, node="n2", rank=3))
    clear(harness)
    attempt = launch(harness)
    attempt.resume_step = resume_step
    assert attempt.attempt != before.attempt


def clear(harness: ControllerHarness) -> None:
    """Let all nodes be clear of the attempt that ends."""
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    for node in attempt.nodes:
        harness.take(
            s.RanksTerminated(
                node=node, incarnation=1, generation=attempt.generation, attempt=attempt.attempt
            )
        )
    harness.settle()


def test_a_run_that_heals_by_itself_is_left_alone() -> None:
    """A spike is watched for the steps of the page; the verdict ends its incident, and nothing was done to the run."""
    harness = numeric_harness(Rung(do="wait"), Rung(do="stop"))
    found(harness)
    incident = incident_of(harness)
    assert (incident.state, incident.rungs_taken) == ("proving", ["wait"])
    (trial,) = harness.controller.watch().attempts[0].trials
    assert (trial.after_step, trial.steps, trial.before) == (40, 20, BEFORE)
    judged(harness, "helped")
    assert incident.state == "resolved"
    assert incident.reason.startswith("healed by itself: loss 2.7")
    assert harness.state.runs[1].num_attempts == 1
    assert harness.controller.watch().attempts[0].trials == ()


def test_a_detector_that_sees_the_numbers_return_ends_a_wait_that_has_nothing_to_compare_with() -> (
    None
):
    """No trial is waited for then."""
    harness = numeric_harness(Rung(do="wait"), Rung(do="stop"))
    found(harness, before=None)
    found(harness, recovered=True, evidence="back to 2.7")
    assert incident_of(harness).reason == "healed by itself: back to 2.7"
    assert harness.state.runs[1].trial_incident is None


def test_numbers_that_return_to_their_old_level_are_evidence_while_a_trial_compares_them() -> None:
    """The detector forgives what stays a tenth too high; the trial's verdict decides, and the next rung may follow."""
    harness = numeric_harness(Rung(do="wait"), Rung(do="stop"))
    found(harness)
    found(harness, recovered=True, evidence="back to 2.7")
    incident = incident_of(harness)
    assert (incident.state, incident.evidence[-1]) == ("proving", "back to 2.7")
    judged(harness, "not_helped")
    assert incident.rungs_taken == ["wait", "stop"]


def test_what_did_not_heal_goes_to_the_next_rung() -> None:
    """The verdict is evidence, and the next rung is taken in the same turn."""
    harness = numeric_harness(Rung(do="wait"), Rung(do="stop"))
    found(harness)
    judged(harness, "not_helped")
    incident = incident_of(harness)
    assert incident.rungs_taken == ["wait", "stop"]
    assert incident.evidence[-1] == "not helped: loss 2.7"
    assert (incident.state, harness.state.runs[1].state) == ("gave_up", "failed")


def test_a_rung_that_starts_the_gang_again_is_tried_on_the_next_attempt() -> None:
    """The trial begins with the launch; a verdict on it ends the incident, and steps that pass do not."""
    harness = numeric_harness(Rung(do="restart"), Rung(do="stop"))
    found(harness)
    assert incident_of(harness).state == "acting"
    clear(harness)
    attempt = launch(harness)
    (trial,) = harness.controller.watch().attempts[0].trials
    assert trial.is_change
    stepped(harness, 200)
    assert incident_of(harness).state == "proving"
    judged(harness, "helped", attempt=attempt.attempt, step=210)
    assert incident_of(harness).reason.startswith("it helped")


def test_a_crash_in_a_trial_is_no_verdict() -> None:
    """The trial goes on in the next attempt, and the crash has an incident of its own."""
    harness = numeric_harness(Rung(do="wait"), Rung(do="stop"))
    found(harness)
    restart(harness, resume_step=30)
    stepped(harness, 60)
    states = {one.fault: one.state for one in harness.state.incidents.values()}
    assert states == {"loss_spike": "proving", "rank_crash": "resolved"}
    assert len(harness.controller.watch().attempts[0].trials) == 1


def test_the_end_of_the_ladder_pages_and_the_incident_stays_open_until_the_numbers_are_back() -> (
    None
):
    """The last trial has one verdict only, and no rung follows it."""
    harness = numeric_harness(Rung(do="wait"))
    found(harness)
    judged(harness, "not_helped")
    assert incident_of(harness).state == "proving"
    assert ["every rung of numbers was tried" in page for page in pages(harness)] == [True]
    (trial,) = harness.controller.watch().attempts[0].trials
    assert trial.is_last
    assert harness.settle() == []
    judged(harness, "helped", step=500)
    assert incident_of(harness).state == "resolved"


@pytest.mark.parametrize("ladder", [("wait",), ("watch",)])
def test_a_run_that_ends_with_ruined_numbers_leaves_an_open_incident(
    ladder: tuple[Any, ...],
) -> None:
    """Whatever the page does, "the run finished" is no cure; a person is paged."""
    harness = numeric_harness(*(Rung(do=verb) for verb in ladder))
    found(harness)
    finish(harness)
    incident = incident_of(harness)
    assert (harness.state.runs[1].state, incident.state) == ("finished", "open")
    assert "its numbers are not back" in incident.reason
    assert any("i1 loss_spike is open" in page for page in pages(harness))


def test_a_worse_fault_takes_over_and_a_lighter_one_is_evidence() -> None:
    """One incident for one trouble: the spike that becomes a divergence goes up the ladder from its top."""
    harness = numeric_harness(Rung(do="wait"), Rung(do="restart"))
    found(harness, "grad_norm_spike", step=38)
    found(harness, "loss_spike")
    incident = incident_of(harness)
    assert (incident.fault, incident.rungs_taken) == ("loss_spike", ["wait", "wait"])
    found(harness, "grad_norm_spike", step=45)
    assert incident.fault == "loss_spike"
    found(harness, "divergence")
    assert (incident.fault, incident.rungs_taken[-1]) == ("divergence", "wait")
    judged(harness, "not_helped")
    assert incident.state == "acting"
    clear(harness)
    launch(harness)
    # What the rung changed is on trial: its verdict decides.
    found(harness, "nan_loss", step=51, node="n2", rank=3)
    assert (incident.fault, incident.node, incident.rank) == ("divergence", "n2", 3)
    assert len(harness.state.incidents) == 1


def test_verdicts_of_no_trial_change_nothing() -> None:
    """A verdict that comes twice, of an older attempt, or of an incident that is over is history."""
    harness = numeric_harness(Rung(do="wait"), Rung(do="stop"))
    found(harness)
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    assert judged(harness, "not_helped", attempt=attempt.attempt.restarted()) == []
    assert judged(harness, "not_helped", incident="i9") == []
    judged(harness, "helped")
    assert judged(harness, "not_helped") == []


def test_the_next_supervisor_goes_on_with_the_trial() -> None:
    """It needs nothing that the last one had learned: the numbers before the onset are in the state."""
    harness = numeric_harness(Rung(do="wait"), Rung(do="stop"))
    found(harness)
    state = wire.decode(wire.encode(harness.state), limit_bytes=10**7)
    assert state == harness.state
    harness.take(r.SupervisorStarted(holder="h2", token=2, version="0", nodes=("n1", "n2")))
    (trial,) = harness.controller.watch().attempts[0].trials
    assert trial.before == BEFORE


def test_a_person_who_stops_the_run_is_not_paged_for_it() -> None:
    """The incident is open all the same."""
    harness = numeric_harness(Rung(do="wait"), Rung(do="stop"))
    found(harness)
    num_pages = len(pages(harness))
    run = harness.state.runs[1]
    run.stop_requests.append("q1")
    harness.state.requests["q1"] = replace(harness.state.requests["q1"], request="stop_run")
    harness.settle()
    clear(harness)
    assert (run.state, incident_of(harness).state) == ("stopped", "open")
    assert len(pages(harness)) == num_pages
