"""Remedies of a run: bounds, what the trainer reads back, and taking them back."""

from typing import Any

import pytest

from runner.decide.decision import Decision
from runner.decide.runs import remedies
from runner.decide.state.apply import apply_record
from runner.decide.state.cluster_state import Run
from runner.facts.actions import PageOperator
from runner.facts.faults import LrObserved
from runner.facts.messages import records as r
from runner.facts.messages import signals as s
from runner.facts.messages.requests import AddRemedy
from runner.facts.remedies import REMEDIES
from tests.decide.controller_harness import ControllerHarness, launch, training_harness

SETTINGS = {"lr": 5e-4, "lr_peak": 1e-3, "lr_factor": 1.0, "lr_floor": 1e-4, "data_position": 20}


def ready(*known: str, **spec: Any) -> ControllerHarness:
    """Return a harness whose ranks understand these remedies (none: all) and have made step 30, from 20 on."""
    harness = training_harness(**spec)
    attempt = current(harness).attempt
    assert attempt is not None
    attempt.resume_step = 20
    source: dict[str, Any] = {"node": "n1", "incarnation": 1, "attempt": attempt.attempt}
    named = known or tuple(REMEDIES)
    harness.take(s.RanksReady(**source, requests=("stop", "checkpoint"), remedies=named))
    harness.take(s.SettingsInEffect(**source, step=20, values=SETTINGS))
    harness.take(s.Progress(**source, step=30))
    return harness


def current(harness: ControllerHarness) -> Run:
    """Return the run."""
    return harness.state.runs[1]


def order(harness: ControllerHarness, name: str, value: Any, **more: Any) -> remedies.Addition:
    """Order a remedy as a person does, unless `more` says otherwise, and apply it."""
    decision = Decision(state=harness.state, policy=harness.controller.policy, now=harness.now)
    given = {"by": "ann", "request": "q9", **more}
    added = remedies.add(decision, current(harness), name, value, **given)
    for record in decision.records:
        apply_record(harness.state, record)
    return added


def take_back(harness: ControllerHarness, remedy: str) -> str:
    """Revert a remedy, and apply that."""
    decision = Decision(state=harness.state, policy=harness.controller.policy, now=harness.now)
    refusal = remedies.revert(decision, current(harness), remedy, by="ann", reason="no help")
    for record in decision.records:
        apply_record(harness.state, record)
    return refusal


def read_back(harness: ControllerHarness, values: dict[str, Any]) -> list[object]:
    """Let the current attempt be one with the run's remedies, whose trainer reads these settings back."""
    run = current(harness)
    assert run.attempt is not None
    run.attempt.remedies, run.reconfigured = run.remedies, False
    where: dict[str, Any] = {"node": "n1", "incarnation": 1, "attempt": run.attempt.attempt}
    return harness.take(s.SettingsInEffect(**where, step=30, values={**SETTINGS, **values}))


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("lr", 9e-5, "below the floor of run 'a', 0.0001"),
        ("lr_peak", 9e-5, "below the floor"),
        ("lr_factor", 0.15, "would train at 7.5e-05, below the floor"),
        ("lr", 3e-3, "more than x2 in one request (the peak is 0.001)"),
        ("skip_steps", [[30, 40]], "data up to step 30 is trained and stays so; skip from 31 on"),
        ("skip_steps", [[9, 3]], "no list of ranges"),
        ("optimizer", ["sgd", 10, 30], "the run is past step 30"),
        ("clip", -1.0, "give a gradient norm"),
        ("clap", 1.0, "did you mean 'clip'?"),
    ],
)
def test_what_is_out_of_bounds_is_refused_with_the_reason(
    name: str, value: Any, reason: str
) -> None:
    """Below the floor, far above the peak, in the past, or no remedy: nothing is recorded."""
    harness = ready()
    added = order(harness, name, value)
    assert reason in added.refusal
    assert not added.remedy
    assert current(harness).applied_remedies == []


def test_the_floor_of_the_run_s_file_counts_before_the_schedule_s() -> None:
    """lr_floor may lie below the minimum that the trainer reports."""
    assert order(ready(lr_floor=1e-6), "lr", 9e-5) == remedies.Addition("r1")
    assert "0.0004" in order(ready(lr_floor=4e-4), "lr", 3.9e-4).refusal


