"""Answers of agents as results of an isolation: of a node alone by its checks, of a pair by both its ends. Pure.

What says nothing about the hardware counts as not measured: an agent that refuses, an interpreter without torch, a busy node.
"""

from collections.abc import Mapping
from math import exp, isfinite, log
from typing import Any

from runner.facts.actions import ActionResult
from runner.facts.messages.isolation import AloneResult, EndResult, PairResult

# What a node computes is right, and how fast it is. Checks of the package `healthchecks`; a test looks them up there.
EXACT_CHECK = "compute_exact"
RATE_CHECKS = ("compute_rate", "memory_bandwidth")
ALONE_CHECKS = (EXACT_CHECK, *RATE_CHECKS)
# Characters of what kept a measurement from a rate. Chosen.
MAX_TROUBLE = 200


def alone_result(result: ActionResult, *, node: str, number: int) -> tuple[AloneResult, str, str]:
    """Return what a node's checks say of it in round `number`, its hardware's class, and why there is no rate."""
    detail = result.detail if result.outcome == "done" else {}
    verdicts = [each for each in _items(detail.get("checks")) if isinstance(each, Mapping)]
    reasons = "; ".join(
        f"{each.get('check')}: {each.get('reason', '')}"
        for each in verdicts
        if each.get("outcome") != "PASS"
    )
    trouble = (reasons or ("" if verdicts else result.message or "no answer"))[:MAX_TROUBLE]
    found = AloneResult(
        round=number,
        node=node,
        rate=None if result.outcome != "done" else _rate(verdicts),
        is_wrong=any(
            (each.get("check"), each.get("outcome")) == (EXACT_CHECK, "FAIL") for each in verdicts
        ),
        # An agent that refuses has answered.
        is_failed=result.outcome == "unknown",
    )
    return found, str(detail.get("hardware_class", ""))[:MAX_TROUBLE], trouble


def _items(plain: object) -> list[Any]:
    return list(plain) if isinstance(plain, list | tuple) else []


def _rate(verdicts: list[Mapping[str, Any]]) -> float | None:
    """Return one rate for all that was measured: the geometric mean over kinds, each of its slowest device.

    So a part that is slow shows whatever the units are; nodes of one class have the same kinds.
    """
    slowest: dict[tuple[str, str], float] = {}
    for verdict in verdicts:
        if verdict.get("check") in RATE_CHECKS:
            measured = [_measured(each) for each in _items(verdict.get("evidence"))]
            values = [(kind, value) for kind, value in filter(None, measured)]
            if not values:
                return None
            for kind, value in values:
                slowest[kind] = min(value, slowest.get(kind, value))
    if not slowest:
        return None
    return exp(sum(log(value) for value in slowest.values()) / len(slowest))


def _measured(evidence: Any) -> tuple[tuple[str, str], float] | None:
    """Return the kind of a rate (its name and data type, whatever the device) and its value."""
    if not isinstance(evidence, Mapping) or evidence.get("better") != "higher":
        return None
    # Of what has a floor, the ratio says the same again.
    value = None if evidence.get("unit") == "ratio" else _positive(evidence.get("value"))
    if value is None:
        return None
    _, _, kind = str(evidence.get("subject", "")).partition(" ")
    return (str(evidence.get("name", "")), kind), value


def end_result(result: ActionResult, *, node: str, nodes: tuple[str, str]) -> EndResult:
    """Return what one end of a pair found."""
    if result.outcome == "unknown":
        return EndResult(nodes=nodes, node=node, trouble="no answer in time", is_silent=True)
    detail = result.detail
    is_unmeasured = (
        result.outcome == "failed" or bool(detail.get("not_measured")) or bool(detail.get("busy"))
    )
    rate = None if is_unmeasured else _positive(detail.get("rate"))
    trouble = str(detail.get("busy") or detail.get("trouble") or result.message)
    return EndResult(
        nodes=nodes,
        node=node,
        rate=rate,
        trouble="" if rate is not None else trouble[:MAX_TROUBLE],
        is_at_fault=detail.get("at_fault") == "self",
        is_unmeasured=is_unmeasured,
    )


def _positive(value: Any) -> float | None:
    """Return a rate that an agent sent, if it is one."""
    is_rate = isinstance(value, int | float) and isfinite(value) and value > 0
    return float(value) if is_rate else None


def pair_result(first: EndResult, second: EndResult, *, number: int) -> PairResult:
    """Return what both ends of a pair say in round `number`: the lower rate, or which end failed.

    An end that could not measure for a reason of its own says nothing about either, although the other waited for it. If exactly
    one end gave no answer, or failed itself, it is that one. What an end says of its peer is a claim, since a path that drops
    packets makes each miss the other: then both are named.
    """
    ends, nodes = (first, second), first.nodes
    if any(end.is_unmeasured for end in ends):
        return PairResult(round=number, nodes=nodes)
    rates = [end.rate for end in ends if end.rate is not None]
    if len(rates) == len(ends):
        return PairResult(round=number, nodes=nodes, rate=min(rates))
    silent = [end.node for end in ends if end.is_silent]
    named = silent or [end.node for end in ends if end.is_at_fault]
    failed = tuple(named) if len(named) == 1 else nodes
    return PairResult(round=number, nodes=nodes, failed=failed)
