"""Drain: how nodes go out of service and come back, by an operator's request or a notice.

A serving node leaves at the next checkpoint: it is marked as leaving, its run is asked to stop (`runs`), the next attempt is
placed without it (`placement`), and then it goes. Level-triggered: a gang that dies on the way, an incident or another supervisor
do not change the outcome.
"""

from __future__ import annotations

from typing import Literal, get_args

from runner.decide.decision import Decision
from runner.decide.nodes.hardware import is_refused
from runner.decide.nodes.predicates import free_state, is_suspect, run_served
from runner.decide.placement.launch_plans import is_usable
from runner.decide.state.cluster_state import OUT, Hardware, Node, PendingDrain, Run
from runner.facts.actions import StartAgent, StopAgent
from runner.facts.messages import records as r
from runner.facts.messages.requests import (
    DrainNode,
    QuarantineNode,
    ReadmitNode,
    Request,
    RetireNode,
    SwapNode,
)
from runner.facts.messages.signals import Notice
from runner.facts.wire import kind_of
from runner.facts.wording import join_words, known_words

Out = Literal["maintenance", "quarantined", "retired"]
NodeRequest = SwapNode | DrainNode | QuarantineNode | RetireNode | ReadmitNode
NODE_REQUESTS: tuple[type[Request], ...] = get_args(NodeRequest)
WAYS_OUT: dict[type, Out] = {
    SwapNode: "maintenance",
    DrainNode: "maintenance",
    QuarantineNode: "quarantined",
    RetireNode: "retired",
}
SEVERITY: dict[str, int] = {"maintenance": 1, "quarantined": 2, "retired": 3}
# Of requests without a name.
OPERATOR = "a person"


def on_node_request(decision: Decision, request: NodeRequest) -> None:
    """Answer a request about a node; a repeated one is done already, or under way."""
    node = _find(decision, request, request.node)
    if node is None:
        return
    if isinstance(request, ReadmitNode):
        _readmit(decision, node, request)
        return
    to = WAYS_OUT[type(request)]
    if _is_out(decision, node, to):
        text = f"done already: {node.node} is {_describe_state(node.state)} ({node.reason})"
        _answer(decision, request, "done", text)
        return
    problem = _swap_problem(decision, node, request) if isinstance(request, SwapNode) else ""
    if problem:
        _answer(decision, request, "refused", problem)
        return
    spare = request.spare if isinstance(request, SwapNode) else None
    _leave(decision, node, to=to, reason=_reason(request), spare=spare, request=request.id)
    run = run_served(decision.state, node)
    text = f"{node.node} is to be {_describe_state(to)}"
    if run is not None:
        text += f"; run {run.spec.name} writes a checkpoint first"
    _answer(decision, request, "open", text)


def _is_out(decision: Decision, node: Node, to: Out) -> bool:
    """Whether a node is out for this or a graver reason, and its hardware judged where that asks for it."""
    judged = to == "maintenance" or not node.hardware or is_refused(decision.state, node.hardware)
    return SEVERITY.get(node.state, 0) >= SEVERITY[to] and judged


def on_notice(decision: Decision, notice: Notice) -> None:
    """Drain a node that will be taken away; a second notice can only bring the deadline forward."""
    node = decision.state.nodes.get(notice.node)
    if node is None or node.state in OUT:
        return
    seconds, before = notice.deadline_seconds, node.pending_drain
    by_time = None if seconds is None else decision.now + max(0.0, seconds)
    if before is not None and (
        by_time is None or (before.by_time is not None and before.by_time <= by_time)
    ):
        return
    reason = f"{notice.notice} announced" + (f": {notice.reason}" if notice.reason else "")
    if before is not None:
        _amend(decision, node, before, by_time=by_time)
        return
    decision.add(
        r.NodeDraining(node=node.node, to="maintenance", reason=reason[:300], by_time=by_time)
    )
    deadline = "" if seconds is None else f", {seconds:g} s left"
    decision.page(
        f"{node.node} is drained: {reason}{deadline}; `stoker readmit {node.node}` takes it back"
    )


