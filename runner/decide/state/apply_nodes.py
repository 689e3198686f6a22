"""Apply, the part about nodes: their life cycle, the hardware under their names, the pool and the domains they belong to."""

from collections.abc import Callable
from typing import Any

from runner.decide.state.cluster_state import (
    MAX_HARDWARE_FAULTS_KEPT,
    MAX_REFUSED_AGENTS_KEPT,
    OUT,
    Hardware,
    HardwareFault,
    Node,
    PendingDrain,
    State,
    shared_fields,
)
from runner.decide.state.targeted_check import CheckFinding, TargetedCheck
from runner.facts.messages import records as r
from runner.facts.messages.rank_stacks import gathered
from runner.facts.messages.records_checks import (
    CheckDeferred,
    CheckPostponed,
    CheckWanted,
    HardwareChecked,
    TargetedCheckBegun,
    TargetedCheckJudged,
    TargetedCheckResult,
    TargetedCheckWanted,
)
from runner.facts.specs.check_levels import covers

# Characters of why a node is out of service. Chosen.
MAX_REASON = 600
# Of hardware that was refused or failed, in a row: one may have passed by chance; the figure.
PASSES_AFTER_REPAIR = 2
# Of one machine: twice what one result may have; chosen.
MAX_MEASURED_KEPT = 400


def _node_expected(state: State, record: r.NodeExpected) -> None:
    if record.node not in state.nodes:
        _add_node(state, record.node, provided=True)


def _add_node(state: State, name: str, *, provided: bool) -> None:
    state.nodes[name] = Node(node=name, index=len(state.nodes), since=state.now, provided=provided)


def _node_registered(state: State, record: r.NodeRegistered) -> None:
    if record.node not in state.nodes:
        _add_node(state, record.node, provided=False)
    node = state.nodes[record.node]
    if (node.incarnation, node.instance_id) != (record.incarnation, record.instance_id):
        state.orphan_tasks(node.node)
    if node.hardware != record.hardware:
        node.check_outcomes, node.check_wanted = [], ""
    node.incarnation, node.hardware, node.slots = record.incarnation, record.hardware, record.slots
    node.address, node.pid, node.probes = record.address, record.pid, 0
    node.instance_id, node.refused_instance_id, node.left_behind = record.instance_id, "", []
    node.refusals = 0
    node.ended = False
    state.refused_agents.pop(record.node, None)


def _join_refused(state: State, record: r.JoinRefused) -> None:
    if record.node in state.nodes:
        node = state.nodes[record.node]
        node.refusals = node.refusals + 1 if node.refused_instance_id == record.instance_id else 1
        node.refused_instance_id = record.instance_id
    else:
        state.refused_agents.pop(record.node, None)
        state.refused_agents[record.node] = record.instance_id
        for name in list(state.refused_agents)[:-MAX_REFUSED_AGENTS_KEPT]:
            del state.refused_agents[name]
    state.count("joins_refused")


def _node_draining(state: State, record: r.NodeDraining) -> None:
    way = PendingDrain(**shared_fields(record, PendingDrain), since=state.now)
    state.nodes[record.node].pending_drain = None if record.to is None else way


def _hardware_seen(state: State, record: r.HardwareSeen) -> None:
    known = state.hardware.setdefault(record.hardware, Hardware(hardware=record.hardware))
    # The node no longer has it.
    for name in known.node_names:
        before = state.nodes.get(name)
        if name != record.node and before is not None and before.hardware == record.hardware:
            before.hardware = ""
    known.parts = list(record.parts)
    known.node_names = [name for name in known.node_names if name != record.node] + [record.node]


def _hardware_fault_recorded(state: State, record: r.HardwareFaultRecorded) -> None:
    known = state.hardware.setdefault(record.hardware, Hardware(hardware=record.hardware))
    hardware_fault = HardwareFault(**shared_fields(record, HardwareFault), at=state.now)
    known.faults = [*known.faults, hardware_fault][-MAX_HARDWARE_FAULTS_KEPT:]
    if record.fault == "node_unfit":
        known.passes_due, known.passed_at, known.passed_level = PASSES_AFTER_REPAIR, None, ""
        known.voided_at = state.now


