"""The rung that goes back: where to, what it changes, what it refuses, and that all of it is taken back when it does not help."""

from dataclasses import replace as replace_fields
from typing import Any

from msgspec.structs import replace

from runner.decide.decision import Policy
from runner.facts.messages import records as r
from runner.facts.messages import signals as s
from runner.facts.messages.records_checkpoints import RunRewound
from runner.facts.messages.records_trials import TrialEnded
from runner.facts.messages.requests import ApproveAction
from runner.facts.specs.runbook import Rung
from tests.decide.controller_harness import ControllerHarness, kinds, launch
from tests.decide.incidents.test_numeric import (
    clear,
    found,
    incident_of,
    judged,
    numeric_harness,
    stepped,
)

REMEDIES = ("lr_factor", "lr_peak", "skip_steps")


def going_back(*rungs: dict[str, Any], remedies: tuple[str, ...] = REMEDIES, **spec: Any) -> Any:
    """Return a harness at step 400 with a checkpoint every 50 steps, whose page goes back."""
    ladder = [Rung(do="rewind", args=args) for args in rungs]
    harness = numeric_harness(*ladder, checkpoints="/c", keep_checkpoints=0, **spec)
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    name = attempt.attempt
    harness.take(
        s.RanksReady(node="n1", incarnation=1, attempt=name, requests=("stop",), remedies=remedies)
    )
    values = {"lr": 1e-3, "lr_peak": 1e-3, "lr_factor": 1.0}
    harness.take(s.SettingsInEffect(node="n1", incarnation=1, attempt=name, step=0, values=values))
    for step in range(50, 401, 50):
        stepped(harness, step)
        path = f"/c/{name}-{step:08d}"
        harness.take(
            s.CheckpointSealed(node="n1", incarnation=1, attempt=name, step=step, path=path)
        )
    harness.settle()
    return harness


def only(records: list[object], kind: type) -> Any:
    """Return the one record of a kind."""
    (record,) = [one for one in records if isinstance(one, kind)]
    return record


def test_it_goes_back_so_far_before_the_onset_and_leaves_the_data_around_it_out() -> None:
    """Of the checkpoints at least 100 steps before step 310 it is that of step 200; the data steps around it go."""
    harness = going_back({"before": 100, "skip": 200})
    records = found(harness, step=310)
    rewound, added = only(records, RunRewound), only(records, r.RemedyAdded)
    assert (rewound.rewind.step, rewound.incident) == (200, "i1")
    assert (added.remedy, added.value, added.incident) == ("skip_steps", ((210, 409),), "i1")
    assert added.by == "page numbers"
    attempt = harness.state.runs[1].attempt
    assert (attempt.state, attempt.outcome) == ("stopping", "rewound")


def test_what_did_not_help_is_taken_back_before_the_next_rung() -> None:
    """The second rung has its own change only; what helped stays."""
    harness = going_back({"before": 100, "skip": 200}, {"before": 100, "lr_factor": 0.9})
    found(harness, step=310)
    clear(harness)
    launch(harness)
    records = judged(harness, "not_helped")
    order = [kind for kind in kinds(records) if kind in ("RemedyReverted", "RemedyAdded")]
    assert order == ["RemedyReverted", "RemedyAdded"]
    assert harness.state.runs[1].remedies == {"lr_factor": 0.9}
    clear(harness)
    launch(harness)
    judged(harness, "helped")
    assert harness.state.runs[1].remedies == {"lr_factor": 0.9}
    assert incident_of(harness).state == "resolved"


def test_a_second_skip_is_around_the_data_of_the_onset_not_of_the_attempt_that_left_some_out() -> (
    None
):
    """Step 310 read data step 310; in the attempt that left five out before it, another step reads that."""
    harness = going_back({"before": 10, "skip": 5}, {"before": 10, "skip": 60})
    found(harness, step=310)
    assert harness.state.runs[1].remedies == {"skip_steps": [[300, 304]]}
    clear(harness)
    attempt = launch(harness)
    attempt.resume_step = 250
    values = {"data_position": 250, "skip_steps": [[300, 304]]}
    name = attempt.attempt
    harness.take(
        s.SettingsInEffect(node="n1", incarnation=1, attempt=name, step=250, values=values)
    )
    judged(harness, "not_helped")
    assert harness.state.runs[1].remedies == {"skip_steps": [[300, 359]]}