def test_a_rewind_makes_earlier_data_the_future() -> None:
    """What is decided with a rewind counts from the step to which it goes back."""
    harness = ready()
    assert "is trained" in order(harness, "skip_steps", [[25, 28]]).refusal
    assert order(harness, "skip_steps", [[25, 28]], resume_step=22).remedy == "r1"
    assert "already" in order(harness, "skip_steps", [[26, 28]], resume_step=22).refusal


def test_a_ladder_lowers_the_rate_and_skips_a_little_and_no_more() -> None:
    """Without a request: a factor from 0.5 to 1, a rate below the present one, some hundred data steps, nothing else."""
    by = {"by": "loss-spike", "request": None, "incident": "i1"}
    harness = ready()
    for name, value in (
        ("betas", (0.9, 0.95)),
        ("precision", "fp32"),
        ("optimizer_reset", ""),
        ("clip", 0.3),
    ):
        assert "never ordered without a person" in order(harness, name, value, **by).refusal
    assert "x0.5 to x1" in order(harness, "lr_factor", 1.1, **by).refusal
    assert "above 0.0005" in order(harness, "lr", 6e-4, **by).refusal
    assert "500 data steps" in order(harness, "skip_steps", [[40, 900]], **by).refusal
    assert order(harness, "lr_factor", 0.9, **by).remedy == "r1"
    assert order(harness, "lr", 4e-4, **by).remedy == "r2"
    (_, second) = current(harness).applied_remedies
    assert (second.by, second.incident, second.state) == ("loss-spike", "i1", "ordered")


def test_ranks_that_do_not_know_a_remedy_get_none_unless_their_command_does() -> None:
    """The refusal names what they know and both ways out."""
    refusal = order(ready("lr_factor"), "clip", 0.3).refusal
    assert "remedies understood: lr_factor" in refusal
    assert "has a placeholder" in refusal
    command = ("train", "--skip={skip_steps}")
    assert order(ready("lr_factor", command=command), "skip_steps", [[40, 50]]).remedy == "r1"


def test_a_remedy_that_is_not_in_effect_has_failed_and_pages_once() -> None:
    """The others are in effect; a later attempt in which it still is not pages no more, one in which it is clears it."""
    harness = ready()
    order(harness, "betas", (0.9, 0.95))
    order(harness, "clip", 0.3)
    wrong = {"betas": [0.9, 0.999], "clip": 0.3}
    records = read_back(harness, wrong)
    (page,) = [
        x.action.read(PageOperator).message for x in records if isinstance(x, r.ActionIssued)
    ]
    assert "betas was to be [0.9, 0.95], the trainer read back [0.9, 0.999]" in page
    assert [each.state for each in current(harness).applied_remedies] == ["failed", "in_effect"]
    assert not [x for x in read_back(harness, wrong) if isinstance(x, r.ActionIssued)]
    read_back(harness, {"betas": [0.9, 0.95], "clip": 0.3})
    assert [each.state for each in current(harness).applied_remedies] == ["in_effect"] * 2


def test_a_remedy_can_be_taken_back_once_and_a_reset_that_happened_cannot() -> None:
    """What is left is composed, and the run is launched again; an unknown id is answered with the known ones."""
    harness = ready()
    order(harness, "lr_factor", 0.5)
    order(harness, "lr", 4e-4)
    order(harness, "optimizer_reset", "")
    assert current(harness).remedies == {"lr": 4e-4, "optimizer_reset": ["1.r3"]}
    read_back(harness, {"lr": 4e-4, "optimizer_reset": ["1.r3"]})
    assert take_back(harness, "r2") == ""
    assert current(harness).remedies == {"lr_factor": 0.5, "optimizer_reset": ["1.r3"]}
    assert current(harness).reconfigured
    assert "is reverted already, by ann: no help" in take_back(harness, "r2")
    assert "has happened; rewind" in take_back(harness, "r3")
    assert "no remedy 'r9'; known: r1, r3" in take_back(harness, "r9")


def test_remedies_of_an_earlier_release_s_snapshot_are_kept() -> None:
    """It had only what they compose to."""
    harness = ready()
    current(harness).remedies = {"lr_peak": 2e-3, "lr_factor": 0.5}
    order(harness, "lr_factor", 0.9)
    assert current(harness).remedies == {"lr_peak": 2e-3, "lr_factor": 0.45}
    assert [each.id for each in current(harness).applied_remedies] == ["r1", "r2", "r3"]


