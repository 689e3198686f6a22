"""Drain: how nodes go out of service and come back, by an operator's request or a notice.

A serving node leaves at the next checkpoint: it is marked as leaving, its run is asked to stop (`runs`), the next attempt is
placed without it (`placement`), and then it goes. Level-triggered: a gang that dies on the way, an incident or another supervisor
do not change the outcome.
"""

from typing import Any, Literal, get_args

from msgspec.structs import asdict

from runner.decide.decision import Decision, Reply, refused
from runner.decide.nodes.hardware import is_refused
from runner.decide.nodes.predicates import free_state, is_suspect, run_served
from runner.decide.placement.launch_plans import is_usable
from runner.decide.state.cluster_state import LAUNCHED, OUT, Hardware, Node, PendingDrain, Run
from runner.facts.actions import StartAgent, StopAgent
from runner.facts.messages import records as r
from runner.facts.messages import requests as q
from runner.facts.messages.signals import Notice
from runner.facts.wire import kind_of
from runner.facts.wording import join_words, known_words

Out = Literal["maintenance", "quarantined", "retired"]
WayOut = q.SwapNode | q.DrainNode | q.QuarantineNode | q.RetireNode
NodeRequest = WayOut | q.ReadmitNode
NODE_REQUESTS: tuple[type[q.Request], ...] = get_args(NodeRequest)
WAYS_OUT: dict[type, Out] = {
    q.SwapNode: "maintenance",
    q.DrainNode: "maintenance",
    q.QuarantineNode: "quarantined",
    q.RetireNode: "retired",
}
SEVERITY: dict[str, int] = {"maintenance": 1, "quarantined": 2, "retired": 3}
STATE_WORDS = {"maintenance": "in maintenance", "spare": "a spare"}
# Of requests without a name.
OPERATOR = "a person"


def on_node_request(decision: Decision, request: NodeRequest) -> Reply:
    """Answer a request about a node."""
    node = decision.state.nodes.get(request.node)
    if node is None:
        return refused(_unknown(decision, request.node))
    if isinstance(request, q.ReadmitNode):
        reply = _readmit(decision, node, request)
    else:
        reply = _take_out(decision, node, request)
    return reply._replace(node=node.node)


def _take_out(decision: Decision, node: Node, request: WayOut) -> Reply:
    """Take a node out of service; a repeated request is done already, or under way."""
    to = WAYS_OUT[type(request)]
    if _is_out(decision, node, to):
        return Reply("done", f"done already: {_describe(node)} ({node.reason})")
    problem = _swap_problem(decision, node, request) if isinstance(request, q.SwapNode) else ""
    if problem:
        return refused(problem)
    spare = request.spare if isinstance(request, q.SwapNode) else None
    _leave(decision, node, to=to, reason=_reason(request), spare=spare, request=request.id)
    run = run_served(decision.state, node)
    then = _what_comes_first(run) if run is not None else ""
    return Reply("open", f"{node.node} is to be {STATE_WORDS.get(to, to)}{then}")


def _what_comes_first(run: Run) -> str:
    """Say what the run does before a node leaves it: ranks that ignore the contract get SIGTERM."""
    attempt, name = run.attempt, run.spec.name
    if attempt is None or attempt.state not in LAUNCHED:
        return f"; run {name} is launched without it"
    if "stop" in attempt.requests:
        return f"; run {name} writes a checkpoint first"
    return f"; the ranks of run {name} get SIGTERM first, and have {run.spec.stop_grace_seconds:g} s to end"


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
    if before is not None:
        if by_time is not None and (before.by_time is None or by_time < before.by_time):
            _drain(decision, node, before, by_time=by_time)
        return
    reason = f"{notice.notice} announced" + (f": {notice.reason}" if notice.reason else "")
    way = PendingDrain(to="maintenance", since=decision.now, reason=reason[:300], by_time=by_time)
    _drain(decision, node, way)
    deadline = "" if seconds is None else f", {seconds:g} s left"
    decision.page(
        f"{node.node} is drained: {reason}{deadline}; `stoker readmit {node.node}` takes it back"
    )