def _void_pass(state: State, node: Node) -> None:
    known = state.hardware.get(node.hardware)
    if known is not None:
        known.passed_at, known.passed_level, known.voided_at = None, "", state.now
    state.count("hardware_faults")


def _hardware_judged(state: State, record: r.HardwareJudged) -> None:
    known = state.hardware.setdefault(record.hardware, Hardware(hardware=record.hardware))
    was_refused = bool(known.verdict)
    known.verdict, known.reason, known.by = record.verdict, record.reason, record.by
    known.judged_at = state.now
    if not record.verdict:
        known.faults = []
        if was_refused:
            known.passes_due = PASSES_AFTER_REPAIR


def _hardware_checked(state: State, record: HardwareChecked) -> None:
    known = state.hardware.setdefault(record.hardware, Hardware(hardware=record.hardware))
    known.hardware_class, known.behind = record.hardware_class, list(record.behind)
    known.num_behind = known.num_behind + 1 if record.behind else 0
    if record.values:
        _measured(state, known, record)
    if record.outcome == "PASS" and not record.behind:
        known.passes_due = max(0, known.passes_due - 1)
        if known.passed_at is None or covers(record.level, known.passed_level):
            known.passed_at, known.passed_level = state.now, record.level
    state.count(f"hardware_checks_{record.outcome.lower()}")


def _measured(state: State, known: Hardware, record: HardwareChecked) -> None:
    """Keep what a lower level did not measure again; all of it is as old as the oldest."""
    new = {(value.name, value.subject) for value in record.values}
    kept = [value for value in known.values if (value.name, value.subject) not in new]
    if not kept or known.measured_at is None:
        known.measured_at = state.now
    known.values = [*record.values, *kept][:MAX_MEASURED_KEPT]


def _check_wanted(state: State, record: CheckWanted) -> None:
    node = state.nodes[record.node]
    node.check_wanted, node.check_wanted_at = record.reason, state.now
    node.check_wanted_level = record.level
    node.check_request = record.request or node.check_request
    state.count("checks_wanted")


def _targeted_check_wanted(state: State, record: TargetedCheckWanted) -> None:
    fields = shared_fields(record, TargetedCheck)
    state.targeted_checks[record.node] = TargetedCheck(**fields)


def _targeted_check_begun(state: State, record: TargetedCheckBegun) -> None:
    check = state.targeted_checks[record.node]
    check.has_begun, check.control = True, record.control


def _targeted_check_result(state: State, record: TargetedCheckResult) -> None:
    found = CheckFinding(outcome=record.outcome, text=record.text)
    state.targeted_checks[record.node].found[record.checked] = found


def _targeted_check_judged(state: State, record: TargetedCheckJudged) -> None:
    del state.targeted_checks[record.node]
    node = state.nodes[record.node]
    if node.state == "maintenance" and record.verdict != "unknown":
        node.reason = f"{node.reason}; {record.text}"[:MAX_REASON]
    state.count(f"targeted_checks_{record.verdict}")


def _check_postponed(state: State, record: CheckPostponed) -> None:
    node = state.nodes[record.node]
    node.check_after, node.reason = record.until, record.reason
    node.num_postponed += 1
    state.count("checks_postponed")


def _check_deferred(state: State, record: CheckDeferred) -> None:
    node = state.nodes[record.node]
    node.check_after, node.check_awaits = record.until, record.task


def _spares_recorded(state: State, record: r.SparesRecorded) -> None:
    state.spares_low, state.spares_reached = record.low, not record.low


def _domain_state_recorded(state: State, record: r.DomainStateRecorded) -> None:
    name = f"{record.domain} {record.name}"
    if record.nodes:
        if name not in state.domains_down:
            state.count("domains_down")
        state.domains_down[name] = list(record.nodes)
    else:
        state.domains_down.pop(name, None)
    if record.back:
        state.domains_recovering.setdefault(name, state.now)
    else:
        state.domains_recovering.pop(name, None)