def _leave(
    decision: Decision, node: Node, *, to: Out, reason: str, spare: str | None, request: str
) -> None:
    """Mark a node as leaving; of two requests the graver one holds, and the earlier deadline."""
    before = node.pending_drain
    if before is not None and SEVERITY[before.to] >= SEVERITY[to]:
        if spare is not None and before.spare is None:
            _amend(decision, node, before, spare=spare)
        return
    decision.add(
        r.NodeDraining(
            node=node.node,
            to=to,
            reason=reason,
            spare=spare or (before.spare if before is not None else None),
            request=request,
            by_time=before.by_time if before is not None else None,
        )
    )


def _amend(
    decision: Decision,
    node: Node,
    before: PendingDrain,
    *,
    spare: str | None = None,
    by_time: float | None = None,
) -> None:
    decision.add(
        r.NodeDraining(
            node=node.node,
            to=before.to,
            reason=before.reason,
            spare=spare or before.spare,
            request=before.request,
            by_time=before.by_time if by_time is None else by_time,
        )
    )


def _swap_problem(decision: Decision, node: Node, request: SwapNode) -> str:
    """Return why no spare can replace this node; "" when one can, or none is needed."""
    state, run = decision.state, run_served(decision.state, node)
    named = state.nodes.get(request.spare or "")
    if request.spare is not None and named is None:
        return f"--with: {_unknown(decision, request.spare)}"
    if request.spare == node.node:
        return f"--with: {node.node} cannot take its own place; name a spare, or none"
    if run is None:
        return ""
    if named is not None and not _fits(decision, named, run):
        why = (
            f"{named.state} ({named.reason})" if named.state != "spare" else "leaving, or too small"
        )
        return (
            f"--with: {named.node} is {why}, and no spare that run {run.spec.name} could use; "
            f"{_usable_spares(decision, node, run)}"
        )
    if named is None and not any(_fits(decision, other, run) for other in state.nodes.values()):
        return (
            f"no spare fits run {run.spec.name} ({run.spec.ranks_per_node} slots); "
            f"{_usable_spares(decision, node, run)}, or do without it: `stoker drain {node.node}`"
        )
    return ""


def _usable_spares(decision: Decision, node: Node, run: Run) -> str:
    spares = [
        other.node
        for other in decision.state.nodes.values()
        if other.node != node.node and _fits(decision, other, run)
    ]
    if spares:
        return f"usable spares: {join_words(spares)}"
    return "add a node, or readmit one that is out"


def _fits(decision: Decision, node: Node, run: Run) -> bool:
    is_free = node.state == "spare" and node.pending_drain is None
    return is_free and is_usable(decision.state, node, run.spec)


def _readmit(decision: Decision, node: Node, request: ReadmitNode) -> None:
    """Take a node back: clear its hardware's faults, check it, and start its agent if that has ended."""
    known = decision.state.hardware.get(node.hardware)
    problem = _readmit_problem(decision, node, known)
    if problem:
        _answer(decision, request, "refused", problem)
        return
    text = f"done already: {node.node} is {_describe_state(node.state)}"
    if known is not None and (known.verdict or known.faults):
        by, reason = request.by or OPERATOR, _reason(request)
        decision.add(r.HardwareJudged(hardware=known.hardware, verdict="", reason=reason, by=by))
        text = f"its hardware faults are cleared: {node.node} is {_describe_state(node.state)}"
    if node.pending_drain is not None:
        decision.add(r.NodeDraining(node=node.node, to=None, reason=_reason(request)))
        _answer_all(decision, node, "failed", f"taken back: {_reason(request)}")
        text = f"{node.node} stays in service"
    elif node.state in OUT:
        back = free_state(decision.policy.cluster, unchecked=True)
        decision.move_node(node.node, back, _reason(request))
        _start(decision, node, request)
        then = "is checked, then it is a spare" if back == "checking" else "is a spare"
        text = f"{node.node} {then}"
    elif node.state in ("lost", "left"):
        _start(decision, node, request)
        text = f"{node.node} is {node.state}: it comes back by its checks once its agent sends heartbeats"
    _answer(decision, request, "done", text)


