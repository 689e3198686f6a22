"""Resume: what a restart has lost shows in the first repeated steps; noise, other data, remedies and sick steps do not."""

import csv
import math
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from runner.detect.detector import Detector
from runner.detect.resume.check import ResumeCheck
from runner.detect.resume.comparison import STAGES, WINDOW, ResumeRules, mismatch
from runner.facts.faults import Finding
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat, StepRecord
from runner.facts.watch import PastStep, Resumed, WatchedAttempt, WatchList

ONE, TWO, THREE = AttemptId(1, 1, 0), AttemptId(1, 1, 1), AttemptId(1, 2, 0)
CURVES = Path(__file__).parents[3] / "../shared" / "data" / "curves"
RESUME = 200


def lr_of(step: int) -> float:
    """A warm-up, then a slow decay."""
    return 6e-4 * min(1.0, step / 100) * (1 - step / 10_000)


def run(seed: int, *, noise: float = 0.02, last: int = RESUME + 100) -> list[PastStep]:
    """Make the steps of the first attempt: a loss that falls, with noise in proportion."""
    draw = random.Random(seed)
    return [
        PastStep(ONE, step, (2 + 4 / math.sqrt(step)) * (1 + draw.gauss(0, noise)), lr_of(step))
        for step in range(1, last + 1)
    ]


def again(
    past: Sequence[PastStep],
    loss: Callable[[float, int], float] = lambda loss, index: loss,
    lr: Callable[[float, int], float] = lambda lr, index: lr,
) -> dict[int, PastStep]:
    """Make those steps again, after the restart, changed; `index` counts from 1."""
    steps = [step for step in past if RESUME < step.step <= RESUME + WINDOW]
    return {
        step.step: PastStep(TWO, step.step, loss(step.loss or 0, n), lr(step.lr or 0, n))
        for n, step in enumerate(steps, start=1)
    }


