"""Checks that a person asks for: idle nodes are checked at a level now, and the request is answered when all have a verdict."""

from collections.abc import Iterator

from runner.decide.decision import Decision, Reply, refused
from runner.decide.nodes.isolation.driver import is_measured
from runner.decide.nodes.predicates import is_planned, others_of_machine
from runner.decide.state.cluster_state import Node, State
from runner.facts.messages.records import RequestRecorded
from runner.facts.messages.records_checks import CheckWanted
from runner.facts.messages.requests import CheckNodes
from runner.facts.specs.check_levels import LEVELS, covers
from runner.facts.wording import counted, join_words, known_words

# Characters of an answer; chosen.
MAX_TEXT = 1000
# Of the request.
KIND = "check_nodes"


def on_request(decision: Decision, request: CheckNodes) -> Reply:
    """Answer a person who wants idle nodes checked; the answer with the verdicts follows."""
    state, cluster = decision.state, decision.policy.cluster
    for name in request.nodes:
        if name not in state.nodes:
            return refused(f"no node {name!r}; {known_words(name, state.nodes)}")
        if problem := _problem(state, state.nodes[name]):
            return refused(problem)
    if not request.nodes:
        return refused("no node is named; name one or more")
    asked = request.level or cluster.check_level or LEVELS[0]
    by = f"asked by {request.by or 'a person'}"
    reason = f"{by}: {request.reason}" if request.reason else by
    for node in (state.nodes[name] for name in dict.fromkeys(request.nodes)):
        # What hints at a fault of it asks for the cluster's level at least.
        is_less = bool(node.check_wanted) and not covers(asked, cluster.check_level)
        level = cluster.check_level if is_less else asked
        wanted = CheckWanted(node=node.node, reason=reason, level=level, request=request.id)
        decision.add(wanted)
    num = len(set(request.nodes))
    return Reply("open", f"{counted(num, 'node')} to be checked at level {asked}")


def _problem(state: State, node: Node) -> str:
    """Return why a node cannot be checked now, with the way out; "" if it can."""
    name, ranks = node.node, [each for each in others_of_machine(state, node) if each.ranks_may_run]
    if node.state == "spare" and node.pending_drain is None and is_planned(state, node):
        return f"{name} is about to get ranks; ask again when its run has ended, or leave it out"
    if node.state != "spare" or node.pending_drain is not None or node.ranks_may_run is not None:
        serves = f" ({node.reason})" if node.reason else ""
        ways = {
            "active": f"`stoker drain {name}` takes it out at the next checkpoint, `stoker readmit {name}` then checks it",
            "checking": "its checks are under way: `stoker nodes` has the verdict",
        }
        way = ways.get(node.state, f"`stoker readmit {name}` checks it")
        return f"{name} is {node.state}{serves}, and only idle nodes are checked; {way}, or leave it out"
    if ranks:
        return (
            f"ranks of {ranks[0].node} run on the machine of {name}, and would be slowed down; ask again when they have ended, or "
            "leave it out"
        )
    if is_measured(state, node) or _is_pending(state, node):
        return f"{name} is being measured already; wait for the verdict, or leave it out"
    return ""


def _is_pending(state: State, node: Node) -> bool:
    asked = state.requests.get(node.check_request)
    return asked is not None and asked.state == "open" and _is_awaited(node)


def _is_awaited(node: Node) -> bool:
    """Whether a verdict is still to come. One that has got ranks, or is out of service, is not waited for."""
    return bool(node.check_wanted) and node.state in ("spare", "checking")


def settle(decision: Decision) -> None:
    """Answer the requests whose nodes all have a verdict, or cannot get one any more."""
    state = decision.state
    for request in list(_open(state)):
        nodes = [node for node in state.nodes.values() if node.check_request == request.id]
        if not any(map(_is_awaited, nodes)):
            decision.answer(
                request, "done", join_words([_verdict(node) for node in nodes])[:MAX_TEXT]
            )


def is_any_open(state: State) -> bool:
    """Whether a request for checks is not answered."""
    return any(True for _ in _open(state))


def _open(state: State) -> Iterator[RequestRecorded]:
    for request in state.requests.values():
        if request.state == "open" and request.request == KIND:
            yield request


def _verdict(node: Node) -> str:
    if node.check_wanted or node.checked is None:
        return f"{node.node} UNKNOWN (it is {node.state}: {node.reason})"
    return f"{node.node} {node.checked.outcome or 'UNKNOWN'}"