def test_each_further_try_of_a_factor_multiplies_it_again() -> None:
    """0.9, then 0.81 of what the rate was: the first is taken back."""
    harness = going_back({"before": 100, "lr_factor": 0.9})
    page = harness.controller.policy.runbooks[0]
    (rung,) = page.ladder
    _replace_ladder(harness, (Rung(do="rewind", args=rung.args, tries=2),))
    found(harness, step=310)
    clear(harness)
    launch(harness)
    judged(harness, "made_worse")
    assert abs(harness.state.runs[1].remedies["lr_factor"] - 0.81) < 1e-9


def _replace_ladder(harness: ControllerHarness, ladder: tuple[Rung, ...]) -> None:
    policy = harness.controller.policy
    page = replace(policy.runbooks[0], ladder=ladder)
    harness.controller.policy = Policy(cluster=policy.cluster, runbooks=(page,))


def test_what_cannot_be_done_is_refused_whole_and_the_next_rung_follows() -> None:
    """No reference, no support, below the floor, beyond a ladder's bounds, no node named: nothing of it is half-done."""
    cases: tuple[tuple[dict[str, Any], dict[str, Any], str], ...] = (
        ({"before": 100, "lr": "reference"}, {}, "gives no reference_lr"),
        ({"before": 100, "skip": 200}, {"remedies": ("lr_factor",)}, "do not report support"),
        ({"before": 100, "lr_factor": 0.9}, {"lr_floor": 9.5e-4}, "below the floor"),
        ({"before": 100, "skip": 501}, {}, "a ladder may leave out 500"),
        ({"before": 100, "lr_factor": 0.4}, {}, "a ladder may order x0.5"),
        ({"before": 100, "other_hardware": True}, {}, "no node in service is named"),
        ({"before": 100, "lr_factor": 1.0, "skip": 501}, {}, "a ladder may leave out 500"),
    )
    for args, given, why in cases:
        harness = going_back(args, {"before": 100}, **given)
        records = found(harness, step=310)
        ended = only(records, TrialEnded)
        assert ended.verdict == "not_tried"
        assert why in ended.evidence, (args, ended.evidence)
        assert not any(isinstance(one, r.RemedyAdded) for one in records)
        # The next one goes back and changes nothing.
        assert only(records, RunRewound).rewind.step == 200
        assert incident_of(harness).rungs_taken == ["rewind", "rewind"]


def test_without_a_checkpoint_before_the_onset_a_person_is_paged() -> None:
    """The run goes on, and its incident stays open."""
    harness = going_back({"before": 100})
    records = found(harness, step=30)
    assert "there is no checkpoint before step 30" in only(records, TrialEnded).evidence
    attempt = harness.state.runs[1].attempt
    assert (attempt.state, incident_of(harness).state) == ("running", "proving")


def test_the_rate_goes_to_the_reference_of_the_run() -> None:
    """An absolute rate, whatever the present one is; one above the present is refused."""
    harness = going_back({"before": 100, "lr": "reference"}, reference_lr=4e-4)
    found(harness, step=310)
    assert harness.state.runs[1].remedies == {"lr_peak": 4e-4}
    higher = going_back({"before": 100, "lr": "reference"}, reference_lr=2e-3)
    assert "may lower the rate" in only(found(higher, step=310), TrialEnded).evidence


def test_in_mode_advise_nothing_is_changed_or_taken_back_until_a_person_approves() -> None:
    """The rung is proposed once; approved, it is taken, and is on trial as any other."""
    rungs = ({"before": 100, "lr_factor": 0.9}, {"before": 100, "lr_factor": 0.8})
    harness = going_back(*rungs, mode="advise")
    assert not any(isinstance(one, RunRewound) for one in found(harness, step=310))
    run = harness.state.runs[1]
    assert (run.attempt.state, len(harness.state.proposals)) == ("running", 1)
    approve(harness)
    assert run.remedies == {"lr_factor": 0.9}
    clear(harness)
    launch(harness)
    records = judged(harness, "not_helped")
    assert not any(isinstance(one, r.RemedyReverted) for one in records)
    assert (run.remedies, run.attempt.state) == ({"lr_factor": 0.9}, "running")
    approve(harness)
    assert run.remedies == {"lr_factor": 0.8}