def _leave(
    decision: Decision, node: Node, *, to: Out, reason: str, spare: str | None, request: str
) -> None:
    """Mark a node as leaving; of two requests the graver one holds, and the earlier deadline."""
    before = node.pending_drain
    way = PendingDrain(to=to, since=decision.now, reason=reason, spare=spare, request=request)
    if before is None:
        _drain(decision, node, way)
    elif SEVERITY[before.to] < SEVERITY[to]:
        _drain(decision, node, way, spare=spare or before.spare, by_time=before.by_time)
    elif spare is not None and before.spare is None:
        _drain(decision, node, before, spare=spare)


def _drain(decision: Decision, node: Node, way: PendingDrain, **changes: Any) -> None:
    """Record a node's way out of service, with these fields changed."""
    fields = {**asdict(way), **changes}
    del fields["since"]
    decision.add(r.NodeDraining(node=node.node, **fields))


def _swap_problem(decision: Decision, node: Node, request: q.SwapNode) -> str:
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
        is_spare = named.state == "spare"
        why = "leaving, or too small" if is_spare else f"{named.state} ({named.reason})"
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
    names = join_words(spares)
    return f"usable spares: {names}" if spares else "add a node, or readmit one that is out"


def _fits(decision: Decision, node: Node, run: Run) -> bool:
    is_free = node.state == "spare" and node.pending_drain is None
    return is_free and is_usable(decision.state, node, run.spec)


def _readmit(decision: Decision, node: Node, request: q.ReadmitNode) -> Reply:
    """Take a node back: clear its hardware's faults, check it, and start its agent if that has ended."""
    known = decision.state.hardware.get(node.hardware)
    problem = _readmit_problem(decision, node, known)
    if problem:
        return refused(problem)
    text = f"done already: {_describe(node)}"
    if known is not None and (known.verdict or known.faults):
        by, reason = request.by or OPERATOR, _reason(request)
        decision.add(r.HardwareJudged(hardware=known.hardware, verdict="", reason=reason, by=by))
        text = f"its hardware faults are cleared: {_describe(node)}"
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
    return Reply("done", text)


def _readmit_problem(decision: Decision, node: Node, known: Hardware | None) -> str:
    """Return why a node cannot come back; "" when it can."""
    if node.state == "retired" or (known is not None and known.verdict == "retired"):
        return (
            f"{node.node} is retired for good; other hardware under this name is admitted by itself"
        )
    for other in decision.state.hardware.values() if not node.hardware else ():
        *earlier, name = other.node_names or [""]
        if other.verdict and node.node in earlier:
            return f"the hardware that was {node.node} is {name} now: `stoker readmit {name}`"
    return ""


def _start(decision: Decision, node: Node, request: q.ReadmitNode) -> None:
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
    # An agent that is being started is ended afterwards: see `on_agent_started`.
    is_starting = decision.state.is_open("start_agent", node.node)
    if leaving.to == "retired" and not (ended or node.ended or is_starting):
        decision.issue(StopAgent(node=node.node), leaving.reason)
    text = f"{node.node} is {STATE_WORDS.get(leaving.to, leaving.to)}"
    _answer_all(decision, node, "done", text)


def agent_ended(decision: Decision, node: Node, *, reason: str) -> None:
    """Record that a node's agent ended on purpose: it has left, unless it is out of service or being drained."""
    if node.pending_drain is not None:
        _complete(decision, node, node.pending_drain, ended=True)
    elif node.state in OUT:
        decision.move_node(node.node, node.state, node.reason, ended=True)
    else:
        decision.move_node(node.node, "left", reason)


def _unknown(decision: Decision, name: str) -> str:
    return f"no node {name!r}; {known_words(name, decision.state.nodes)}"


def _describe(node: Node) -> str:
    return f"{node.node} is {STATE_WORDS.get(node.state, node.state)}"


def _reason(request: NodeRequest) -> str:
    """Return who asked for what, and why."""
    verb, _, _ = kind_of(request).partition("_")
    reason = f": {request.reason}" if request.reason else ""
    return f"{verb} asked by {request.by or OPERATOR}{reason}"[:300]


def _answer_all(decision: Decision, node: Node, state: r.RequestStateName, message: str) -> None:
    """Answer all open requests to take this node out of service."""
    ways_out = ("swap_node", "drain_node", "quarantine_node", "retire_node")
    for status in decision.state.requests.values():
        if status.state == "open" and status.node == node.node and status.request in ways_out:
            decision.answer(status, state, message)
