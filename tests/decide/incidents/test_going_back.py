"""The rung that goes back: where to, what it changes, what it refuses, and that all of it is taken back when it does not help."""

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
