"""What holds of every remedy, however many there will be."""

import math
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.decide.incidents.rungs.table import RUNGS
from runner.facts import wire
from runner.facts.messages.records import RemedyAdded, RemedyReverted
from runner.facts.messages.requests import AddRemedy
from runner.facts.remedies import (
    REMEDIES,
    LearningRate,
    LrFactor,
    LrPeak,
    Remedy,
    composed,
    disagreement,
    rate_in_words,
)
from runner.facts.remedies.applied import AppliedRemedy
from runner.facts.remedies.skipped_steps import data_step, num_skipped, union
from runner.facts.specs.runbook import RungVerb
from runner.history.applied_remedies import fold_remedy, in_effect

# Of each remedy, values within its bounds, and what a person writes for the first.
GOOD: dict[str, tuple[str, list[Any]]] = {
    "lr_peak": ("1e-4", [1e-4, 5e-5]),
    "lr": ("4e-5", [4e-5]),
    "lr_factor": ("0.9", [0.9, 0.5]),
    "skip_steps": ("5-6,9", [([5, 6], [9, 9]), ([6, 20],)]),
    "clip": ("0.3", [0.3]),
    "betas": ("0.9,0.95", [(0.9, 0.95), (0.8, 0.9)]),
    "precision": ("fp32", ["fp32", "bf16"]),
    "optimizer": ("sgd,5,9", [("sgd", 5, 9), ("sgd", 20, 21)]),
    "loss_scale_reset": ("", ["1.r1", "1.r2"]),
    "optimizer_reset": ("", ["1.r3"]),
}
WRONG: list[Any] = [0.0, -1.0, math.nan, math.inf, "", (), "NaN" * 20, ((3, 2),), ((0, 1),), [[1]]]
remedy = st.sampled_from([(name, value) for name, (_, values) in GOOD.items() for value in values])


@given(st.lists(remedy, max_size=8), st.data())
def test_what_is_left_is_what_was_never_reverted(
    added: list[tuple[Any, Any]], data: st.DataObject
) -> None:
    """Remedies added and reverted in any order compose to those that are left, in the order in which they were added."""
    applied: list[AppliedRemedy] = []
    left: list[tuple[str, Any]] = []
    for number, (name, value) in enumerate(added, 1):
        record = RemedyAdded(run=1, remedy=name, value=value, id=f"r{number}")
        applied = fold_remedy(applied, wire.decode(wire.encode(record)), now=0.0)
        gone = data.draw(st.sets(st.sampled_from([each.id for each in applied])))
        for remedy_id in sorted(gone):
            applied = fold_remedy(applied, RemedyReverted(run=1, id=remedy_id), now=1.0)
        left = [(each.name, each.value) for each in applied if each.state != "reverted"]
        assert in_effect(applied) == composed(left)
    assert [each.id for each in applied] == [f"r{n}" for n in range(1, len(added) + 1)]


def test_factors_multiply_and_a_peak_or_a_rate_replaces_them() -> None:
    """The schedule's new peak, or the rate instead of it, is the whole truth until the next factor."""
    remedies = LrFactor.joined(LrFactor.joined({}, 0.5), 0.5)
    assert remedies == {"lr_factor": 0.25}
    assert LrPeak.joined(remedies, 1e-4) == {"lr_peak": 1e-4}
    halved = [("lr_peak", 1e-3), ("lr_factor", 0.9), ("lr", 4e-5), ("lr_factor", 0.5)]
    assert composed(halved) == {"lr": 2e-5}
    assert composed([*halved, ("lr_peak", 1e-4)]) == {"lr_peak": 1e-4}
    # What is left of a factor on a rate, when the rate is reverted, multiplies the schedule.
    assert composed([("lr_peak", 1e-3), ("lr_factor", 0.5)]) == {"lr_peak": 1e-3, "lr_factor": 0.5}


@pytest.mark.parametrize("kind", list(REMEDIES.values()))
def test_every_remedy_refuses_what_is_no_value_of_it(kind: type[Remedy]) -> None:
    """The problem names the command; what a person writes for a good one is read as that."""
    text, values = GOOD[kind.name]
    for value in WRONG:
        assert kind.problem(value).startswith(
            f"{kind.command}:" if kind.command != "remedy" else kind.name
        )
    for value in values:
        assert kind.problem(value) == ""
        assert kind.words(value)
    if text:
        assert wire.to_plain(kind.parse(text)) == wire.to_plain(values[0])
    else:
        assert kind.parse("") == ""
    for wrong in ("x y", "1-", "1.2.3"):
        assert kind.form in _refusal(kind, wrong)
    if issubclass(kind, LearningRate):
        assert "give a positive number" in kind.problem(-1.0)


