"""What holds of every remedy, however many there will be."""

import itertools
import math
from typing import get_args

import pytest

from runner.decide.incidents.ladder import RUNGS
from runner.facts import wire
from runner.facts.messages.records import RemedyAdded
from runner.facts.messages.requests import AddRemedy
from runner.facts.remedies import REMEDIES, LrFactor, LrPeak, Remedy, rate_in_words
from runner.facts.specs.runbook import RungVerb


@pytest.mark.parametrize("kinds", list(itertools.product(REMEDIES.values(), repeat=3)))
def test_adding_a_run_s_remedies_one_by_one_gives_them_again(
    kinds: tuple[type[Remedy], ...],
) -> None:
    """So a run that goes on from another one's checkpoints takes its remedies over."""
    remedies: dict[str, float] = {}
    for kind in kinds:
        remedies = kind.joined(remedies, 0.5)
    again: dict[str, float] = {}
    for name, value in remedies.items():
        again = REMEDIES[name].joined(again, value)
    assert list(again.items()) == list(remedies.items())


def test_factors_multiply_and_a_peak_replaces_them() -> None:
    """The schedule's new peak is the whole truth until the next factor."""
    remedies = LrFactor.joined(LrFactor.joined({}, 0.5), 0.5)
    assert remedies == {"lr_factor": 0.25}
    assert LrPeak.joined(remedies, 1e-4) == {"lr_peak": 1e-4}


@pytest.mark.parametrize("kind", list(REMEDIES.values()))
def test_no_remedy_takes_a_value_that_is_no_positive_number(kind: type[Remedy]) -> None:
    """The problem asks for a positive number."""
    for value in (0.0, -1.0, math.nan, math.inf):
        assert "give a positive number" in kind.problem(value)
    assert kind.problem(0.9) == ""


def test_requests_and_records_name_their_remedy() -> None:
    """A remedy added to the table can be asked for and recorded, with no other change."""
    for name, kind in REMEDIES.items():
        request = AddRemedy(id="q", run="1", remedy=kind.name, value=0.5)
        record = RemedyAdded(run=1, remedy=request.remedy, value=request.value)
        assert wire.decode(wire.encode(request)) == request
        assert wire.decode(wire.encode(record)) == record
        assert record.remedy == name


def test_a_remedy_of_something_else_is_no_part_of_the_learning_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It follows the rate, and only when the trainer reports it."""

    class Clip(Remedy):
        label = "clipping factor"

    settings = {"lr": 1e-3, "lr_factor": 0.5}
    before = rate_in_words(settings)
    monkeypatch.setitem(REMEDIES, "clip", Clip)
    assert rate_in_words(settings) == before == "lr 0.001 (peak None, factor 0.5)"
    assert rate_in_words({**settings, "clip": 0.9}) == f"{before}, clipping factor 0.9"


def test_every_rung_that_a_page_may_name_is_carried_out() -> None:
    """A verb without a function would fail when an incident needs it."""
    assert set(RUNGS) == set(get_args(RungVerb))
