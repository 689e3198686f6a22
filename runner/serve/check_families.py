"""Families of metrics about the checks of nodes. Times are those of the cluster's clock, seconds since 1970.

Rows are bounded: a node has one for each check, with its last outcome only, and the supervisor publishes at most 50,000 values.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Literal

from runner.facts.messages.cluster_status import CheckStatus
from runner.serve.exposition import MetricFamily, gauge

OUTCOMES: tuple[Literal["PASS", "FAIL", "UNKNOWN"], ...] = ("PASS", "FAIL", "UNKNOWN")


def checks(status: CheckStatus) -> Iterator[MetricFamily]:
    """Yield the last outcome of each check by node, when it was, and what was measured and is compared with peers."""
    last = {
        (each.node, check): group
        for each in status.nodes
        for group in each.outcomes
        for check in group.checks
    }
    rows = {(*key, group.outcome, group.level): 1 for key, group in last.items()}
    text = "1, labelled with the last outcome of a node's check, and the level at which it ran."
    yield gauge("stoker_node_check", text, rows, "node", "check", "outcome", "level")
    text = "When a node's check last ended."
    at = {key: group.at for key, group in last.items()}
    yield gauge("stoker_node_check_timestamp_seconds", text, at, "node", "check")
    counts = Counter((check, group.outcome) for (_, check), group in last.items())
    names = dict.fromkeys(check for _, check in last)
    totals = {(name, outcome): counts[name, outcome] for name in names for outcome in OUTCOMES}
    text = "Nodes by the last outcome of a check."
    yield gauge("stoker_check_nodes", text, totals, "check", "outcome")
    yield from _values(status)


def _values(status: CheckStatus) -> Iterator[MetricFamily]:
    measured = [each for each in status.nodes if each.measured_at is not None]
    values = {
        (each.node, value.name, value.subject, value.unit): value.value
        for each in measured
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
    yield gauge("stoker_measured_values_left_out", text, status.num_left_out)
