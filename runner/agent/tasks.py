"""Tasks: one-off requests to a node, done once and answered. A drill that ends the agent is answered before it runs."""

import json
import signal
from collections.abc import Callable, Mapping
from typing import Any, Literal

from runner.agent.ranks.channels import Channels
from runner.agent.ranks.gang import LocalGang
from runner.facts.actions import ActionResult
from runner.facts.messages.assignments import Task

# Drills that end the agent itself.
AGENT_DRILLS = ("kill-agent", "kill-node")
# Tasks that a later instance must not repeat.
ONCE = ("drill", "leave")
_RANK_DRILLS = {"kill-rank": signal.SIGKILL, "stop-rank": signal.SIGSTOP}


def refusal(
    task: Task,
    *,
    node: str,
    instance_id: str,
    generation: int,
    gang_generation: int | None,
    has_waited: bool,
) -> str:
    """Return why a task is refused; "" when it is accepted.

    `generation` is the highest that this node accepted; `gang_generation` that of its ranks, None without ranks.
    `has_waited`: the task may be of any age, since no agent was reading. A drill and a measurement are refused then:
    they were meant for the ranks, or for the other end, of their own time.
    """
    if task.node != node:
        return f"task {task.id} is for node {task.node!r}, this is {node!r}"
    if task.task == "verify":
        # It reads files that no rank changes: harmless at any age and in any generation.
        return ""
    newest = generation if gang_generation is None else gang_generation
    if task.generation and task.generation < newest:
        return f"task {task.id} is of generation {task.generation}, older than what runs here"
    if task.task == "check":
        # Harmless at any age.
        return ""
    if task.task == "measure" and gang_generation is not None:
        return f"ranks run on node {node!r}: it is not measured beside them"
    if task.task == "measure" and not has_waited:
        return ""
    # The other end of a measurement does not wait for long.
    if has_waited and (task.task in ("drill", "measure") or not task.generation):
        return f"task {task.id} waited while no agent was listening here; ask again"
    # It names one instance, so that a replay does not end a later one.
    if task.task == "leave":
        is_mine = task.args.get("instance_id") == instance_id
        return "" if is_mine else f"task {task.id} was for an earlier agent"
    needs_ranks = task.task != "drill" or task.args.get("fault") not in AGENT_DRILLS
    return f"no ranks run on node {node!r}" if needs_ranks and gang_generation is None else ""


def perform(
    task: Task, gang: LocalGang, channels: Channels, signal_rank: Callable[[int, int], None]
) -> ActionResult:
    """Do a task that concerns ranks, and return its answer. `signal_rank(rank, signal)` signals one rank."""
    if task.task == "ask_ranks":
        return _request_from_ranks(task, gang, channels)
    fault, number = task.args.get("fault"), task.args.get("rank")
    if fault not in _RANK_DRILLS:
        known = ", ".join((*_RANK_DRILLS, *AGENT_DRILLS))
        return result(task, "failed", f"unknown drill {str(fault)[:40]!r}; known: {known}")
    rank = gang.ranks.get(number) if isinstance(number, int) else None
    if rank is None or not rank.is_alive:
        alive = [each.rank for each in gang.alive]
        reason = f"rank {str(number)[:40]} is not alive here; alive: {alive}"
        return result(task, "failed", reason)
    signal_rank(rank.rank, _RANK_DRILLS[fault])
    return result(task, "done", f"{fault} {rank.rank}", {"pid": rank.pid})


def result(
    task: Task,
    outcome: Literal["done", "failed"],
    message: str,
    detail: Mapping[str, Any] | None = None,
) -> ActionResult:
    """Return the answer to a task."""
    return ActionResult(id=task.id, outcome=outcome, message=message, detail=detail or {})


def _request_from_ranks(task: Task, gang: LocalGang, channels: Channels) -> ActionResult:
    request = task.args.get("request")
    known = gang.hello.requests if gang.hello is not None else ()
    if request not in known:
        reason = f"understand {', '.join(known)}" if known else "said hello to no request"
        return result(task, "failed", f"the ranks {reason}; not {str(request)[:40]!r}")
    line = json.dumps({"kind": "request", "id": task.id, **task.args}).encode()
    reached = {rank.rank: channels.send(rank.rank, line) for rank in gang.alive}
    unreached = [rank for rank, is_sent in reached.items() if not is_sent]
    detail = {"asked": [rank for rank, is_sent in reached.items() if is_sent]}
    if unreached or not reached:
        return result(task, "failed", f"ranks {unreached} do not take requests", detail)
    return result(task, "done", f"asked {len(reached)} ranks", detail)