COMMAND = ("train", "--lr", "{lr}", "--skip={skip_steps}")


def by_command(change: float | None = 0.5) -> ControllerHarness:
    """Return a harness of a command with placeholders, whose lines showed a rate; asked for a factor and launched again."""
    harness = training_harness(command=COMMAND, lr=1e-3)
    run = current(harness)
    assert run.attempt is not None
    harness.take(LrObserved(attempt=run.attempt.attempt, step=10, lr=4e-4))
    if change is not None:
        request = AddRemedy(id="q2", by="ann", run="a", remedy="lr_factor", value=change)
        harness.take(request)
        harness.settle()
        for node in run.attempt.nodes:
            where = {"generation": run.attempt.generation, "attempt": run.attempt.attempt}
            harness.take(s.RanksTerminated(node=node, incarnation=1, **where))  # type: ignore[arg-type]
        launch(harness)
    return harness


def answer_of(harness: ControllerHarness) -> tuple[str, str]:
    """Return the state and the text of the answer."""
    request = harness.state.requests["q2"]
    return request.state, request.message


def observe(harness: ControllerHarness, lr: float | None, before: float | None) -> list[object]:
    """Let the lines of the current attempt show a rate."""
    attempt = current(harness).attempt
    assert attempt is not None
    return harness.take(LrObserved(attempt=attempt.attempt, step=12, lr=lr, before=before))


def test_a_command_with_placeholders_is_launched_again_and_its_lines_are_compared() -> None:
    """Without a hello: its ranks get SIGTERM, and the request is answered with the rate that its lines show."""
    harness = by_command()
    attempt = current(harness).attempt
    assert attempt is not None
    assert (str(attempt.attempt), attempt.remedies) == ("1.2.0", {"lr_factor": 0.5})
    assert answer_of(harness)[0] == "open"
    observe(harness, 2.02e-4, before=4.1e-4)
    state, message = answer_of(harness)
    assert state == "done"
    assert "its lines show lr 0.000202" in message
    assert [each.state for each in current(harness).applied_remedies] == ["in_effect"]


def test_lines_that_show_another_rate_fail_the_remedy() -> None:
    """The request fails with both rates, and a person is paged; an attempt without a change clears nothing."""
    harness = by_command()
    records = observe(harness, 4.1e-4, before=4.1e-4)
    wrong = "launched with {lr} = 0.0005, its lines were to show a rate of 0.000205 at step 12, not 0.00041"
    (page,) = [
        x.action.read(PageOperator).message for x in records if isinstance(x, r.ActionIssued)
    ]
    assert wrong in page
    assert harness.state.requests["q2"].state == "failed"
    assert [each.state for each in current(harness).applied_remedies] == ["failed"]
    assert not [x for x in observe(harness, 2e-4, 4e-4) if isinstance(x, r.RemedyChecked)]


def test_without_rates_of_before_only_one_above_the_launched_is_wrong() -> None:
    """As after a take-over of the supervisor."""
    harness = by_command()
    observe(harness, 3e-4, before=None)
    assert harness.state.requests["q2"].state == "done"
    harness = by_command()
    observe(harness, 6e-4, before=None)
    assert harness.state.requests["q2"].state == "failed"


def test_lines_that_hold_no_rate_are_said_to_be_compared_with_nothing() -> None:
    """The answer says what the command was launched with."""
    harness = training_harness(command=COMMAND, lr=1e-3)
    run = current(harness)
    harness.take(AddRemedy(id="q2", by="ann", run="a", remedy="skip_steps", value=[[5, 9]]))
    harness.settle()
    assert run.attempt is not None
    for node in run.attempt.nodes:
        where: dict[str, Any] = {
            "generation": run.attempt.generation,
            "attempt": run.attempt.attempt,
        }
        harness.take(s.RanksTerminated(node=node, incarnation=1, **where))
    launch(harness)
    answer = harness.state.requests["q2"]
    assert answer.state == "done"
    assert "launched with {lr} = 0.001, {skip_steps} = 5-9" in answer.message
    assert [each.state for each in current(harness).applied_remedies] == ["ordered"]
