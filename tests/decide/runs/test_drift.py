"""Drift: an attempt that runs with something else is ended, and its run waits for a person; beside the scenarios."""

from runner.facts.launch_conditions import LaunchConditions
from runner.facts.messages import records as r
from runner.facts.messages import records_drift as d
from runner.facts.messages import records_people as p
from runner.facts.messages import requests as q
from runner.facts.messages import signals as s
from tests.decide.controller_harness import ControllerHarness, exited, kinds, training_harness


def found(
    harness: ControllerHarness, commit: str, *, run: int = 1, node: str = "n1"
) -> list[object]:
    """Let a node find out what the run's attempt runs with."""
    attempt = harness.state.runs[run].attempt
    assert attempt is not None
    return harness.take(
        s.ConditionsFound(
            node=node,
            incarnation=1,
            generation=attempt.generation,
            attempt=attempt.attempt,
            conditions=LaunchConditions(git_commit=commit),
        )
    )


def test_the_first_attempt_says_what_the_run_is() -> None:
    """It is recorded; only the node with rank 0 is asked, and what another one reports counts for nothing."""
    harness = training_harness()
    assert kinds(found(harness, "b2", node="n2")) == []
    assert kinds(found(harness, "a1")) == ["ConditionsRecorded"]
    assert harness.state.runs[1].conditions == LaunchConditions(git_commit="a1")


def test_another_commit_ends_the_attempt_and_holds_the_run() -> None:
    """One page names the difference and both ways out; nothing is launched until a person decides."""
    harness = training_harness()
    found(harness, "a1")
    decided = found(harness, "b2")
    held = next(each for each in decided if isinstance(each, p.RunHeld))
    assert "commit a1 -> b2" in held.reason
    assert "--accept-drift" in held.reason
    pages = [
        each.action.args["message"]
        for each in decided
        if isinstance(each, r.ActionIssued) and each.action.action == "page"
    ]
    assert len(pages) == 1
    assert "commit a1 -> b2" in pages[0]
    assert "AttemptPlanned" not in kinds(harness.settle())
    # The conditions that are approved of stay the old ones.
    assert harness.state.runs[1].conditions == LaunchConditions(git_commit="a1")


def test_drift_of_an_attempt_that_is_dead_is_recorded_and_ends_nothing() -> None:
    """The next attempt finds it out again, and that one is ended."""
    harness = training_harness()
    found(harness, "a1")
    harness.take(exited(harness, node="n1", rank=0))
    decided = found(harness, "b2")
    assert kinds(decided) == ["ConditionsRecorded"]
    assert isinstance(decided[0], d.ConditionsRecorded)
    assert decided[0].differences == ("commit a1 -> b2",)


def ended_and_started_again(*, accepts_drift: bool) -> ControllerHarness:
    """A run finds commit a1 and is stopped; one of its name, with its checkpoints, is admitted."""
    harness = training_harness(checkpoints="/c")
    found(harness, "a1")
    harness.take(q.StopRun(id="q2", run="a"))
    harness.settle()
    attempt, spec = harness.state.runs[1].attempt, harness.state.runs[1].spec
    assert attempt is not None
    for node in ("n1", "n2"):
        where = {"node": node, "incarnation": 1, "generation": attempt.generation}
        harness.take(s.RanksTerminated(**where, attempt=attempt.attempt))  # type: ignore[arg-type]
        harness.settle()
    harness.take(q.StartRun(id="q3", by="me", spec=spec, accepts_drift=accepts_drift))
    return harness


def test_a_run_started_again_under_its_name_is_the_same_run() -> None:
    """It is compared with the one whose checkpoints it goes on from, unless the person says otherwise."""
    harness = ended_and_started_again(accepts_drift=False)
    assert harness.state.runs[2].conditions == LaunchConditions(git_commit="a1")
    harness = ended_and_started_again(accepts_drift=True)
    assert harness.state.runs[2].conditions is None


def test_a_person_approves_by_starting_it_once_more() -> None:
    """`stoker run --accept-drift` of a run that waits for that lets it go on."""
    harness = training_harness()
    found(harness, "a1")
    found(harness, "b2")
    run = harness.state.runs[1]
    assert run.hold is not None
    harness.take(q.StartRun(id="q3", by="me", spec=run.spec, accepts_drift=True))
    run = harness.state.runs[1]
    assert (run.hold, run.conditions) == (None, None)
