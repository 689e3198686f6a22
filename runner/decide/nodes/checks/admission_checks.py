"""Admission checks: a node must pass them before it takes ranks, whenever it joins the pool. Unknown is not healthy.

A value that is behind those of the node's peers, or beyond a floor, is one weak sign: the node is checked once more, when no other
node is, and blamed if the sign is there again. A floor that all peers miss is suspect itself, and no node is blamed for it.
"""

from collections.abc import Mapping
from typing import Any

from runner.decide.decision import Decision
from runner.decide.incidents.ladder import respond
from runner.decide.nodes.checks import check_results, tasks_under_way
from runner.decide.nodes.checks.check_results import CheckResult
from runner.decide.nodes.hardware import may_quarantine, record_hardware_fault
from runner.decide.nodes.predicates import is_same_machine, others_of_machine
from runner.decide.state.cluster_state import Node, State
from runner.facts.actions import Action, ActionResult, NodeTask
from runner.facts.faults import Finding
from runner.facts.messages.records import ActionIssued
from runner.facts.messages.records_checks import CheckPostponed
from runner.facts.specs.check_levels import LEVELS
from runner.facts.specs.cluster import CheckLevel

# At the same time: a fleet that joins at once is checked in turns, so that no result waits behind all others past its deadline;
# chosen, not measured.
MAX_AT_ONCE = 64
# Without a verdict in a row, before the node is quarantined; chosen, not measured.
MAX_TRIES = 2
# While a machine is busy, between two tries at first and at most, and from which one on a person knows; chosen, not measured.
BUSY_SECONDS, MAX_BUSY_SECONDS = 60.0, 600.0
BUSY_PAGE_TRIES = 3
# Characters of check results in pages and reasons; chosen, not measured.
MAX_SUMMARY = 300


def room(state: State) -> int:
    """Return how many more nodes may be checked now."""
    return MAX_AT_ONCE - state.num_open("node_task", "check")


def settle(decision: Decision, node: Node) -> bool:
    """Issue the checks of a node, one task at a time; without configured checks it is a spare. Return whether a task is issued.

    A task outlives the agent it was sent to: the next agent answers it, or its deadline passes and it is tried again.
    """
    cluster, state = decision.policy.cluster, decision.state
    if not cluster.wants_checks:
        decision.move_node(node.node, "spare", "the cluster wants no checks")
        return False
    if node.ranks_may_run is not None:
        # They have the devices that are to be checked.
        return False
    if decision.now < node.check_after:
        return False
    return issue(decision, node, why=_why(state, node))


def issue(decision: Decision, node: Node, *, why: str, level: CheckLevel | None = None) -> bool:
    """Send a node its checks, unless they are under way or have to wait for those of others; return whether they were sent.

    `level`: None for what is due.
    """
    cluster, state = decision.policy.cluster, decision.state
    if state.is_open("node_task", node.node, "check") or state.is_open("start_agent", node.node):
        return False
    if tasks_under_way.is_occupied(node, decision.now):
        return False
    wants_quiet = cluster.check_level or node.check_wanted_level or _is_behind(state, node)
    if wants_quiet and any(
        _disturbs(state, node, state.nodes[name]) for name in _being_checked(decision)
    ):
        return False
    if level is None:
        level = _level(decision, node)
    if level is None:
        return False
    decision.issue(
        NodeTask(
            node=node.node,
            task="check",
            generation=node.generation,
            args=args_of(decision, level),
        ),
        f"check {node.node}: {why}",
        deadline_seconds=cluster.seconds_of_checks_at(level),
    )
    return True


def _being_checked(decision: Decision) -> list[str]:
    """Return the nodes that are checked now, or will be by this decision."""
    issued = [each.action for each in decision.records if isinstance(each, ActionIssued)]
    actions = [*decision.state.open_tasks("check"), *issued]
    return [action.read(NodeTask).node for action in actions if action.args.get("task") == "check"]


