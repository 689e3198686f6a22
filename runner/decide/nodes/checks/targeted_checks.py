"""Targeted checks: a node that left a gang as a culprit is checked for that cause, while the gang is back already on other nodes.

An idle spare of the same class is the control. If both fail, what they share is in doubt. A pass forgives nothing by itself: the
node stays out until a person readmits it, who reads here what was found. A restart waits for none of this.
"""

from runner.decide.decision import Decision
from runner.decide.nodes.checks import admission_checks, check_results
from runner.decide.nodes.checks.tasks_under_way import is_occupied
from runner.decide.nodes.hardware import (
    is_judged,
    may_quarantine,
    quarantine,
    record_hardware_fault,
)
from runner.decide.nodes.predicates import is_planned
from runner.decide.state.cluster_state import Node, State
from runner.decide.state.targeted_check import TargetedCheck
from runner.facts.actions import Action, ActionResult, NodeTask
from runner.facts.messages.records_checks import (
    TargetedCheckBegun,
    TargetedCheckJudged,
    TargetedCheckResult,
)
from runner.facts.wording import printable

# For the checks of one cause: the longest are those of memory and of products, each of less than ten seconds at their shortest,
# on a node that may be busy. Chosen, not measured.
DEADLINE_SECONDS = 120.0
MAX_TEXT = 300


def settle(decision: Decision) -> None:
    """Begin what can begin, and judge what has ended, one at a time. Comes after the runs: they have the first choice of spares."""
    state = decision.state
    if state.closing:
        return
    for check in state.targeted_checks.values():
        node = state.nodes[check.node]
        if node.state in ("active", "suspect"):
            # It leaves at the next checkpoint.
            continue
        if node.state != "maintenance" or node.ended:
            _judge(decision, check, "unknown", f"{node.node} is {node.state}: not checked")
        elif not check.has_begun:
            if node.ranks_may_run is None and not state.is_open("node_task", node.node, "check"):
                _begin(decision, check, node)
        elif not any(_is_open(state, check, name) for name in (check.node, check.control)):
            if check.node in check.found:
                _conclude(decision, check, node)
            elif not is_occupied(node, decision.now):
                # It refused, since another task was under way there.
                _issue(decision, check, node.node)
        if decision.records:
            return


def _is_open(state: State, check: TargetedCheck, name: str) -> bool:
    return any(
        action.args["args"].get("suspect") == check.node and action.args["node"] == name
        for action in state.open_tasks("check")
    )


def _begin(decision: Decision, check: TargetedCheck, node: Node) -> None:
    control = _control(decision, node)
    decision.add(TargetedCheckBegun(node=node.node, control=control))
    for name in filter(None, (node.node, control)):
        _issue(decision, check, name)


def _issue(decision: Decision, check: TargetedCheck, name: str) -> None:
    beside = "" if name == check.node else f", the control of {check.node}"
    args = {"cause": check.cause, "suspect": check.node}
    run = decision.state.runs.get(check.run or 0)
    if run is not None and run.spec.python:
        args["python"] = run.spec.python
    decision.issue(
        NodeTask(node=name, task="check", args=args),
        f"check {name}{beside} for {check.cause}",
        run=check.run,
        incident=check.incident,
        deadline_seconds=DEADLINE_SECONDS,
    )


def _control(decision: Decision, suspect: Node) -> str:
    """Return an idle spare of the suspect's class on another machine, one that passed its checks not long ago if there is one."""
    state, cluster = decision.state, decision.policy.cluster
    hardware_class = _class_of(state, suspect)
    fitting = [
        node
        for node in state.nodes.values()
        if node.state == "spare"
        and node.pending_drain is None
        and node.address != suspect.address
        and _class_of(state, node) == hardware_class
        and not state.is_open("node_task", node.node, "check")
        and not is_planned(state, node)
    ]
    passed = [
        node for node in fitting if check_results.has_valid_pass(state, node, cluster, decision.now)
    ]
    return next((node.node for node in (*passed, *fitting)), "")


def _class_of(state: State, node: Node) -> str:
    known = state.hardware.get(node.hardware)
    return known.hardware_class if known is not None else ""


def on_checked(decision: Decision, action: Action, result: ActionResult) -> None:
    """Record what the checks of a suspected node, or of its control, found."""
    work = action.read(NodeTask)
    check = decision.state.targeted_checks.get(str(work.args["suspect"]))
    if check is None or not check.has_begun:
        return
    found = check_results.read(result)
    text = "" if found.outcome == "PASS" else admission_checks.summary(result)
    if found.outcome == "PASS":
        text = ", ".join(found.checks)
    elif result.outcome == "done" and not result.detail.get("checks"):
        text = f"no check of it says anything about {check.cause}"
    decision.add(
        TargetedCheckResult(
            node=check.node,
            checked=work.node,
            # Values that are behind are a weak sign: they confirm nothing.
            outcome="UNKNOWN" if found.is_weak else found.outcome,
            text=printable(text, MAX_TEXT),
        )
    )


def _conclude(decision: Decision, check: TargetedCheck, node: Node) -> None:
    found, beside = check.found[check.node], check.found.get(check.control)
    if found.outcome == "UNKNOWN":
        _judge(decision, check, "unknown", f"no verdict on {check.cause}: {found.text}")
    elif found.outcome == "PASS":
        way = f"`stoker readmit {node.node}` takes it back"
        text = f"nothing found that explains {check.cause} ({found.text} passed); {way}"
        _judge(decision, check, "cleared", text)
        control = decision.state.nodes.get(check.control)
        if beside is not None and beside.outcome == "FAIL" and control is not None:
            evidence = f"{control.node} failed checks for {check.cause}: {beside.text}"
            admission_checks.found_unfit(decision, control, evidence)
    elif beside is not None and beside.outcome == "FAIL":
        text = (
            f"{node.node} fails its checks for {check.cause}, and so does {check.control}, the control: {found.text}; "
            "what both share is in doubt, neither is found bad"
        )
        _judge(decision, check, "shared", text)
        decision.page(text, run=check.run, incident=check.incident)
    else:
        _judge(decision, check, "confirmed", f"confirmed: {found.text}")
        _take_out(decision, check, node, found.text)


def _judge(decision: Decision, check: TargetedCheck, verdict: str, text: str) -> None:
    decision.add(
        TargetedCheckJudged(
            node=check.node,
            verdict=verdict,  # type: ignore[arg-type]
            text=text[:MAX_TEXT],
            incident=check.incident,
        )
    )
    incident = decision.state.incidents.get(check.incident)
    if incident is not None and verdict != "unknown":
        decision.amend(incident, f"targeted checks of {check.node}: {text}"[: MAX_TEXT + 100])


def _take_out(decision: Decision, check: TargetedCheck, node: Node, text: str) -> None:
    """Refuse the hardware that the checks found bad, within the limit on that; the node is out of service already."""
    evidence = f"{check.cause} confirmed by its checks: {text}"[:MAX_TEXT]
    if may_quarantine(decision) and not is_judged(decision, node):
        quarantine(decision, node, reason=evidence, incident=check.incident)
    known = decision.state.hardware.get(node.hardware)
    if known is None or all(fault.incident != check.incident for fault in known.faults):
        # Else the incident counts already.
        record_hardware_fault(
            decision, node, fault="node_unfit", evidence=evidence, incident=check.incident
        )
