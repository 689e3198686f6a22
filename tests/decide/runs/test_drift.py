"""Drift: an attempt that runs with something else is ended, and its run waits for a person; beside the scenarios."""

from runner.decide.placement.launch_plans import Plans
from runner.facts.actions import ActionResult, NodeTask
from runner.facts.faults import LaunchSurveyed, PartVariant
from runner.facts.launch_conditions import LaunchConditions, digests, of_data
from runner.facts.messages import records as r
from runner.facts.messages import records_drift as d
from runner.facts.messages import records_people as p
from runner.facts.messages import requests as q
from runner.facts.messages import signals as s
from runner.facts.messages.assignments import LaunchPlan
from tests.decide.controller_harness import (
    ControllerHarness,
    exited,
    kinds,
    launch,
    training_harness,
)


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


def surveyed(harness: ControllerHarness, commits: dict[str, list[str]]) -> list[object]:
    """Let the nodes of the attempt report digests of these commits, n1 first."""
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    code = [
        PartVariant(
            digest=digests(LaunchConditions(git_commit=commit))["code"],
            nodes=tuple(nodes),
            num_nodes=len(nodes),
        )
        for commit, nodes in commits.items()
    ]
    return harness.take(LaunchSurveyed(attempt=attempt.attempt, parts={"code": tuple(code)}))


def relaunch(harness: ControllerHarness) -> None:
    """Let the gang end, and the next attempt come up."""
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    for node in ("n1", "n2"):
        where = {"node": node, "incarnation": 1, "generation": attempt.generation}
        harness.take(s.RanksTerminated(**where, attempt=attempt.attempt))  # type: ignore[arg-type]
    launch(harness)


def asked(decided: list[object]) -> list[str]:
    """Return the nodes that are asked for all that they run with."""
    issued = [each.action for each in decided if isinstance(each, r.ActionIssued)]
    tasks = [action.read(NodeTask) for action in issued if action.action == "node_task"]
    return [task.node for task in tasks if task.task == "conditions"]


def test_the_first_attempt_says_what_the_run_is() -> None:
    """It is recorded; what a node reports that is not of the gang counts for nothing."""
    harness = training_harness()
    assert kinds(found(harness, "b2", node="n3")) == []
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
    assert (run.hold, run.accepts_drift) == (None, True)
    relaunch(harness)
    assert kinds(found(harness, "b2")) == ["ConditionsRecorded"]
    assert run.conditions == LaunchConditions(git_commit="b2")
    assert kinds(surveyed(harness, {"b2": ["n1", "n2"]})) == ["NodesCompared"]
    assert not run.accepts_drift


def test_a_node_that_differs_is_asked_and_refused() -> None:
    """The first start too: one node of those alike is asked, and the page names it, the others, the item and both values."""
    harness = training_harness()
    found(harness, "a1")
    decided = surveyed(harness, {"a1": ["n1"], "b2": ["n2", "n7", "n8"]})
    assert asked(decided) == ["n2"]
    decided = found(harness, "b2", node="n2")
    held = next(each for each in decided if isinstance(each, p.RunHeld))
    assert held.reason.startswith(
        "1.1.0 on n2, as on n7, n8, is not the same run: commit a1 -> b2;"
    )
    assert harness.state.runs[1].conditions == LaunchConditions(git_commit="a1")


def test_nodes_alike_are_recorded_once_and_ask_nothing() -> None:
    """A supervisor that took over gathers the same, which changes nothing; what a node alone knows is no difference."""
    harness = training_harness()
    found(harness, "a1")
    assert kinds(surveyed(harness, {"a1": ["n1", "n2"]})) == ["NodesCompared"]
    assert kinds(surveyed(harness, {"a1": ["n1", "n2"]})) == []
    harness = training_harness()
    assert asked(surveyed(harness, {"a1": ["n2"]})) == []