def _disturbs(state: State, node: Node, other: Node) -> bool:
    """Whether a node has to wait for the checks of another: of its own machine; or, if it was behind, for a peer's first values."""
    shares_machine = is_same_machine(node, other)
    return shares_machine or (_is_behind(state, node) and not _is_behind(state, other))


def _is_behind(state: State, node: Node) -> bool:
    known = state.hardware.get(node.hardware)
    return known is not None and bool(known.behind)


def _why(state: State, node: Node) -> str:
    if _is_behind(state, node):
        return "once more, since it was behind"
    if node.checked is not None and node.checked.at >= node.since and not node.check_tries:
        return "once more, since it was out of service for a fault"
    return "once more" if node.check_tries else node.reason


def _level(decision: Decision, node: Node) -> CheckLevel | None:
    """Return how thoroughly to check: after a pass of its machine that still counts, only what may have changed since.

    Beside ranks of another node of its machine nothing is measured; None: what it owes waits for their end.
    """
    cluster, state = decision.policy.cluster, decision.state
    wanted = node.check_wanted_level if node.check_wanted else ""
    if not (wanted or cluster.check_level):
        return cluster.check_level
    if any(other.ranks_may_run is not None for other in others_of_machine(state, node)):
        return None if check_results.owes_checks(state, node) else LEVELS[0]
    if node.check_wanted:
        return wanted or cluster.check_level
    still_counts = check_results.has_valid_pass(state, node, cluster, decision.now)
    return LEVELS[0] if still_counts else cluster.check_level


def args_of(decision: Decision, level: CheckLevel) -> dict[str, Any]:
    """Return what the task of a node's checks says: which, and what the node should have."""
    args: dict[str, Any] = {"checks": list(decision.policy.cluster.checks)}
    pythons = (run.spec.python for run in decision.state.runs.values() if run.is_wanted)
    if python := next(filter(None, pythons), ""):
        args["python"] = python
    if not level:
        return args
    args["level"] = level
    if expected := decision.policy.cluster.hardware.as_args():
        args["expected"] = expected
    return args


def on_checked(decision: Decision, action: Action, result: ActionResult) -> None:
    """Admit or quarantine a node by its verdict; without one it is checked once more. That of a node with ranks is ignored."""
    work = action.read(NodeTask)
    node = decision.state.nodes.get(work.node)
    if node is None or node.state not in ("checking", "spare"):
        return
    found = check_results.read(result)
    was_behind = _is_behind(decision.state, node)
    behind = check_results.record(decision, node, work, found)
    if found.outcome == "UNKNOWN":
        if node.state == "checking" and found.is_busy:
            _postpone(decision, node, summary(result))
        elif node.state == "checking":
            _no_verdict(decision, node, summary(result))
    elif found.outcome == "FAIL" and not found.is_weak:
        _failed(decision, node, summary(result))
    elif behind and node.hardware and not was_behind:
        # The sign is recorded with its hardware, and the node is checked once more.
        return
    elif behind:
        _stayed_behind(decision, node, found, behind)
    elif node.state == "checking" and check_results.passes_due(decision.state, node) <= 1:
        what = work.args.get("level") or ", ".join(work.args["checks"])
        decision.move_node(node.node, "spare", f"passed its checks ({what})")


def _postpone(decision: Decision, node: Node, found: str) -> None:
    """Check a node later whose machine is busy with something else; a person is paged when that goes on."""
    delay_seconds = min(BUSY_SECONDS * 2**node.num_postponed, MAX_BUSY_SECONDS)
    reason = f"its machine is busy with something else: it is checked again in {delay_seconds:g} s"
    until = decision.now + delay_seconds
    decision.add(CheckPostponed(node=node.node, until=until, reason=f"{reason} ({found})"))
    if node.num_postponed + 1 == BUSY_PAGE_TRIES:
        decision.page(
            f"{node.node} takes no ranks: its machine was busy with something else at {BUSY_PAGE_TRIES} checks in a row ({found}); "
            "end what else runs there, or lower `check_level` in cluster.yaml; it is checked again from time to time"
        )


