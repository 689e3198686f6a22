"""Isolations: which of some nodes is bad is measured by their agents, round by round, and judged by `decide/isolate`.

Level-triggered: `settle` looks at each isolation that is not judged and issues what is missing, so that another supervisor goes on
in the middle of a round. While it lasts its nodes are *checking*, and run nothing; the run that it is for waits for it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from runner.decide.decision import Decision, Reply, refused
from runner.decide.incidents.conditions import one_of_each_machine
from runner.decide.isolate.isolation import next_step
from runner.decide.nodes.checks.check_results import has_valid_pass
from runner.decide.nodes.checks.tasks_under_way import is_occupied
from runner.decide.nodes.isolation.results import (
    ALONE_CHECKS,
    alone_result,
    end_result,
    pair_result,
)
from runner.decide.nodes.isolation.verdicts import conclude
from runner.decide.nodes.predicates import is_planned
from runner.decide.state.cluster_state import GONE, Node, Run, State
from runner.decide.state.isolation import Isolation
from runner.facts.actions import Action, ActionResult, NodeTask
from runner.facts.contract import COMMUNICATION_PREFIXES
from runner.facts.messages import records as r
from runner.facts.messages.isolation import (
    IsolationBegun,
    IsolationMeasured,
    IsolationRoundBegun,
    IsolationWanted,
    Judged,
    PairResult,
    Question,
)
from runner.facts.messages.requests import IsolateNodes
from runner.facts.wording import counted, join_words, known_words

# With fewer machines a pair has not the four peers that a rate is compared with.
LEAST_MACHINES = 6
# That measure at the same time, in all isolations: what else a round has waits. Chosen, not measured.
MAX_AT_ONCE = 256
# Of a pair: the transfer itself, and with it what it takes to start an interpreter with torch on a node that is busy. Of a node
# alone: three checks, each with a start of its own. Chosen, not measured.
PAIR_SECONDS, PAIR_DEADLINE_SECONDS, ALONE_DEADLINE_SECONDS = 5.0, 40.0, 60.0
# Rounds in which pairs that have not met do so, while nothing bad is found: with the first one, all pairs of eight nodes. Chosen.
MORE_MATCHINGS = 7
# Ports of pairs, below those that Linux gives to outgoing connections (32768): the first, and how many. Chosen.
FIRST_PORT, NUM_PORTS = 20000, 12000
# Of agents: a pair, and a node alone.
TASKS = ("measure", "check")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """A measurement that a node is to make in a round: with `pair` its end of that, else of itself alone."""

    node: str
    round: int
    pair: tuple[str, ...] = ()

    @property
    def subject(self) -> tuple[str, ...]:
        """What is measured, as `_subject` has it of a task."""
        return (self.node, *self.pair)


def want(  # noqa: PLR0913 - what it is for
    decision: Decision,
    nodes: Sequence[str],
    *,
    reason: str,
    run: int | None = None,
    incident: str | None = None,
    request: str | None = None,
    python: str = "",
) -> str:
    """Have nodes measured as soon as no rank runs on them; return the isolation's name."""
    name = f"x{decision.state.next_isolation}"
    wanted = IsolationWanted(
        isolation=name,
        nodes=tuple(nodes),
        reason=reason,
        run=run,
        incident=incident,
        request=request,
        python=python,
    )
    decision.add(wanted)
    return name


def on_request(decision: Decision, request: IsolateNodes) -> Reply:
    """Answer a person who wants idle nodes measured; the answer with the verdict follows."""
    state = decision.state
    if unknown := [name for name in request.nodes if name not in state.nodes]:
        return refused(f"no node {unknown[0]!r}; {known_words(unknown[0], state.nodes)}")
    busy = [name for name in request.nodes if not is_idle(state, state.nodes[name])]
    if busy:
        node = state.nodes[busy[0]]
        serves = f" ({node.reason})" if node.reason else ""
        return refused(
            f"{node.node} is {node.state}{serves}, and only idle nodes are measured; `stoker drain {node.node}` and "
            f"`stoker readmit {node.node}` make it one, or leave it out"
        )
    idle = [node.node for node in state.nodes.values() if is_idle(state, node)]
    nodes = one_of_each_machine(state, request.nodes or idle)
    if len(nodes) < LEAST_MACHINES:
        return refused(
            f"{counted(len(nodes), 'idle machine')} to be measured: {join_words(nodes) or 'none'}; at least {LEAST_MACHINES} are "
            "needed, since a rate is compared with those of other pairs"
        )
    by = f"asked by {request.by or 'a person'}"
    reason = f"{by}: {request.reason}" if request.reason else by
    name = want(decision, nodes, reason=reason, request=request.id, python=request.python)
    return Reply(
        "open", f"isolation {name} measures {counted(len(nodes), 'node')}: {join_words(nodes)}"
    )


