"""The last outcome of each check of a node: which group it is in after further answers, and what an agent's nonsense does."""

from typing import Any

import pytest

from runner.decide.state.check_outcomes import MAX_CHECKS_KEPT, merged
from runner.facts.messages.records_checks import OutcomeGroup


def answer(**outcomes: str) -> dict[str, Any]:
    """Make the detail of an agent's answer."""
    return {"checks": [{"check": name, "outcome": each} for name, each in outcomes.items()]}


def test_a_later_answer_takes_the_place_of_earlier_ones_check_by_check() -> None:
    """A passive look leaves what it does not cover as it was."""
    groups = merged([], answer(clock="PASS", rate="PASS", gpu="UNKNOWN"), at=1.0, level="quick")
    groups = merged(groups, answer(clock="FAIL", gpu="UNKNOWN"), at=2.0, level="passive")
    assert groups == [
        OutcomeGroup(outcome="PASS", at=1.0, level="quick", checks=("rate",)),
        OutcomeGroup(outcome="FAIL", at=2.0, level="passive", checks=("clock",)),
        OutcomeGroup(outcome="UNKNOWN", at=2.0, level="passive", checks=("gpu",)),
    ]


@pytest.mark.parametrize(
    "detail",
    [{}, {"checks": None}, {"checks": [1, {"check": 2, "outcome": "PASS"}]}, answer(clock="FINE")],
)
def test_what_is_no_outcome_changes_nothing(detail: dict[str, Any]) -> None:
    """An agent may send anything; the state keeps what it knew."""
    before = merged([], answer(clock="PASS"), at=1.0, level="")
    assert merged(before, detail, at=2.0, level="quick") == before


def test_names_without_end_are_bounded() -> None:
    """An agent that makes up names of checks takes no more of the state than one answer."""
    groups: list[OutcomeGroup] = []
    for number in range(5):
        names = {f"c{number}-{each}": "PASS" for each in range(50)}
        groups = merged(groups, answer(**names), at=float(number), level="")
    assert sum(len(group.checks) for group in groups) <= MAX_CHECKS_KEPT
    assert groups[-1].at == 4.0