def _refusal(kind: type[Remedy], text: str) -> str:
    try:
        return kind.problem(kind.parse(text))
    except ValueError as error:
        return str(error)


def test_only_the_learning_rate_and_skips_are_ordered_without_a_person() -> None:
    """Within small bounds: at most to half, at most a few hundred data steps."""
    automatic = {kind.name for kind in REMEDIES.values() if kind.is_automatic}
    assert automatic == {"lr_peak", "lr", "lr_factor", "skip_steps"}
    for kind in REMEDIES.values():
        for value in GOOD[kind.name][1]:
            assert (kind.automatic_problem(value) == "") == kind.is_automatic
    assert "x0.5 to x1" in LrFactor.automatic_problem(1.5)
    assert "500 data steps" in REMEDIES["skip_steps"].automatic_problem(((1, 501),))


def test_what_is_read_back_is_compared_with_what_was_wanted() -> None:
    """Numbers to 1e-6, lists item by item, resets by their names; what is missing is not in effect."""
    wanted = composed((name, value) for name, (_, values) in GOOD.items() for value in values)
    read = wire.to_plain({**wanted, "optimizer_reset": ["1.r0", "1.r3"]})
    assert disagreement(wanted, read) == {}
    assert set(disagreement(wanted, {})) == set(wanted)
    for name, wrong in (("betas", [0.9, 0.951]), ("betas", [0.9]), ("skip_steps", [[5, 6]])):
        found = disagreement(wanted, {**read, name: wrong})
        assert list(found) == [name]
        assert f"{name} was to be" in found[name]
    missing = disagreement(wanted, {**read, "loss_scale_reset": ["1.r2"]})
    assert "1.r1 was to happen" in missing["loss_scale_reset"]


def test_requests_and_records_name_their_remedy() -> None:
    """A remedy added to the table can be asked for and recorded, with no other change."""
    for name, kind in REMEDIES.items():
        for value in GOOD[name][1]:
            request = AddRemedy(id="q", run="1", remedy=kind.name, value=value)
            record = RemedyAdded(run=1, remedy=request.remedy, value=request.value)
            for message in (request, record):
                decoded = wire.decode(wire.encode(message))
                assert wire.encode(decoded) == wire.encode(message)
            assert record.remedy == name


def test_a_remedy_of_something_else_is_no_part_of_the_learning_rate() -> None:
    """It follows the rate, and only when the trainer reports it."""
    settings = {"lr": 1e-3, "lr_factor": 0.5, "skip_steps": [], "optimizer_reset": []}
    before = rate_in_words(settings)
    assert before == "lr 0.001 (peak None, factor 0.5)"
    assert rate_in_words({**settings, "clip": 0.9}) == f"{before}, clip 0.9"


ranges = st.lists(
    st.tuples(st.integers(1, 60), st.integers(0, 9)).map(lambda pair: [pair[0], sum(pair)]),
    max_size=5,
)


@given(ranges, st.integers(0, 20), st.integers(0, 20))
def test_what_is_read_is_the_clean_order_minus_exactly_what_is_left_out(
    skipped: list[list[int]], done: int, ahead: int
) -> None:
    """From any point on, the steps read each data step that is not left out, once, in order."""
    after = (done, done + ahead)
    read = [data_step(step, skipped, after=after) for step in range(done + 1, done + 41)]
    left_out = {number for first, last in skipped for number in range(first, last + 1)}
    clean = (number for number in range(done + ahead + 1, 1000) if number not in left_out)
    assert read == [next(clean) for _ in read]
    assert num_skipped(skipped) == len(left_out)
    assert all(
        first > last + 1
        for (_, last), (first, _) in zip(union(skipped), union(skipped)[1:], strict=False)
    )


def test_every_rung_that_a_page_may_name_is_carried_out() -> None:
    """A verb without a function would fail when an incident needs it."""
    assert set(RUNGS) == set(get_args(RungVerb))