def approve(harness: ControllerHarness) -> None:
    """Let a person approve what is proposed."""
    (action,) = [one.action for one in harness.state.proposals.values() if one.state == "proposed"]
    number = len(harness.state.requests) + 1
    harness.take(ApproveAction(id=f"q{number}", by="ann", action=action))
    harness.settle()


def _replicas(harness: Any, **fields: Any) -> Any:
    """Let the ranks of the gang that is up report that copies differ."""
    attempt = harness.state.runs[1].attempt
    report = s.ReplicasDisagree(
        node="n1", incarnation=1, attempt=attempt.attempt, step=330, what="weight", **fields
    )
    records = harness.take(report)
    return records + harness.settle()


def _answering_replicas(*rungs: dict[str, Any]) -> Any:
    """Return a harness at step 400 whose page about replicas has these rungs."""
    harness = going_back({"before": 1})
    harness.join("n3", "agent-n3")
    harness.settle()
    policy = harness.controller.policy
    ladder = tuple(Rung(do="rewind", args=args) for args in rungs)
    books = tuple(
        replace(book, ladder=ladder) if "replicas_disagree" in book.faults else book
        for book in policy.runbooks
    )
    harness.controller.policy = replace_fields(policy, runbooks=books)
    return harness


def test_a_disagreement_began_after_the_last_comparison_that_agreed() -> None:
    """The run goes back to before it, and the one node that holds all wrong copies leaves, not to return without a person."""
    harness = _answering_replicas({"before": 1, "other_hardware": True})
    records = _replicas(harness, ranks=(2, 3), agreed_step=249)
    assert only(records, RunRewound).rewind.step == 200
    assert incident_of(harness).onset == 250
    left = [one for one in records if isinstance(one, r.NodeChanged)]
    assert [(one.node, one.state) for one in left] == [("n2", "maintenance")]


def test_two_suspects_leave_only_if_two_spares_are_idle() -> None:
    """Of two copies neither is the majority; with one spare, and no checks to pass, nothing is half-done, and a person is paged."""
    rungs = ({"before": 1, "other_hardware": True}, {"before": 1, "test_suspects": True})
    harness = _answering_replicas(*rungs)
    records = _replicas(harness, suspects=(0, 2), agreed_step=320)
    assert incident_of(harness).suspects == ("n1", "n2")
    ended = [one for one in records if isinstance(one, TrialEnded)]
    assert [one.verdict for one in ended] == ["not_tried", "not_tried"]
    assert "n1 and n2 would leave, and 1 checked spares are idle" in ended[0].evidence
    assert "`checks` in cluster.yaml names none that n1 and n2 could pass" in ended[1].evidence
    assert not any(isinstance(one, RunRewound) for one in records)


def test_a_disagreement_without_ranks_names_no_node() -> None:
    """The ladder has no node to leave out, and says so."""
    harness = _answering_replicas({"before": 1, "other_hardware": True})
    ended = only(_replicas(harness), TrialEnded)
    assert "no node in service is named as culprit" in ended.evidence


def test_for_a_loss_scale_it_goes_back_to_a_usable_scale_and_calming_activations() -> None:
    """Of all before the onset the newest whose scale was at least 1.0 and after which the norm fell; unknown is not so."""
    harness = going_back({"before": 1, "scale_at_least": 1.0, "lr_factor": 0.9}, {"before": 1})
    run = harness.state.runs[1]
    #       step:   50    100   150   200   250  300  350  400
    norms = (9.0, 8.0, 9.0, 8.5, 9.0, 9.5, 9.9, 10.0)
    scales = (64.0, 32.0, 8.0, 0.5, None, 2.0, 1.0, 1.0)
    run.checkpoints = [
        replace(one, activation_norm=norm, loss_scale=scale)
        for one, norm, scale in zip(run.checkpoints, norms, scales, strict=True)
    ]
    records = found(harness, "loss_spike", step=360)
    assert only(records, RunRewound).rewind.step == 150
    assert only(records, r.RemedyAdded).value == 0.9


def test_without_such_a_checkpoint_the_rung_for_a_loss_scale_is_passed_over() -> None:
    """Ranks that report no scale leave nothing to choose by: the next rung goes by the step."""
    harness = going_back({"before": 1, "scale_at_least": 1.0}, {"before": 100})
    records = found(harness, step=310)
    assert "with a loss scale of 1 or more" in only(records, TrialEnded).evidence
    assert only(records, RunRewound).rewind.step == 200
