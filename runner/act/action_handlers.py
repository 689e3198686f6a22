"""Which edge performs which kind of action."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from runner.act.checkpoints import prepare_attempt, prune_checkpoints, verify_checkpoint
from runner.act.executor import Performance
from runner.act.pages import tell
from runner.facts import wire
from runner.facts.actions import Action, Outcome
from runner.facts.messages.assignments import Task
from runner.providers.local import NodeProvider
from runner.signer import Signer
from runner.store.protocol import Lease, Store


def performances(
    place: NodeProvider, store: Store, lease: Lease, signer: Signer
) -> dict[str, Performance]:
    """Return what performs each kind of action of `facts.actions.ActionKind`."""

    def send_task(action: Action) -> Outcome | None:
        stream = f"tasks/{action.args['node']}"
        store.append(stream, signer.sign(stream, wire.encode(_task(action))), fence=lease)
        # the agent answers
        return None

    return {
        "prepare_attempt": prepare_attempt,
        "verify_checkpoint": verify_checkpoint,
        "prune_checkpoints": prune_checkpoints,
        "start_agent": lambda action: place.start_agent(str(action.args["node"])),
        "stop_agent": lambda action: place.stop_agent(str(action.args["node"])),
        "probe_node": lambda action: place.probe_node(str(action.args["node"])),
        "node_task": send_task,
        "page": _page,
    }


def _task(action: Action) -> Task:
    args: Mapping[str, Any] = action.args
    return Task(
        id=action.id,
        node=args["node"],
        task=args["task"],
        args=args["args"],
        epoch=args["epoch"],
        deadline_seconds=action.deadline_seconds,
    )


def _page(action: Action) -> Outcome:
    return "done", {}, tell(action.args["message"])