def open_isolations(state: State) -> Iterator[Isolation]:
    """Yield the isolations that are not judged."""
    return (each for each in state.isolations.values() if each.judged is None)


def is_measured(state: State, node: Node) -> bool:
    """Whether a node takes part in an isolation: its checks are those of the isolation."""
    return any(
        each.participants.get(node.node) == node.incarnation for each in open_isolations(state)
    )


def awaited(state: State, run: Run) -> Isolation | None:
    """Return the isolation whose verdict a run waits for, if it does."""
    return next((each for each in open_isolations(state) if each.run == run.run), None)


def is_idle(state: State, node: Node) -> bool:
    """Whether a node may be measured now: nothing runs on it, and no check does."""
    is_free = node.state == "spare" and node.pending_drain is None and node.ranks_may_run is None
    is_checked = state.is_open("node_task", node.node, "check")
    return is_free and not is_checked and not is_planned(state, node)


def settle(decision: Decision) -> None:
    """Decide the next thing to do for the first isolation that has something to do."""
    for isolation in open_isolations(decision.state):
        _settle(decision, isolation)
        if decision.records:
            return


def _settle(decision: Decision, isolation: Isolation) -> None:
    state = decision.state
    run = state.runs.get(isolation.run or 0)
    if state.closing or (run is not None and (not run.is_wanted or run.stop_requests)):
        why = "the cluster shuts down" if state.closing else "its run ends"
        conclude(decision, isolation, Judged(num_rounds=0, nodes=(), notes=(why,)))
    elif isolation.begun_at is None:
        if run is None or run.attempt is None or run.attempt.state == "ended":
            _begin(decision, isolation)
    elif action := _lost_action(state, isolation):
        message = "its node is out of service"
        decision.add(r.ActionEnded(id=action.id, outcome="unknown", message=message))
        result = ActionResult(id=action.id, outcome="unknown", message=message)
        on_measured(decision, action, result)
    else:
        _measure(decision, isolation)


def _begin(decision: Decision, isolation: Isolation) -> None:
    """Take those of the nodes that are idle now out of service for as long as they are measured."""
    state, cluster = decision.state, decision.policy.cluster
    idle = [name for name in isolation.nodes if is_idle(state, state.nodes[name])]
    nodes = one_of_each_machine(state, idle)
    if len(nodes) < LEAST_MACHINES:
        note = f"only {len(nodes)} machines are idle, and fewer than {LEAST_MACHINES} have no peers"
        conclude(decision, isolation, Judged(num_rounds=0, nodes=(), notes=(note,)))
        return
    run = state.runs.get(isolation.run or 0)
    own = run.attempt.nodes if run is not None and run.attempt is not None else isolation.nodes
    known_good = [
        name
        for name in nodes
        if name not in own and has_valid_pass(state, state.nodes[name], cluster, decision.now)
    ]
    decision.add(
        IsolationBegun(
            isolation=isolation.isolation, nodes=tuple(nodes), known_good=tuple(known_good)
        )
    )
    for name in nodes:
        decision.move_node(name, "checking", f"isolation {isolation.isolation}: {isolation.reason}")


def _lost_action(state: State, isolation: Isolation) -> Action | None:
    """Return a measurement that will have no answer, since its node is out of service."""
    return next(
        (
            action
            for action in _open_actions(state, isolation)
            if state.nodes[action.read(NodeTask).node].state in GONE
        ),
        None,
    )


def _open_actions(state: State, isolation: Isolation) -> Iterator[Action]:
    for task in TASKS:
        for action in state.open_tasks(task):
            if action.args["args"].get("isolation") == isolation.isolation:
                yield action


def _measure(decision: Decision, isolation: Isolation) -> None:
    """Issue what the round still lacks; when it lacks nothing, begin the next one, or judge."""
    is_open = {
        _subject(action.read(NodeTask)): True for action in _open_actions(decision.state, isolation)
    }
    lacking = [one for one in _lacking(isolation) if one.subject not in is_open]
    nodes = decision.state.nodes
    free = [one for one in lacking if not is_occupied(nodes[one.node], decision.now)]
    for one in _fitting(free, MAX_AT_ONCE - _num_measured(decision.state)):
        _issue(decision, isolation, one)
    if lacking or is_open:
        return
    step = next_step(
        _question(decision, isolation),
        (*isolation.alone, *isolation.pairs),
        asked=isolation.asked,
    )
    if isinstance(step, Judged):
        conclude(decision, isolation, step)
    else:
        decision.add(IsolationRoundBegun(isolation=isolation.isolation, measure=step))


def _fitting(lacking: list[_Wanted], room: int) -> list[_Wanted]:
    """Return as many as there is room for; no end of a pair without the other, which it would wait for."""
    chosen, left = lacking[: max(0, room)], lacking[max(0, room) :]
    is_torn = bool(chosen and left and left[0].pair) and chosen[-1].pair == left[0].pair
    return chosen[:-1] if is_torn else chosen


