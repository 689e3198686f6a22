"""The comparison of detectors: every rule can fire, limits are moved fairly, and what is varied is put back."""

import random
from collections.abc import Sequence
from xml.etree import ElementTree

import pytest

from bench.detectors import __main__ as detectors
from bench.detectors.plot import plot
from bench.detectors.rules import RULES, Known
from bench.detectors.runs import with_blow_up
from bench.detectors.scores import (
    FAULT_AT,
    FAULT_SAMPLES,
    Score,
    apart,
    faulty_runs,
    healthy_runs,
    limit_for,
    ours,
    score_faults,
    theirs,
)
from bench.detectors.sensitivity import PARAMETERS, changed
from bench.report import Report
from runner.detect.numerics import loss
from runner.facts.messages.signals import StepRecord


def steady(num_samples: int) -> list[StepRecord]:
    """Make a run with a little noise, long settled."""
    chance = random.Random(1)
    return [
        StepRecord(step=at, loss=2 + chance.gauss(0, 0.01), grad_norm=0.4 + chance.gauss(0, 0.01))
        for at in range(num_samples)
    ]


def jumping(num_samples: int, at: int, factor: float) -> list[StepRecord]:
    """Make a run whose loss and gradient norm jump and stay."""
    return [
        StepRecord(
            step=one.step, loss=(one.loss or 0) * factor, grad_norm=(one.grad_norm or 0) * factor
        )
        if one.step >= at
        else one
        for one in steady(num_samples)
    ]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule.name))
def test_every_rule_fires_and_keeps_quiet(rule: Known) -> None:
    """Each rule with its authors' limit finds a twentyfold jump, and has no alarm in the first samples of a calm run."""
    alarms = theirs(rule, rule.limit)
    assert any(400 <= at < 410 for at in alarms(jumping(500, 400, 20.0)))
    assert not alarms(steady(20))
    broken = [*steady(300), StepRecord(step=300, loss=float("nan"), grad_norm=float("nan"))]
    assert rule.make().score(broken[-1]) == float("inf")
    assert any(280 <= at <= 300 for at in alarms(broken))


def test_alarms_that_belong_together_are_one() -> None:
    """Alarms within twenty samples of the one before are part of it."""
    assert apart([5, 6, 20, 41, 100]) == [5, 41, 100]


@pytest.mark.costly
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule.name))
def test_a_moved_limit_keeps_the_budget(rule: Known) -> None:
    """With the limit found for it a rule alarms no more often than it may; for none at all it takes a higher one."""
    runs = list(healthy_runs([], 10_000, "test"))
    some, none = limit_for(rule, runs, 2), limit_for(rule, runs, 0)
    assert some < none
    assert sum(len(theirs(rule, some)(run)) for run in runs) in (1, 2)
    assert not any(theirs(rule, none)(run) for run in runs)


def test_scores_count_what_was_found_in_time() -> None:
    """An alarm before the fault or too long after it finds nothing."""
    runs = list(faulty_runs([], "blow-up", 4, "test"))
    assert all(len(run) == FAULT_SAMPLES for run in runs)
    assert score_faults(ours, runs, "blow-up").recall == 1.0

    def late(_run: Sequence[StepRecord]) -> list[int]:
        return [FAULT_AT - 1, FAULT_AT + 100]

    assert score_faults(late, runs, "blow-up") == Score(num_faults=4, delays=())


def test_faults_begin_where_they_are_put() -> None:
    """Before its fault a run is the healthy one."""
    run = steady(300)
    faulty = with_blow_up(run, 200, random.Random(1))
    assert faulty[:200] == run[:200]
    assert (faulty[299].loss or 0) > 1.4 * (run[299].loss or 0)


def test_what_is_varied_is_put_back() -> None:
    """Every parameter that is varied exists, changes, and has its value again afterwards."""
    for module, names in PARAMETERS:
        for name in names:
            usual = getattr(module, name)
            for factor in (2 / 3, 4 / 3):
                with changed(module, name, factor) as value:
                    assert getattr(module, name) == value != usual
            assert getattr(module, name) == usual
    assert isinstance(loss.WINDOW, int)


def test_the_plot_is_an_image() -> None:
    """The plot is well formed and names rules and kinds of fault."""
    scores = {"spike": {"ours": Score(num_faults=2, delays=(0, 3))}}
    image = plot(scores, "words")
    assert ElementTree.fromstring(image).tag.endswith("svg")
    assert "2 of 2, median 1.5 samples" in image


def test_the_cost_of_a_record_has_a_limit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Processor time of all records is printed beside the reference loop's."""
    monkeypatch.setattr(detectors, "TIMED_RECORDS", 1000)
    detectors.timing(Report("title", "how"), [])
    figure, ratio = capsys.readouterr().out.splitlines()[-2:]
    assert "<= 50 us | PASS" in figure or "<= 50 us | MISS" in figure
    assert "x the loop, limit 4.464;" in ratio
