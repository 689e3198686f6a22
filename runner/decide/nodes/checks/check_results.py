"""What the checks of a node say about its hardware: values for its peers, how long a pass counts, and what a repair owes.

Results belong to hardware, not to names. A pass forgives nothing by itself: after a repair two in a row are needed. A check
without a verdict says nothing about the hardware.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal

from runner.decide.decision import Decision
from runner.decide.nodes.checks.fleet_rules import (
    VERSION,
    Key,
    behind_peers,
    describe,
    is_beyond,
    is_floor_suspect,
    key_of,
)
from runner.decide.nodes.predicates import others_of_machine
from runner.decide.state.cluster_state import Node, State
from runner.facts.actions import ActionResult, NodeTask
from runner.facts.messages.records_checks import HardwareChecked, MeasuredValue
from runner.facts.specs.check_levels import covers
from runner.facts.specs.cluster import ClusterSpec

HOUR_SECONDS = 3600.0
# Of one result; chosen: a class of hardware has some dozens.
MAX_VALUES = 200
MAX_TEXT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedFloor:
    """A value that a check declared to be beyond its floor."""

    value: MeasuredValue
    floor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The outcome of a node's checks. `below`: values beyond their floors; `is_weak`: a FAIL for nothing else."""

    outcome: Literal["PASS", "FAIL", "UNKNOWN"]
    # UNKNOWN for nothing but that the machine was busy with something else.
    is_busy: bool
    checks: tuple[str, ...]
    hardware_class: str
    values: tuple[MeasuredValue, ...]
    below: tuple[MissedFloor, ...]
    is_weak: bool


def read(result: ActionResult) -> CheckResult:
    """Take an agent's answer apart; what does not fit is left out."""
    detail = result.detail if result.outcome == "done" else {}
    verdicts = _mappings(detail.get("checks"))
    values: list[MeasuredValue] = []
    below: list[MissedFloor] = []
    is_weak = True
    for verdict in verdicts:
        found = list(_compared(verdict))
        values += [value for value, _ in found]
        below += [
            MissedFloor(value=value, floor=floor)
            for value, floor in found
            if floor is not None and is_beyond(value, floor)
        ]
        is_weak &= verdict.get("outcome") != "FAIL" or _fails_floors_only(verdict)
    outcome = detail.get("outcome")
    return CheckResult(
        outcome=outcome if outcome in ("PASS", "FAIL") else "UNKNOWN",
        is_busy=detail.get("is_busy") is True and outcome not in ("PASS", "FAIL"),
        checks=tuple(str(each.get("check")) for each in verdicts if each.get("outcome") == "PASS"),
        hardware_class=str(detail.get("hardware_class", ""))[:MAX_TEXT],
        values=tuple(values[:MAX_VALUES]),
        below=tuple(below),
        is_weak=is_weak and bool(below),
    )


def _mappings(plain: object) -> list[Mapping[str, Any]]:
    """Return the mappings of a list that an agent sent, if it is one."""
    items = plain if isinstance(plain, list | tuple) else ()
    return [each for each in items if isinstance(each, Mapping)]


def _compared(verdict: Mapping[str, Any]) -> Iterator[tuple[MeasuredValue, float | None]]:
    """Return what is compared with peers, each with its floor."""
    for each in _mappings(verdict.get("evidence")):
        value, limit, better = each.get("value"), each.get("limit"), each.get("better")
        if better not in ("higher", "lower", "same") or not isinstance(value, int | float):
            continue
        if not isfinite(value):
            continue
        texts = {name: str(each.get(name, ""))[:MAX_TEXT] for name in ("name", "unit", "subject")}
        measured = MeasuredValue(value=float(value), better=better, **texts)
        floor = float(limit) if isinstance(limit, int | float) and better != "same" else None
        yield measured, floor


def _fails_floors_only(verdict: Mapping[str, Any]) -> bool:
    failed = [each for each in _mappings(verdict.get("evidence")) if each.get("outcome") == "FAIL"]
    return bool(failed) and all(each.get("better") for each in failed)