def judged(past: Sequence[PastStep], steps: Mapping[int, PastStep], **rules: object) -> str:
    """Compare them all."""
    plain = {"resume_step": RESUME, "lr_attempt": ONE, **rules}
    return mismatch(ResumeRules(**plain), past, steps, is_last=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("noise", [0.0, 0.003, 0.03, 0.2])
def test_an_equal_resume_is_silent(noise: float) -> None:
    """Bit by bit, with a GPU's order of adding, and with other data of the same kind, however noisy the loss."""
    for seed in range(40):
        past, draw = run(seed, noise=noise), random.Random(seed)
        other = {step.step: step for step in run(1000 + seed, noise=noise)}
        assert judged(past, again(past)) == ""
        assert judged(past, again(past, lambda x, n, d=draw: x * (1 + d.gauss(0, 1e-4)))) == ""  # type: ignore[misc]
        redrawn = again(past, lambda x, n, o=other: o[RESUME + n].loss or 0)  # type: ignore[misc]
        assert judged(past, redrawn) == ""


def test_a_schedule_that_began_again_is_found() -> None:
    """At its third repeated step, with what was due; and a rate that is off by little more than logs round."""
    past = run(1)
    found = judged(past, again(past, lr=lambda lr, n: lr_of(n)))
    assert found == (
        "the learning rate is 5.999e-06 at step 201 and 1.799e-05 at step 203, due were 0.0005879 and 0.0005878"
    )
    assert judged(past, again(past, lr=lambda lr, n: lr * 1.07))
    assert judged(past, again(past, lr=lambda lr, n: float(f"{lr:.1e}"))) == ""
    assert judged(past, again(past, lr=lambda lr, n: math.nan))


def test_a_lost_optimizer_is_found_in_the_loss() -> None:
    """A loss that leaves the old one by a tenth within ten steps and comes back in fifty; not one that is a NaN at once."""
    for seed in range(20):
        past = run(seed, noise=0.01)
        bump = again(past, lambda x, n: x * (1 + 0.15 * min(n / 10, 1.0) * math.exp(-n / 50)))
        found = judged(past, bump)
        assert found.startswith("the loss of steps 201 to 2")
        assert "is the run's noise" in found


def test_another_checkpoint_is_found_and_steps_that_were_sick_before_are_not() -> None:
    """A loss below what it ever was is that of later weights; one that is as it was before the restart is a run that healed."""
    past = run(3, noise=0.005)
    assert "the loss of steps" in judged(past, again(past, lambda x, n: 0.8 * x))
    sick = [
        step._replace(loss=3 * (step.loss or 0)) if step.step > RESUME + 2 else step
        for step in past
    ]
    healed = again(past)
    assert judged(sick, healed) == ""
    assert judged(sick, again(sick)) == ""


def test_what_is_meant_to_change_is_no_mismatch() -> None:
    """Remedies say what rate is due; the loss is not compared from an onset or a skipped step on."""
    past = run(4)
    lower = again(past, lr=lambda lr, n: 0.9 * lr)
    assert "due were 0.0005879" in judged(past, lower)
    assert judged(past, lower, lr_ratio=0.9) == ""
    assert ", x0.9 of before" in judged(past, again(past), lr_ratio=0.9)
    assert judged(past, again(past), lr_ratio=None) == ""
    assert judged(past, again(past, lr=lambda lr, n: 0.0), lr_attempt=THREE) == ""
    worse = again(past, lambda x, n: 2 * x)
    assert judged(past, worse)
    assert judged(past, worse, loss_until=RESUME + 1) == ""


def test_other_data_is_found_where_it_is_reported() -> None:
    """Three steps in a row that read the data of others; from a range on that is newly skipped, they are due to."""
    past = [step._replace(data_step=float(step.step)) for step in run(4)]
    moved = {number: step._replace(data_step=number + 7.0) for number, step in again(past).items()}
    found = "steps 201 to 203 read the data of steps 208 to 210, due was that of 201 to 203"
    assert judged(past, moved) == found
    assert judged(past, moved, data_until=202) == ""
    assert judged(past, again(past)) == ""


def curve(name: str) -> list[float]:
    """Read the losses of a real run."""
    path = CURVES / name
    if not path.is_file():
        pytest.skip("the real curves are not here")
    with path.open() as file:
        rows = list(csv.DictReader(file))
    column = next(key for key in rows[0] if "loss" in key.lower())
    return [float(row[column]) for row in rows if row[column]]


@pytest.mark.parametrize(
    "name",
    [
        "gpt2_124m_first_half.csv",
        "clean_wmt_baseline_s3_t2.csv",
        "clean_wmt_nadamp_s0_t1.csv",
    ],
)
def test_real_curves_with_other_data_after_a_restart_are_silent(name: str) -> None:
    """Wherever a run is stopped, going on with the data of 20 samples later is within its noise; a jump by a half is not."""
    losses = curve(name)
    past = [PastStep(ONE, step, loss) for step, loss in enumerate(losses, start=1)]
    places = range(200, len(losses) - WINDOW - 20, max(1, len(losses) // 100))
    num_found = 0
    for place in places:
        steps = range(place + 1, place + WINDOW + 1)
        later = {step: PastStep(TWO, step, losses[step + 19]) for step in steps}
        jumped = {step: PastStep(TWO, step, 1.5 * losses[step - 1]) for step in steps}
        rules = ResumeRules(resume_step=place)
        assert mismatch(rules, past[place - 128 : place + WINDOW], later, is_last=True) == ""
        num_found += bool(mismatch(rules, past[place - 128 : place + WINDOW], jumped, is_last=True))
    assert num_found >= 0.9 * len(places)


# ---- the detector ---------------------------------------------------------------------------------------------------


def watch(**changes: object) -> WatchList:
    """Make a list with an attempt that resumed."""
    resumed = Resumed(**{"step": RESUME, "before": ONE, **changes})  # type: ignore[arg-type]
    gang = WatchedAttempt(
        attempt=TWO,
        nodes=("n1", "n2"),
        since=0.0,
        start_seconds=60.0,
        progress_seconds=60.0,
        resumed=resumed,
    )
    return WatchList(attempts=(gang,))


def report(
    detector: Detector, watched: WatchList, steps: Sequence[PastStep], *, share: int = 1
) -> list[object]:
    """Let n2 report steps, so many in a heartbeat, and n1 the same without a loss."""
    found: list[object] = []
    for begin in range(0, len(steps), share):
        some = steps[begin : begin + share]
        records = [StepRecord(step=one.step, loss=one.loss, lr=one.lr) for one in some]
        bare = [StepRecord(step=one.step, lr=9.0) for one in some]
        for node, reported in (("n1", bare), ("n2", records)):
            heartbeat = Heartbeat(
                node=node, incarnation=1, attempt=some[0].attempt, steps=tuple(reported)
            )
            found += detector.on_heartbeat(heartbeat, watched, 0.0)
    return found


@pytest.mark.parametrize("share", [1, 7, WINDOW])
def test_it_asks_once_and_reports_once_however_steps_and_history_come(share: int) -> None:
    """History first or last, steps one by one or all in one heartbeat: the same finding, at the first repeated step."""
    past = run(5)
    repeated = list(again(past, lr=lambda lr, n: lr_of(n)).values())
    findings: list[object] = []
    for is_history_first in (True, False):
        detector, watched = ResumeCheck(), watch()
        (wanted,) = detector.wanted(watched)
        assert (wanted.attempt, wanted.first, wanted.last) == (TWO, 72, RESUME + WINDOW)
        assert detector.wanted(watched) == []
        known = [step for step in past if wanted.first <= step.step <= wanted.last]
        found: list[object] = [*detector.recall(wanted, known)] if is_history_first else []
        found += report(detector, watched, repeated, share=share)
        found += [] if is_history_first else detector.recall(wanted, known)
        assert len(found) == 1
        findings += found
    first = findings[0]
    assert isinstance(first, Finding)
    assert (first.fault, first.step, first.attempt) == ("resume_mismatch", RESUME + 1, TWO)
    assert first.evidence.startswith(
        "resumed at step 200, and did not go on as 1.1.0 had: the lear"
    )
    assert all(one == first for one in findings)


def test_a_supervisor_that_takes_over_in_the_middle_compares_what_the_history_has() -> None:
    """The first repeated steps were reported to the one before it."""
    past = run(6)
    repeated = list(again(past, lambda x, n: 2 * x).values())
    detector, watched = ResumeCheck(), watch()
    (wanted,) = detector.wanted(watched)
    assert detector.recall(wanted, [*past, *repeated[:3]]) == []
    assert len(report(detector, watched, repeated[3:])) == 1


@pytest.mark.parametrize(
    ("before", "after", "is_found"),
    [
        ({}, {"lr_factor": 0.9}, True),
        ({"lr_factor": 0.9, "lr_peak": 1e-3}, {"lr_factor": 0.9, "lr_peak": 9e-4}, True),
        ({}, {"lr_peak": 5e-4}, False),
        ({}, {"lr": 5e-4}, False),
        ({"clip": 1.0}, {"clip": 0.5}, True),
    ],
)
def test_remedies_change_what_is_due(
    before: dict[str, object], after: dict[str, object], is_found: bool
) -> None:
    """A rate that stays as it was although a factor was to change it is found; where the due rate is not known, none is."""
    past = run(7)
    scale = 0.8 if "clip" in after else 1.0
    detector, watched = ResumeCheck(), watch(remedies=after, remedies_before=before)
    (wanted,) = detector.wanted(watched)
    detector.recall(wanted, past)
    made = again(past, lambda x, n: 3 * x if "clip" in after else x, lambda lr, n: scale * lr)
    assert bool(report(detector, watched, list(made.values()))) == is_found


@pytest.mark.parametrize(
    ("changes", "is_found"),
    [
        ({"sick_from": RESUME + 3}, False),
        ({"remedies": {"skip_steps": [[RESUME + 2, RESUME + 9]]}}, False),
        ({"remedies": {"skip_steps": [[5, 9]]}, "remedies_before": {"skip_steps": [[5, 9]]}}, True),
        ({"remedies": {"optimizer_reset": [RESUME]}}, False),
        ({"remedies": {"lr_factor": 1.0}}, True),
    ],
)
def test_the_loss_is_not_compared_where_it_is_due_to_change(
    changes: dict[str, object], is_found: bool
) -> None:
    """Sick steps, skipped data and remedies of the optimizer change it; ranges skipped before as well do not."""
    past = run(8)
    detector, watched = ResumeCheck(), watch(**changes)
    (wanted,) = detector.wanted(watched)
    detector.recall(wanted, past)
    steps = list(again(past, lambda x, n: 2 * x).values())
    assert bool(report(detector, watched, steps)) == is_found


def test_an_attempt_from_nothing_or_without_a_history_is_not_compared() -> None:
    """Nor is one whose history ends where it resumed."""
    nothing = WatchList(
        attempts=(
            WatchedAttempt(
                attempt=ONE, nodes=("n1",), since=0.0, start_seconds=1.0, progress_seconds=1.0
            ),
        )
    )
    assert ResumeCheck().wanted(nothing) == []
    for past in ([], run(9, last=RESUME)):
        detector, watched = ResumeCheck(), watch()
        (wanted,) = detector.wanted(watched)
        assert detector.recall(wanted, past) == []
        assert report(detector, watched, list(again(run(9), lambda x, n: 9 * x).values())) == []


def test_stages_end_with_the_window() -> None:
    """What is compared last is all that is kept."""
    assert max(STAGES) == WINDOW