def _lacking(isolation: Isolation) -> list[_Wanted]:
    """Return what of the newest round has no result: nodes alone, and ends of pairs."""
    asked = isolation.asked
    if asked is None:
        return []
    number = asked.round
    alone = {each.node: True for each in isolation.alone if each.round == number}
    pairs = {each.nodes: True for each in isolation.pairs if each.round == number}
    ends = {(end.node, *end.nodes): True for end in isolation.ends}
    wanted = [_Wanted(node=node, round=number) for node in asked.alone if node not in alone]
    for pair in asked.pairs:
        if pair not in pairs:
            both = [_Wanted(node=node, round=number, pair=pair) for node in pair]
            wanted += [one for one in both if one.subject not in ends]
    return wanted


def _question(decision: Decision, isolation: Isolation) -> Question:
    nodes = [name for name in isolation.participants if name not in isolation.known_good]
    return Question(
        nodes=tuple(nodes),
        domains={
            kind: {name: tuple(members) for name, members in domains.items()}
            for kind, domains in decision.policy.cluster.domains.items()
        },
        hardware_classes=isolation.hardware_classes,
        known_good=tuple(isolation.known_good),
        more_matchings=MORE_MATCHINGS,
    )


def _num_measured(state: State) -> int:
    return sum(state.num_open("node_task", task) for task in TASKS)


def _subject(work: NodeTask) -> tuple[str, ...]:
    """Return what a task measures: a node alone, or its end of a pair."""
    return (work.node, *work.args.get("nodes", ()))


def _issue(decision: Decision, isolation: Isolation, wanted: _Wanted) -> None:
    node, pair, number = wanted.node, wanted.pair, wanted.round
    args: dict[str, Any] = {"isolation": isolation.isolation, "round": number}
    if python := _python(decision, isolation):
        args["python"] = python
    if not pair:
        args["checks"] = list(ALONE_CHECKS)
        what, seconds = f"{node} alone", ALONE_DEADLINE_SECONDS
    else:
        name = f"{isolation.isolation} {number} {' '.join(pair)}"
        args |= {
            "end": pair.index(node),
            "nodes": list(pair),
            "address": decision.state.nodes[pair[0]].address,
            "port": FIRST_PORT + crc32(name.encode()) % NUM_PORTS,
            "seconds": PAIR_SECONDS,
            **_environment(decision, isolation),
        }
        what, seconds = f"{pair[0]} with {pair[1]}", PAIR_DEADLINE_SECONDS
    decision.issue(
        NodeTask(node=node, task="measure" if pair else "check", args=args),
        f"isolation {isolation.isolation}: {what}, round {number}",
        run=isolation.run,
        incident=isolation.incident,
        deadline_seconds=seconds,
    )


def _environment(decision: Decision, isolation: Isolation) -> dict[str, dict[str, str]]:
    """Return how the ranks of the run communicate, where its run.yaml says it."""
    run = decision.state.runs.get(isolation.run or 0)
    given = run.spec.environment if run is not None else {}
    chosen = {
        name: value for name, value in given.items() if name.startswith(COMMUNICATION_PREFIXES)
    }
    return {"environment": chosen} if chosen else {}


def _python(decision: Decision, isolation: Isolation) -> str:
    """Return the interpreter that a person named, or that of the run, or of any: it has torch."""
    if isolation.python:
        return isolation.python
    run = decision.state.runs.get(isolation.run or 0)
    runs = [run] if run is not None else list(decision.state.runs.values())
    return next((each.spec.python for each in runs if each.spec.python), "")


def on_measured(decision: Decision, action: Action, result: ActionResult) -> None:
    """Record what came of a measurement; one of an isolation that is over says nothing any more."""
    work = action.read(NodeTask)
    name, number = str(work.args["isolation"]), int(work.args["round"])
    isolation = decision.state.isolations.get(name)
    if isolation is None or isolation.judged is not None:
        return
    if work.task == "check":
        alone, hardware_class, trouble = alone_result(result, node=work.node, number=number)
        decision.add(
            IsolationMeasured(
                isolation=name, alone=alone, hardware_class=hardware_class, trouble=trouble
            )
        )
        return
    nodes: tuple[str, str] = (work.args["nodes"][0], work.args["nodes"][1])
    end = end_result(result, node=work.node, nodes=nodes)
    trouble = f"{work.node}: {end.trouble}" if end.trouble else ""
    first = isolation.first_end(nodes)
    pair: PairResult | None = None
    if first is not None:
        pair = pair_result(first, end, number=number)
    decision.add(
        IsolationMeasured(
            isolation=name, pair=pair, end=None if pair is not None else end, trouble=trouble
        )
    )