def test_a_node_that_differs_and_does_not_answer_is_refused_all_the_same() -> None:
    """Its agent may have been started again: that the digests differ is known."""
    harness = training_harness()
    found(harness, "a1")
    surveyed(harness, {"a1": ["n1"], "b2": ["n2"]})
    (action,) = harness.state.open_tasks("conditions")
    decided = harness.take(ActionResult(id=action.id, outcome="failed", message="who knows"))
    held = next(each for each in decided if isinstance(each, p.RunHeld))
    assert (
        "n2 is not the same run: it has another digest, and its values are not known (who knows)"
        in held.reason
    )


def test_where_rank_0_does_not_know_a_part_two_other_nodes_are_compared() -> None:
    """Its node may lack git: the first that knows says what the run is, and the other one is refused."""
    harness = training_harness()
    found(harness, "")
    assert asked(surveyed(harness, {"a1": ["n2"], "b2": ["n3"]})) == ["n2", "n3"]
    assert kinds(found(harness, "a1", node="n2")) == ["ConditionsRecorded"]
    known = harness.state.runs[1].conditions
    assert known is not None
    assert known.git_commit == "a1"


def test_what_a_person_approves_of_covers_nodes_that_differ() -> None:
    """Later attempts may run with either, on whichever node; a third one is refused."""
    harness = training_harness()
    found(harness, "a1")
    surveyed(harness, {"a1": ["n1"], "b2": ["n2"]})
    found(harness, "b2", node="n2")
    harness.take(q.RestartRun(id="q3", by="me", run="a", accepts_drift=True))
    relaunch(harness)
    plan = plan_of(harness)
    assert (plan.conditions, plan.data) == ({}, "any")
    found(harness, "a1")
    assert asked(surveyed(harness, {"a1": ["n1"], "b2": ["n2"]})) == []
    harness.take(exited(harness, node="n1", rank=0))
    relaunch(harness)
    known = [digests(LaunchConditions(git_commit=one))["code"] for one in ("a1", "b2")]
    assert plan_of(harness).conditions["code"] == tuple(known)
    assert asked(surveyed(harness, {"b2": ["n1"], "a1": ["n2"]})) == []
    assert kinds(found(harness, "b2")) == ["ConditionsRecorded"]
    assert harness.state.runs[1].conditions is not None
    assert harness.state.runs[1].conditions.git_commit == "a1"
    assert "RunHeld" in kinds(found(harness, "c3"))


def test_other_data_ends_the_attempt_and_is_approved_like_the_rest() -> None:
    """The fingerprint comes by itself and leaves the other parts as they are known; the next plan names what counts."""
    harness = training_harness()
    found(harness, "a1")
    assert kinds(report_data(harness, "sha256:1")) == ["ConditionsRecorded"]
    harness.take(exited(harness, node="n1", rank=0))
    relaunch(harness)
    assert plan_of(harness).data == "sha256:1"
    decided = report_data(harness, "sha256:2")
    held = next(each for each in decided if isinstance(each, p.RunHeld))
    assert "data sha256:1 -> sha256:2" in held.reason
    harness.take(q.RestartRun(id="q3", by="me", run="a", accepts_drift=True))
    relaunch(harness)
    report_data(harness, "sha256:2")
    known = harness.state.runs[1].conditions
    assert known is not None
    assert (known.data, known.git_commit) == ("sha256:2", "a1")


def report_data(harness: ControllerHarness, fingerprint: str) -> list[object]:
    """Let a rank report its data."""
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    return harness.take(
        s.ConditionsFound(
            node="n1",
            incarnation=1,
            generation=attempt.generation,
            attempt=attempt.attempt,
            conditions=of_data(fingerprint),
        )
    )


def plan_of(harness: ControllerHarness) -> LaunchPlan:
    """Return what n1 is to launch."""
    run = harness.state.runs[1]
    assert run.attempt is not None
    return Plans(harness.controller.policy.cluster).plan_of(run, run.attempt, "n1")
