"""Answers of agents become results: what is measured, what failed and at which end, and what says nothing about hardware."""

from typing import Any

import pytest

from healthchecks.registry import check_names
from runner.decide.nodes.isolation.results import (
    ALONE_CHECKS,
    alone_result,
    end_result,
    pair_result,
)
from runner.facts.actions import ActionResult
from runner.facts.messages.isolation import EndResult, PairResult

NODES = ("n1", "n2")


def rates(check: str, *values: float, outcome: str = "PASS", **more: Any) -> dict[str, Any]:
    """Return a verdict with one rate for each device."""
    evidence = [
        {
            "name": f"{check}.rate",
            "value": value,
            "subject": f"cuda:{number} float32",
            "better": "higher",
            **more,
        }
        for number, value in enumerate(values)
    ]
    return {"check": check, "outcome": outcome, "reason": "", "evidence": evidence}


def alone(*verdicts: dict[str, Any], outcome: str = "done") -> Any:
    """Return the result of a node alone whose checks have these verdicts."""
    answer = ActionResult(id="a1", outcome=outcome, detail={"checks": verdicts})  # type: ignore[arg-type]
    return alone_result(answer, node="n1", number=0)[0]


def test_checks_of_a_node_alone_exist() -> None:
    """The checks that an isolation asks for are checks of this release."""
    assert set(ALONE_CHECKS) <= set(check_names())


def test_a_slow_device_or_kind_lowers_the_rate_of_its_node() -> None:
    """One rate stands for all that was measured: half of one of two kinds is a ratio of 0.71, whichever device is slow."""
    sound = alone(rates("compute_rate", 100, 100), rates("memory_bandwidth", 2000, 2000)).rate
    slow_device = alone(rates("compute_rate", 100, 50), rates("memory_bandwidth", 2000, 2000)).rate
    slow_memory = alone(rates("compute_rate", 100, 100), rates("memory_bandwidth", 1000, 2000)).rate
    assert slow_device / sound == pytest.approx(0.5**0.5)
    assert slow_memory / sound == pytest.approx(0.5**0.5)


def test_a_rate_that_is_missing_is_no_rate() -> None:
    """Where a busy node measured one kind and not the other, nothing can be compared; a ratio to a floor is no rate."""
    unknown = {"check": "memory_bandwidth", "outcome": "UNKNOWN", "reason": "busy", "evidence": []}
    assert alone(rates("compute_rate", 100), unknown).rate is None
    assert alone(rates("compute_rate", 0.9, unit="ratio")).rate is None
    assert alone(rates("compute_rate", float("nan"))).rate is None
    assert alone().rate is None


def test_wrong_products_are_wrong_and_silence_is_a_failure() -> None:
    """Only the exact check makes a result wrong; a node that does not answer failed, and one that refuses did not."""
    wrong = {"check": "compute_exact", "outcome": "FAIL", "reason": "wrong rows"}
    slow = {"check": "compute_rate", "outcome": "FAIL", "reason": "below its floor"}
    assert alone(wrong).is_wrong
    assert not alone(slow).is_wrong
    assert alone(outcome="unknown").is_failed
    refused = alone(outcome="failed")
    assert (refused.is_failed, refused.is_wrong, refused.rate) == (False, False, None)


def end(node: str, outcome: str = "done", **detail: Any) -> EndResult:
    """Return what one end answered."""
    answer = ActionResult(id="a1", outcome=outcome, detail=detail)  # type: ignore[arg-type]
    return end_result(answer, node=node, nodes=NODES)


@pytest.mark.parametrize(
    ("first", "second", "rate", "failed"),
    [
        # Both measured: the slower end counts.
        ({"rate": 4.0}, {"rate": 3.5}, 3.5, ()),
        # One end died; the other says that its peer is gone, or names none.
        ({"outcome": "unknown"}, {"trouble": "closed", "at_fault": "peer"}, None, ("n1",)),
        ({"outcome": "unknown"}, {"trouble": "late", "at_fault": ""}, None, ("n1",)),
        ({"trouble": "crashed", "at_fault": "self"}, {"at_fault": "peer"}, None, ("n1",)),
        ({"trouble": "closed", "at_fault": "peer"}, {"rate": 3.0}, None, NODES),
        # Nothing came through, or both accuse each other: it does not show which.
        ({"trouble": "late"}, {"trouble": "late"}, None, NODES),
        ({"at_fault": "peer"}, {"at_fault": "peer"}, None, NODES),
        ({"outcome": "unknown"}, {"outcome": "unknown"}, None, NODES),
        # One could not measure: the other waited, and that says nothing.
        ({"not_measured": True, "trouble": "no torch"}, {"at_fault": "peer"}, None, ()),
        ({"busy": "60 %", "rate": 1.0}, {"rate": 1.0}, None, ()),
        ({"outcome": "failed"}, {"at_fault": "peer"}, None, ()),
        # Nonsense is no rate.
        ({"rate": float("nan")}, {"rate": 3.0}, None, NODES),
        ({"rate": -1}, {"rate": 3.0}, None, NODES),
    ],
)
def test_both_ends_make_one_result(
    first: dict[str, Any], second: dict[str, Any], rate: float | None, failed: tuple[str, ...]
) -> None:
    """The lower rate; the end that failed, if exactly one did; nothing where one of them could not measure."""
    found = pair_result(end("n1", **first), end("n2", **second), number=3)
    assert found == PairResult(round=3, nodes=NODES, rate=rate, failed=failed)