def _readmit_problem(decision: Decision, node: Node, known: Hardware | None) -> str:
    """Return why a node cannot come back; "" when it can."""
    if node.state == "retired" or (known is not None and known.verdict == "retired"):
        return (
            f"{node.node} is retired for good; other hardware under this name is admitted by itself"
        )
    name = _now_called(decision, node)
    return (
        f"the hardware that was {node.node} is {name} now: `stoker readmit {name}`" if name else ""
    )


def _now_called(decision: Decision, node: Node) -> str:
    """Return the present name of refused hardware that was this node before; "" if there is none."""
    if node.hardware:
        return ""
    return next(
        (
            known.node_names[-1]
            for known in decision.state.hardware.values()
            if known.verdict and node.node in known.node_names[:-1]
        ),
        "",
    )


def _start(decision: Decision, node: Node, request: ReadmitNode) -> None:
    """Start an agent where none is known to be alive."""
    missing = node.ended or node.incarnation == 0 or node.state in ("lost", "left")
    if missing and not decision.state.open_actions("start_agent", node=node.node):
        decision.issue(StartAgent(node=node.node, request=request.id), _reason(request))


def settle(decision: Decision, node: Node) -> None:
    """Complete the drain of a node that serves no run; or of one in a correlated silence that an operator has given up."""
    if node.pending_drain is None:
        return
    run = run_served(decision.state, node)
    if run is None or _is_given_up(decision, node, run):
        _complete(decision, node, node.pending_drain)


def _is_given_up(decision: Decision, node: Node, run: Run) -> bool:
    """Whether an operator gave up a node of a correlated silence: only that lets its ending gang end."""
    by_person = node.pending_drain is not None and node.pending_drain.request is not None
    ending = run.attempt is not None and run.attempt.state == "stopping"
    return (
        by_person and is_suspect(node) and ending and node.node in decision.state.correlated_silence
    )


def _complete(
    decision: Decision, node: Node, leaving: PendingDrain, *, ended: bool = False
) -> None:
    request = decision.state.requests.get(leaving.request or "")
    by = (request.by if request is not None else "") or OPERATOR
    decision.move_node(node.node, leaving.to, leaving.reason, ended=ended)
    if leaving.to != "maintenance" and node.hardware:
        decision.add(
            r.HardwareJudged(
                hardware=node.hardware, verdict=leaving.to, reason=leaving.reason, by=by
            )
        )
    if leaving.to == "retired" and not (ended or node.ended):
        decision.issue(StopAgent(node=node.node), leaving.reason)
    _answer_all(decision, node, "done", f"{node.node} is {_describe_state(leaving.to)}")


def agent_ended(decision: Decision, node: Node, *, reason: str) -> None:
    """Record that a node's agent ended on purpose: it has left, unless it is out of service or being drained."""
    if node.pending_drain is not None:
        _complete(decision, node, node.pending_drain, ended=True)
    elif node.state in OUT:
        decision.move_node(node.node, node.state, node.reason, ended=True)
    else:
        decision.move_node(node.node, "left", reason)


def _find(decision: Decision, request: NodeRequest, name: str) -> Node | None:
    node = decision.state.nodes.get(name)
    if node is None:
        _answer(decision, request, "refused", _unknown(decision, name))
    return node


def _unknown(decision: Decision, name: str) -> str:
    return f"no node {name!r}; {known_words(name, decision.state.nodes)}"


def _describe_state(state: str) -> str:
    return {"maintenance": "in maintenance", "spare": "a spare"}.get(state, state)


def _reason(request: NodeRequest) -> str:
    """Return who asked for what, and why."""
    verb = kind_of(request).partition("_")[0]
    reason = f": {request.reason}" if request.reason else ""
    return f"{verb} asked by {request.by or OPERATOR}{reason}"[:300]


def _answer(
    decision: Decision, request: NodeRequest, state: r.RequestStateName, message: str
) -> None:
    node = request.node if request.node in decision.state.nodes else ""
    decision.answer_new(request, state, message, node=node)


def _answer_all(decision: Decision, node: Node, state: r.RequestStateName, message: str) -> None:
    """Answer all open requests to take this node out of service."""
    ways_out = ("swap_node", "drain_node", "quarantine_node", "retire_node")
    for status in decision.state.requests.values():
        if status.state == "open" and status.node == node.node and status.request in ways_out:
            decision.answer(status, state, message)