def _node_changed(state: State, record: r.NodeChanged) -> None:
    node = state.nodes[record.node]
    is_again = node.state == record.state
    if not is_again:
        node.since = state.now
    if record.state == "checking" and (record.incident is not None or node.state in OUT):
        # It is suspected of something, or a person had it: what it passed before says nothing of that.
        _void_pass(state, node)
    if record.state == "checking":
        node.unchecked, node.check_tries = True, node.check_tries + 1 if is_again else 0
    elif record.state in ("spare", "active"):
        node.unchecked = False
    is_up = record.state in ("spare", "active")
    if is_up:
        node.revived = False
    elif record.state == "absent":
        node.revived = node.state == "lost"
    if record.state == "suspect" and node.state == "lost":
        # If its heartbeats resume, it comes back by its checks.
        node.unchecked = True
    node.check_after, node.check_awaits, node.num_postponed = 0.0, "", 0
    node.domain_down = record.domain
    node.ended = record.state == "left" or record.ended or (node.ended and not is_up)
    if node.ended:
        state.orphan_tasks(node.node)
    node.state, node.reason, node.devices_busy = record.state, record.reason, record.devices_busy
    node.probes = node.probes + 1 if record.state == "suspect" and not record.devices_busy else 0
    if record.state != "suspect":
        node.unreachable = 0
        node.gang_stepped_at, node.gang_step_seconds, node.kept_in_service_at = None, 0.0, None
    way = node.pending_drain
    if way is not None and record.state in (way.to, "left", "retired"):
        node.pending_drain = None
    state.count(f"nodes_{record.state}")


def _gang_advanced(state: State, record: r.GangSteppedOn) -> None:
    for name in record.nodes:
        node = state.nodes[name]
        node.gang_stepped_at, node.gang_step_seconds = state.now, record.step_seconds


def _node_kept(state: State, record: r.NodeKeptInService) -> None:
    state.nodes[record.node].kept_in_service_at = state.now


def _assigned(state: State, record: r.Assigned) -> None:
    node = state.nodes[record.node]
    node.generation, node.attempt = record.generation, record.attempt
    node.grace_seconds, node.stacks_seconds = record.grace_seconds, record.stacks_seconds
    if record.attempt is not None:
        node.ranks_may_run = record.attempt
    state.next_generation = max(state.next_generation, record.generation + 1)


def _node_cleared(state: State, record: r.NodeCleared) -> None:
    node = state.nodes[record.node]
    if node.ranks_may_run == record.attempt:
        node.ranks_may_run = None
        node.left_behind = list(record.left_behind)
    attempt = state.attempt_of(record.attempt)
    if attempt is not None:
        attempt.dead_rank_seen = True
        if record.rank_stacks:
            attempt.rank_stacks = gathered(attempt.rank_stacks, record.rank_stacks)


def _correlated_silence_recorded(state: State, record: r.CorrelatedSilenceRecorded) -> None:
    # A probe of one of many silent nodes proves nothing about it.
    for name in state.correlated_silence:
        if name in state.nodes:
            state.nodes[name].unreachable = 0
    state.correlated_silence = list(record.nodes)


OF_NODES: dict[type, Callable[[State, Any], None]] = {
    r.NodeExpected: _node_expected,
    r.NodeRegistered: _node_registered,
    r.JoinRefused: _join_refused,
    r.NodeDraining: _node_draining,
    r.HardwareSeen: _hardware_seen,
    r.HardwareFaultRecorded: _hardware_fault_recorded,
    r.HardwareJudged: _hardware_judged,
    HardwareChecked: _hardware_checked,
    CheckWanted: _check_wanted,
    CheckPostponed: _check_postponed,
    CheckDeferred: _check_deferred,
    TargetedCheckWanted: _targeted_check_wanted,
    TargetedCheckBegun: _targeted_check_begun,
    TargetedCheckResult: _targeted_check_result,
    TargetedCheckJudged: _targeted_check_judged,
    r.SparesRecorded: _spares_recorded,
    r.DomainStateRecorded: _domain_state_recorded,
    r.NodeChanged: _node_changed,
    r.GangSteppedOn: _gang_advanced,
    r.NodeKeptInService: _node_kept,
    r.Assigned: _assigned,
    r.NodeCleared: _node_cleared,
    r.CorrelatedSilenceRecorded: _correlated_silence_recorded,
}
