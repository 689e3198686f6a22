"""Requests: what people ask for is checked, answered at once or when it has taken effect, and never done twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from runner.decide.decision import Decision
from runner.decide.nodes import drain
from runner.decide.placement.launch_plans import checkpoint_folder, run_folder
from runner.decide.placement.topology import tensor_groups_across_nodes
from runner.decide.state.cluster_state import GONE, Run
from runner.facts.actions import Action, ActionResult, NodeTask
from runner.facts.messages import records as r
from runner.facts.messages.requests import (
    AddRemedy,
    Drill,
    Request,
    ShutDown,
    StartRun,
    StopRun,
)
from runner.facts.remedies import REMEDIES
from runner.facts.specs.run import RunSpec
from runner.facts.wording import join_words, known_words

# Chosen, not measured.
MAX_GROUPS_NAMED = 4


def on_request(decision: Decision, request: Request) -> None:
    """Answer a request; one whose id is known already is not done again."""
    if request.id in decision.state.requests:
        return
    if decision.state.closing and not isinstance(request, ShutDown):
        decision.answer_new(request, "refused", "the cluster is shutting down")
        return
    HANDLERS[type(request)](decision, request)


def _shut_down(decision: Decision, request: ShutDown) -> None:
    decision.add(r.ClusterClosing(by=request.by, request=request.id))
    decision.answer_new(request, "open", "stopping runs, then agents")


def _start_run(decision: Decision, request: StartRun) -> None:
    spec, state = request.spec, decision.state
    twin = next(
        (run for run in state.runs.values() if run.spec.name == spec.name and _is_live(run)), None
    )
    if twin is not None:
        text = f"name: {spec.name!r} is run {twin.run}, which is {twin.state}; stop it first or choose another name"
        decision.answer_new(request, "refused", text)
        return
    # Slots of a node that has not joined yet are those of the cluster's settings.
    slots_of = {
        node.node: node.slots or decision.policy.cluster.local.slots
        for node in state.nodes.values()
    }
    fits = [
        node
        for node in state.nodes.values()
        if node.state not in GONE and slots_of[node.node] >= spec.ranks_per_node
    ]
    if len(fits) < spec.nodes:
        slots = max(slots_of.values(), default=0)
        text = (
            f"nodes x ranks_per_node: {spec.nodes} x {spec.ranks_per_node} asked for, but only {len(fits)} of "
            f"{len(state.nodes)} nodes are there with enough slots (largest node: {slots}); ask for less or add nodes"
        )
        decision.answer_new(request, "refused", text)
        return
    run = state.next_run
    admitted = Run(run=run, spec=spec, user=request.user)
    decision.add(r.RunAdmitted(run=run, spec=spec, user=request.user))
    kept = _carry_over(decision, admitted)
    folder = run_folder(decision.policy.cluster, admitted)
    torn = _torn(spec)
    decision.answer_new(request, "done", f"run {run}; files in {folder}{kept}{torn}", run=run)


def _torn(spec: RunSpec) -> str:
    """Describe which tensor-parallel groups do not fit on one node: it works, and slowly."""
    groups = tensor_groups_across_nodes(spec.tensor, spec.ranks_per_node, spec.world_size)
    if not groups:
        return ""
    named = join_words([f"{first}-{last}" for first, last in groups], most=MAX_GROUPS_NAMED)
    return (
        f"; tensor groups span nodes: ranks {named} (tensor {spec.tensor} does not divide {spec.ranks_per_node} ranks "
        "per node, so each step waits for the network between them)"
    )


def _carry_over(decision: Decision, run: Run) -> str:
    """Keep the remedies of the run whose checkpoints this one goes on from: a restart must not put them back silently."""
    folder = checkpoint_folder(decision.policy.cluster, run)
    before = [
        known
        for known in decision.state.runs.values()
        if folder and checkpoint_folder(decision.policy.cluster, known) == folder
    ]
    if not before or not before[-1].remedies:
        return ""
    by, remedies = f"run {before[-1].run}", before[-1].remedies
    for name, value in remedies.items():
        decision.add(r.RemedyAdded(run=run.run, remedy=REMEDIES[name].name, value=value, by=by))
    return (
        f"; goes on from {by}, with its {join_words([f'{k} {v:g}' for k, v in remedies.items()])}"
    )


def _is_live(run: Run) -> bool:
    return run.state in ("active", "waiting") or (
        run.attempt is not None and run.attempt.state != "ended"
    )


def _find(decision: Decision, request: Request, name: str) -> Run | None:
    """Find a live run by name or number, or refuse with the known ones."""
    runs = [run for run in decision.state.runs.values() if _is_live(run)]
    found = next((run for run in runs if name in (run.spec.name, str(run.run))), None)
    if found is None:
        known = known_words(name, [run.spec.name for run in runs], label="live runs")
        decision.answer_new(request, "refused", f"no live run {name!r}; {known}")
    return found


def _stop_run(decision: Decision, request: StopRun) -> None:
    run = _find(decision, request, request.run)
    if run is None:
        return
    # Its ranks are still being ended.
    if run.state not in ("active", "waiting"):
        decision.answer_new(request, "done", f"the run has {run.state} already", run=run.run)
        return
    decision.answer_new(request, "open", "stopping at the next step boundary", run=run.run)


def _add_remedy(decision: Decision, request: AddRemedy) -> None:
    run = _find(decision, request, request.run)
    if run is None:
        return
    problem = _remedy_problem(request, run)
    if problem:
        decision.answer_new(request, "refused", problem, run=run.run)
        return
    decision.add(
        r.RemedyAdded(
            run=run.run,
            remedy=request.remedy,
            value=request.value,
            by=request.by,
            request=request.id,
        )
    )
    text = "will be in effect after a checkpoint and a relaunch; answered with the value read back"
    decision.answer_new(request, "open", text, run=run.run)


def _remedy_problem(request: AddRemedy, run: Run) -> str:
    remedy = REMEDIES[request.remedy]
    if run.state not in ("active", "waiting"):
        return f"{remedy.command}: run {run.spec.name!r} is {run.state}"
    understood = run.attempt.understood_remedies if run.attempt else []
    if (problem := remedy.problem(request.value)) or remedy.name in understood:
        return problem
    have = ", ".join(understood) or "none"
    return (
        f"{remedy.command}: the ranks of {run.spec.name!r} do not report support for {remedy.name} "
        f"(remedies understood: {have}); a trainer says so in its hello (docs/contract.md); "
        "if it is still starting, ask again"
    )


def _drill(decision: Decision, request: Drill) -> None:
    run = _find(decision, request, request.run)
    if run is None:
        return
    attempt = run.attempt
    if attempt is None or attempt.state not in ("launching", "running"):
        decision.answer_new(
            request,
            "refused",
            f"run {run.spec.name!r} has no running attempt to break",
            run=run.run,
        )
        return
    node, problem = _victim(request, run, attempt.nodes)
    if node is None:
        decision.answer_new(request, "refused", problem, run=run.run)
        return
    reason = f"drill for {request.by}"
    if request.fault == "ask-ranks":
        point = request.point or "step"
        args: dict[str, object] = {
            "request": "drill",
            "fault": "die",
            "rank": request.rank,
            "point": point,
        }
        for name in attempt.nodes:
            work = NodeTask(node=name, task="ask_ranks", generation=attempt.generation, args=args)
            decision.issue(work, reason, run=run.run)
        text = f"rank {request.rank} will die at {point}"
        decision.answer_new(request, "done", text, run=run.run)
        return
    args = {"fault": request.fault}
    if request.rank is not None:
        args["rank"] = request.rank
    work = NodeTask(
        node=node, task="drill", generation=attempt.generation, args=args, request=request.id
    )
    decision.issue(work, reason, run=run.run, deadline_seconds=10.0)
    decision.answer_new(request, "open", f"{request.fault} on {node}", run=run.run)


def _victim(request: Drill, run: Run, nodes: list[str]) -> tuple[str | None, str]:
    if request.fault in ("kill-node", "kill-agent"):
        node = request.node or nodes[-1]
        known = node in nodes
        return (
            (node, "")
            if known
            else (None, f"no node {node!r} in {run.spec.name!r}; it runs on {', '.join(nodes)}")
        )
    if request.rank is None or not 0 <= request.rank < run.spec.world_size:
        return (
            None,
            f"no rank {request.rank} in {run.spec.name!r}; ranks are 0 to {run.spec.world_size - 1}",
        )
    return nodes[request.rank // run.spec.ranks_per_node], ""


def on_task_ended(decision: Decision, action: Action, result: ActionResult) -> None:
    """Answer the person whose drill this was."""
    work = action.read(NodeTask)
    request = decision.state.requests.get(work.request or "")
    if request is None or request.state != "open":
        return
    state: r.RequestStateName = "done" if result.outcome in ("done", "unknown") else "failed"
    fault = work.args.get("fault", "")
    text = f"{fault} on {work.node}: {result.outcome} {result.message}".rstrip()
    decision.answer(request, state, text)


HANDLERS: dict[type[Request], Callable[[Decision, Any], None]] = {
    StartRun: _start_run,
    StopRun: _stop_run,
    AddRemedy: _add_remedy,
    Drill: _drill,
    ShutDown: _shut_down,
    **dict.fromkeys(drain.NODE_REQUESTS, drain.on_node_request),
}
