"""Families of metrics about the checks of nodes. Times are those of the cluster's clock, seconds since 1970.

Rows are bounded, whatever the size of the fleet. Beyond a limit, checks that passed are counted in `stoker_check_nodes` alone, and
values of nodes are left out, of nodes without trouble first; `stoker nodes NODE` has all of them.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from msgspec import Raw
from msgspec.structs import force_setattr

from runner.facts import wire
from runner.facts.messages.cluster_status import CheckStatus, NodeChecks
from runner.facts.messages.records_checks import MeasuredValue, OutcomeGroup
from runner.serve.exposition import MetricFamily, gauge
from runner.serve.status_reader import decode_check_status
from runner.store.protocol import MAX_LARGE_BYTES

# Of checks and nodes, and of measured values: with them 2,000 nodes fit into 5 MB and 100 ms (bench.scrape).
MAX_CHECK_ROWS, MAX_VALUE_ROWS = 5_000, 5_000
OUTCOMES: tuple[Literal["PASS", "FAIL", "UNKNOWN"], ...] = ("PASS", "FAIL", "UNKNOWN")


def checks(status: CheckStatus) -> Iterator[MetricFamily]:
    """Yield the last outcome of each check by node, when it was, and what was measured and is compared with peers."""
    groups = [(each.node, group) for each in status.nodes for group in each.outcomes]
    num_rows = sum(len(group.checks) for _, group in groups)
    shown = groups if num_rows <= MAX_CHECK_ROWS else _troubled(groups)
    rows = {
        (node, check, group.outcome, group.level): 1
        for node, group in shown
        for check in group.checks
    }
    text = "1, labelled with the last outcome of a node's check, and the level at which it ran."
    yield gauge("stoker_node_check", text, rows, "node", "check", "outcome", "level")
    text = "When a node's check last ended."
    at = {(node, check): group.at for node, group in shown for check in group.checks}
    yield gauge("stoker_node_check_timestamp_seconds", text, at, "node", "check")
    text = "Checks of nodes that are not in these two families, because there are too many; those that passed first."
    yield gauge("stoker_node_checks_left_out", text, num_rows - len(rows))
    text = "Nodes by the last outcome of a check."
    yield gauge("stoker_check_nodes", text, _totals(groups), "check", "outcome")
    yield from _values(status)


def _troubled(groups: Sequence[tuple[str, OutcomeGroup]]) -> list[tuple[str, OutcomeGroup]]:
    """Return the outcomes that are no PASS, as many as fit."""
    shown, num_rows = list[tuple[str, OutcomeGroup]](), 0
    for node, group in groups:
        if group.outcome == "PASS":
            continue
        num_rows += len(group.checks)
        if num_rows > MAX_CHECK_ROWS:
            break
        shown.append((node, group))
    return shown


def _totals(groups: Sequence[tuple[str, OutcomeGroup]]) -> dict[tuple[str, str], int]:
    """Count nodes by check and outcome. Most nodes have the same groups, so these are counted first."""
    alike = Counter((group.checks, group.outcome) for _, group in groups)
    names = dict.fromkeys(check for checks, _ in alike for check in checks)
    totals: dict[tuple[str, str], int] = {
        (name, outcome): 0 for name in names for outcome in OUTCOMES
    }
    for (checks, outcome), count in alike.items():
        for check in checks:
            totals[check, outcome] += count
    return totals


class _UnreadChecks(NodeChecks):
    """The same with its values as they came."""

    values: Raw = Raw(b"[]")  # type: ignore[assignment]  # until `decode_shown` has put values there


class _UnreadCheckStatus(CheckStatus):
    nodes: tuple[_UnreadChecks, ...] = ()


def decode_shown(payload: bytes) -> CheckStatus:
    """Decode results of checks, of the values of nodes only those that `checks` shows: most of a large fleet's are not.

    Raises PermanentError when they are something else.
    """
    status: _UnreadCheckStatus | None = wire.decode_partly(
        _UnreadCheckStatus, "check_status", payload, limit_bytes=MAX_LARGE_BYTES
    )
    # An earlier release does not count them.
    if status is None or any(not each.num_values and each.values for each in status.nodes):
        return decode_check_status(payload)
    shown = _within_limit(_measured(status))
    parts: list[Any] = [each.values for each in shown]
    read = wire.decode_part(
        tuple[tuple[MeasuredValue, ...], ...], b"[" + b",".join(map(bytes, parts)) + b"]"
    )
    for node in status.nodes:
        force_setattr(node, "values", ())
    for each, values in zip(shown, read, strict=True):
        force_setattr(each, "values", values)
    return status


def _measured(status: CheckStatus) -> list[NodeChecks]:
    return [each for each in status.nodes if each.measured_at is not None]


def _num_values(node: NodeChecks) -> int:
    return node.num_values or len(node.values)


def _within_limit(nodes: Sequence[NodeChecks]) -> list[NodeChecks]:
    """Return the nodes whose values fit, those with values behind their peers' first."""
    shown, num_rows = list[NodeChecks](), 0
    for each in sorted(nodes, key=lambda each: -each.num_behind):
        num_rows += _num_values(each)
        if num_rows > MAX_VALUE_ROWS:
            break
        shown.append(each)
    return shown


def _values(status: CheckStatus) -> Iterator[MetricFamily]:
    measured = _measured(status)
    shown = _within_limit(measured)
    values = {
        (each.node, value.name, value.subject, value.unit): value.value
        for each in shown
        for value in each.values
    }
    text = "What checks measured last of a node's hardware, of the values that are compared with peers."
    labels = ("node", "name", "subject", "unit")
    yield gauge("stoker_node_measured_value", text, values, *labels)
    at = {each.node: each.measured_at for each in measured}
    text = "When that was measured."
    yield gauge("stoker_node_measured_timestamp_seconds", text, at, "node")
    behind = {each.node: each.num_behind for each in measured}
    text = "Measured values that are behind those of peers, or beyond a floor."
    yield gauge("stoker_node_values_behind", text, behind, "node")
    text = "Measured values that are not in these metrics, because there are too many."
    num_published, num_shown = (sum(map(_num_values, each)) for each in (measured, shown))
    num_left_out = status.num_left_out + num_published - num_shown
    yield gauge("stoker_measured_values_left_out", text, num_left_out)
