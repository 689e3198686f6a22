"""Drills: real faults that an operator asks for, passed to the agent or the ranks that are to break. No detector hears of one."""

from typing import Any

from runner.decide.decision import Decision, Reply, refused
from runner.decide.placement.launch_plans import checkpoint_folder
from runner.decide.state.cluster_state import Attempt, Run
from runner.facts.actions import Action, ActionResult, NodeTask
from runner.facts.drills import (
    DRILL_KINDS,
    RANK_DRILLS,
    DrillOptions,
    RankDrill,
    filled,
    problem_of,
)
from runner.facts.messages.requests import Drill
from runner.facts.messages.signals import RequestTaken

# Chosen, not measured.
DRILL_SECONDS = 10.0


def on_drill(decision: Decision, request: Drill, run: Run) -> Reply:
    """Pass a drill on, or refuse it with the reason."""
    attempt = run.attempt
    if attempt is None or attempt.state not in ("launching", "running"):
        return refused(f"run {run.spec.name!r} has no running attempt to break")
    if request.fault in RANK_DRILLS:
        return _drill_by_ranks(decision, request, request.fault, run=run, attempt=attempt)
    options = [name for name in ("step", "steps", "strength") if getattr(request, name) is not None]
    if options or request.damage:
        return refused(f"{request.fault} takes no {', '.join(options) or 'damage'}")
    node, problem = _victim(request, run, attempt.nodes)
    if problem:
        return refused(problem)
    if request.fault == "ask-ranks":
        point = request.point or "step"
        args = {"request": "drill", "fault": "die", "rank": request.rank, "point": point}
        _ask_every_node(decision, request, attempt, args)
        return Reply("open", f"rank {request.rank} will die at {point}")
    args = {"fault": request.fault}
    if request.rank is not None:
        args["rank"] = request.rank
    _send(decision, request, attempt, node=node, task="drill", args=args)
    return Reply("open", f"{request.fault} on {node}")


def _drill_by_ranks(
    decision: Decision, request: Drill, fault: RankDrill, *, run: Run, attempt: Attempt
) -> Reply:
    """Ask the ranks for a fault that their trainer makes, if they say that they know it."""
    name, world_size = run.spec.name, run.spec.world_size
    options = DrillOptions(
        rank=request.rank,
        step=request.step,
        steps=request.steps,
        strength=request.strength,
        damage=request.damage,
    )
    if request.node is not None or request.point:
        return refused(f"{fault} takes a rank, no node and no point")
    if fault not in attempt.drills:
        known = ", ".join(attempt.drills) or "none"
        return refused(
            f"{fault}: the ranks of {name!r} do not report support for it (drills known to them: {known}); a trainer says so in "
            "its hello (`stoker docs contract`); if it is still starting, ask again"
        )
    problem = problem_of(fault, options, world_size=world_size)
    problem = problem or _unfit(decision, fault, run=run, attempt=attempt)
    if problem:
        return refused(f"{problem} (run {name!r})")
    fields = filled(fault, options, world_size=world_size)
    _ask_every_node(decision, request, attempt, {"request": "drill", **fields})
    where = f"rank {fields['rank']}" if fields["rank"] != -1 else "all ranks"
    return Reply("open", f"{fault} on {where}: asking the ranks")


def _unfit(decision: Decision, fault: RankDrill, *, run: Run, attempt: Attempt) -> str:
    """Return why this run cannot have such a fault."""
    kind = DRILL_KINDS[fault]
    if kind.needs_checkpoints and not checkpoint_folder(decision.policy.cluster, run):
        return f"{fault}: the run has no folder for checkpoints"
    for name, value in kind.settings.items():
        found = attempt.settings.get(name)
        if found != value:
            return f"{fault} needs {name} {value}; the ranks report {found or 'none yet'}"
    return ""


def _ask_every_node(
    decision: Decision, request: Drill, attempt: Attempt, args: dict[str, Any]
) -> None:
    """Give the request to the ranks of every node under one id, so that they agree on one step for it."""
    for node in attempt.nodes:
        _send(
            decision,
            request,
            attempt,
            node=node,
            task="ask_ranks",
            args={"id": request.id, **args},
        )


def _send(
    decision: Decision, request: Drill, attempt: Attempt, *, node: str, task: Any, args: Any
) -> None:
    work = NodeTask(
        node=node, task=task, generation=attempt.generation, args=args, request=request.id
    )
    reason, run = f"drill for {request.by}", attempt.attempt.run
    decision.issue(work, reason, run=run, deadline_seconds=DRILL_SECONDS)


def _victim(request: Drill, run: Run, nodes: list[str]) -> tuple[str, str]:
    """Return the node that the fault strikes, and what is wrong with the request."""
    name = run.spec.name
    if request.fault in ("kill-node", "kill-agent"):
        node = request.node or nodes[-1]
        unknown = f"no node {node!r} in {name!r}; it runs on {', '.join(nodes)}"
        return node, "" if node in nodes else unknown
    if request.rank is None or not 0 <= request.rank < run.spec.world_size:
        most = run.spec.world_size - 1
        return "", f"no rank {request.rank} in {name!r}; ranks are 0 to {most}"
    return nodes[request.rank // run.spec.ranks_per_node], ""


def on_task_ended(decision: Decision, action: Action, result: ActionResult) -> None:
    """Answer the person whose drill this was, once no node's answer is missing."""
    work = action.read(NodeTask)
    request = decision.state.requests.get(work.request or "")
    if request is None or request.state != "open":
        return
    are_others_open = len(decision.state.open_actions("node_task", request=work.request)) > 1
    if are_others_open and result.outcome != "failed":
        return
    fault = work.args.get("fault", "")
    text = f"{fault} on {work.node}: {result.outcome} {result.message}".rstrip()
    decision.answer(request, "failed" if result.outcome == "failed" else "done", text)


def on_request_taken(decision: Decision, taken: RequestTaken) -> None:
    """Tell the person after which step the ranks have begun, if that comes before the agents' answers."""
    request = decision.state.requests.get(taken.request)
    if request is not None and request.state == "open" and request.request == "drill":
        text = f"in effect after step {taken.step} of {taken.attempt}"
        decision.answer(request, "done", text)
