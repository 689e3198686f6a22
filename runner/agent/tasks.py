"""Tasks: one-offs for a node, done once and answered. Those that end the agent are answered before they strike."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Mapping
from typing import Any, Literal

from runner.agent.ranks.channels import Channels
from runner.agent.ranks.gang import Gang
from runner.facts.actions import ActionResult
from runner.facts.messages.assignments import Task

# drills that end the agent itself
STRIKES = ("kill-agent", "kill-node")
# must not be done a second time by a later life
ONCE = ("drill", "leave")
_RANK_DRILLS = {"kill-rank": signal.SIGKILL, "stop-rank": signal.SIGSTOP}


def refusal(
    task: Task, *, node: str, life: str, epoch: int, gang: Gang | None, has_waited: bool
) -> str:
    """Say why a task is not to be done; empty when it is. `epoch`: the highest this node obeyed; `life`: this agent's.

    `has_waited`: it may have lain there for any time, since no agent was listening. A drill is refused then: it was
    meant for what ran when it was asked for.
    """
    if task.node != node:
        return f"task {task.id} is for node {task.node!r}, this is {node!r}"
    if task.epoch and task.epoch < (gang.epoch if gang is not None else epoch):
        return f"task {task.id} is of epoch {task.epoch}, older than what runs here"
    if task.task == "check":
        # does no harm, however late
        return ""
    if has_waited and (task.task == "drill" or not task.epoch):
        return f"task {task.id} waited while no agent was listening here; ask again"
    # said to one life, so that nobody who plays it back ends a later one
    if task.task == "leave":
        return "" if task.args.get("life") == life else f"task {task.id} was for an earlier agent"
    if task.task == "drill" and task.args.get("fault") in STRIKES:
        return ""
    if gang is None:
        return f"no ranks run on node {node!r}"
    return ""


def perform(
    task: Task, gang: Gang, channels: Channels, strike: Callable[[int, int], None]
) -> tuple[Literal["done", "failed"], str, Mapping[str, Any]]:
    """Do a task that concerns ranks; return outcome, message and detail. `strike(rank, signal)` hits one rank."""
    if task.task == "ask_ranks":
        return _ask(task, gang, channels)
    fault, number = task.args.get("fault"), task.args.get("rank")
    if fault not in _RANK_DRILLS:
        known = ", ".join((*_RANK_DRILLS, *STRIKES))
        return "failed", f"unknown drill {str(fault)[:40]!r}; known: {known}", {}
    rank = gang.ranks.get(number) if isinstance(number, int) else None
    if rank is None or not rank.is_alive:
        alive = [each.rank for each in gang.alive]
        return "failed", f"rank {str(number)[:40]} is not alive here; alive: {alive}", {}
    strike(rank.rank, _RANK_DRILLS[fault])
    return "done", f"{fault} {rank.rank}", {"pid": rank.pid}


def result(
    task: Task,
    outcome: Literal["done", "failed"],
    message: str,
    detail: Mapping[str, Any] | None = None,
) -> ActionResult:
    """Return the answer to a task."""
    return ActionResult(id=task.id, outcome=outcome, message=message, detail=detail or {})


def _ask(
    task: Task, gang: Gang, channels: Channels
) -> tuple[Literal["done", "failed"], str, Mapping[str, Any]]:
    wanted = task.args.get("request")
    understood = gang.understood.requests if gang.understood is not None else ()
    if wanted not in understood:
        says = f"understand {', '.join(understood)}" if understood else "said hello to no request"
        return "failed", f"the ranks {says}; not {str(wanted)[:40]!r}", {}
    line = json.dumps({"kind": "request", "id": task.id, **task.args}).encode()
    deaf = [rank.rank for rank in gang.alive if not channels.send(rank.rank, line)]
    asked = [rank.rank for rank in gang.alive if rank.rank not in deaf]
    if deaf or not asked:
        return "failed", f"ranks {deaf} do not take requests", {"asked": asked}
    return "done", f"asked {len(asked)} ranks", {"asked": asked}