def record(decision: Decision, node: Node, work: NodeTask, result: CheckResult) -> tuple[str, ...]:
    """Record a result with the node's hardware; return which values are behind, of peers or by a floor."""
    peers = _peers(decision, node, result)
    behind = (
        *behind_peers(result.values, peers),
        *(f"{describe(each.value)} (floor {each.floor:g})" for each in result.below),
    )
    if node.hardware and result.outcome != "UNKNOWN":
        decision.add(
            HardwareChecked(
                hardware=node.hardware,
                node=node.node,
                outcome=result.outcome,
                level=str(work.args.get("level", "")),
                checks=result.checks,
                hardware_class=result.hardware_class,
                values=result.values,
                behind=behind,
            )
        )
    return behind


def is_software(decision: Decision, node: Node, result: CheckResult) -> bool:
    """Whether nothing is behind but versions of what is installed."""
    others = [value for value in result.values if value.unit != VERSION]
    return not result.below and not behind_peers(others, _peers(decision, node, result))


def peers_of(
    state: State, hardware: str, hardware_class: str, *, cluster: ClusterSpec, now: float
) -> dict[Key, list[float]]:
    """Return the values of other hardware of a class, as long as they count."""
    found: dict[Key, list[float]] = {}
    for known in state.hardware.values():
        is_peer = known.hardware != hardware and known.hardware_class == hardware_class
        at = known.measured_at
        if not is_peer or not hardware_class or at is None:
            continue
        if now - at > cluster.check_valid_hours * HOUR_SECONDS:
            continue
        for value in known.values:
            found.setdefault(key_of(value), []).append(value.value)
    return found


def _peers(decision: Decision, node: Node, result: CheckResult) -> dict[Key, list[float]]:
    state, cluster, now = decision.state, decision.policy.cluster, decision.now
    return peers_of(state, node.hardware, result.hardware_class, cluster=cluster, now=now)


def suspect_floors(decision: Decision, node: Node, result: CheckResult) -> list[MissedFloor]:
    """Return the floors that all peers miss, too."""
    peers = _peers(decision, node, result)
    return [
        each
        for each in result.below
        if is_floor_suspect(each.value, each.floor, peers.get(key_of(each.value), ()))
    ]


def has_valid_pass(state: State, node: Node, cluster: ClusterSpec, now: float) -> bool:
    """Whether the node's machine passed this level not long ago, and nothing has happened to the node's hardware since."""
    if owes_checks(state, node):
        return False
    passed_at = last_pass(state, node, cluster)
    return passed_at is not None and now - passed_at < cluster.check_valid_hours * HOUR_SECONDS


def last_pass(
    state: State, node: Node, cluster: ClusterSpec, *, machine: Sequence[Node] | None = None
) -> float | None:
    """Return when this level was last passed, by the node or another one of its machine; None: not since the node was suspected.

    `machine`: all nodes of it, where the caller knows them: to look for them takes a pass over the fleet.
    """
    nodes = machine or (node, *others_of_machine(state, node))
    own = state.hardware.get(node.hardware)
    times = [_pass_at(state, each, cluster) for each in nodes]
    newest = max((at for at in times if at is not None), default=None)
    if newest is None or own is None:
        return newest
    is_void = own.voided_at is not None and own.voided_at > newest
    return None if is_void or any(fault.at > newest for fault in own.faults) else newest


def _pass_at(state: State, node: Node, cluster: ClusterSpec) -> float | None:
    known = state.hardware.get(node.hardware)
    if known is None or known.passed_at is None or owes_checks(state, node):
        return None
    has_failed = any(fault.at > known.passed_at for fault in known.faults)
    counts = not has_failed and covers(known.passed_level, cluster.check_level)
    return known.passed_at if counts else None


def owes_checks(state: State, node: Node) -> bool:
    """Whether the node's own hardware has to be measured, whatever others of its machine passed."""
    known = state.hardware.get(node.hardware)
    return known is not None and bool(known.passes_due or known.behind)


def passes_due(state: State, node: Node) -> int:
    """Return how many passes in a row the node's hardware owes after a repair; 0 or 1: one is enough."""
    known = state.hardware.get(node.hardware)
    return known.passes_due if known is not None else 0