def _no_verdict(decision: Decision, node: Node, found: str) -> None:
    if node.check_tries + 1 < MAX_TRIES:
        decision.move_node(node.node, "checking", f"no verdict ({found})")
        return
    reason = f"its checks gave no verdict {MAX_TRIES} times: {found}"
    decision.move_node(node.node, "quarantined", reason)
    decision.page(
        f"{node.node} is quarantined: {reason}; unknown is not healthy, its hardware gets no verdict; "
        f"`stoker readmit {node.node}` checks it again"
    )


def _stayed_behind(
    decision: Decision, node: Node, found: CheckResult, behind: tuple[str, ...]
) -> None:
    """Blame a node that was behind twice, unless all that it misses are floors that its whole class misses."""
    if check_results.is_software(decision, node, found):
        _other_software(decision, node, behind)
        return
    suspect = check_results.suspect_floors(decision, node, found)
    if len(suspect) < len(behind):
        _failed(decision, node, f"behind twice in a row: {'; '.join(behind)}"[:MAX_SUMMARY])
        return
    floors = ", ".join(f"{each.value.name} {each.floor:g}" for each in suspect)
    reason = (
        f"no node of its class reaches the floor of {floors}: the floor is suspect, not the node"
    )
    if node.state == "checking":
        decision.move_node(node.node, "spare", reason)
    if all(floors not in other.reason for other in decision.state.nodes.values()):
        decision.page(
            f"{node.node} serves: {reason}; `stoker hardware` has the values, `checks` and `check_level` in cluster.yaml say what "
            "is checked"
        )


def _other_software(decision: Decision, node: Node, behind: tuple[str, ...]) -> None:
    """Keep a node out that has other versions than most of its class; that is no fault of its hardware."""
    reason = f"other versions than most of its class: {'; '.join(behind)}"[:MAX_SUMMARY]
    decision.move_node(node.node, "quarantined", reason)
    decision.page(
        f"{node.node} is kept out, its hardware is not judged: {reason}; install what the others have, or "
        f"that of this one on most of them, then `stoker readmit {node.node}`"
    )


def _failed(decision: Decision, node: Node, reason: str) -> None:
    found_unfit(decision, node, f"{node.node} failed its checks: {reason}")


def found_unfit(decision: Decision, node: Node, evidence: str) -> None:
    """Answer a fault of an idle node by the runbook; beyond the quarantine limit the node is kept out, its hardware not judged."""
    incident = decision.open_incident(
        Finding(fault="node_unfit", evidence=evidence, node=node.node)
    )
    outcome = "the node is out of service"
    if may_quarantine(decision):
        respond(decision, incident, reason=evidence)
    else:
        outcome = "the node is kept out, its hardware is not judged"
        decision.move_node(node.node, "quarantined", evidence, incident=incident.incident)
        decision.page(
            f"{evidence}; it is kept out, but its hardware is not judged, since others were quarantined without a person "
            f"already: `stoker quarantine {node.node}` does it, `stoker readmit {node.node}` checks it again",
            incident=incident.incident,
        )
    record_hardware_fault(
        decision, node, fault="node_unfit", evidence=evidence, incident=incident.incident
    )
    if decision.is_live(incident):
        decision.move_incident(incident, "resolved", outcome)


def summary(result: ActionResult) -> str:
    """Return what the checks found wrong."""
    verdicts = result.detail.get("checks") or ()
    found = [_verdict(each) for each in verdicts if isinstance(each, Mapping)]
    text = "; ".join(each for each in found if each) or result.message or "no words"
    return text[:MAX_SUMMARY]


def _verdict(verdict: Mapping[str, Any]) -> str:
    if verdict.get("outcome") == "PASS" or not verdict.get("check"):
        return ""
    return f"{verdict['check']} {verdict.get('outcome')}: {verdict.get('reason', '')}".rstrip(": ")
