"""Actions: what Stoker does to the world, with a life of their own.

An action is written down before it is performed; after a crash those without an outcome are performed again, so every kind
must bear being done twice. `unknown` is neither success nor failure: nobody saw the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from runner.facts.wire import message

ActionKind = Literal[
    # verify checkpoints newest first, pick a rendezvous -> {resume, step, attempt, refused, address, port}
    "prepare_attempt",
    # look at a silent node from outside -> {reachable, agent, keeper, ranks_alive}
    "probe_node",
    # start an agent on a node; one that is alive is left alone
    "start_agent",
    # end agent and keeper of a node, and sweep what they left
    "stop_agent",
    # send a Task to an agent; the agent answers
    "node_task",
    # a sealed checkpoint -> intact or not
    "verify_checkpoint",
    # delete what policy no longer keeps
    "prune_checkpoints",
    # tell a person
    "page",
]


# How a handler's action ended, its detail, and a message for people.
Outcome = tuple[Literal["done", "failed"], Mapping[str, Any], str]


class ActionState(StrEnum):
    """Where an action stands."""

    # waits for a person
    PROPOSED = "proposed"
    ISSUED = "issued"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"
    WITHDRAWN = "withdrawn"


TRANSITIONS: dict[ActionState, tuple[ActionState, ...]] = {
    ActionState.PROPOSED: (ActionState.ISSUED, ActionState.WITHDRAWN),
    ActionState.ISSUED: (ActionState.DONE, ActionState.FAILED, ActionState.UNKNOWN),
    ActionState.DONE: (),
    ActionState.FAILED: (),
    ActionState.UNKNOWN: (),
    ActionState.WITHDRAWN: (),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One intent. `reason` is for people; `incident` is what it answers, if any."""

    id: str
    action: ActionKind
    reason: str
    args: Mapping[str, Any] = field(default_factory=dict)
    run: int | None = None
    incident: str | None = None
    deadline_seconds: float = 60.0


@message("action_result")
@dataclass(frozen=True, slots=True, kw_only=True)
class ActionResult:
    """How an action ended; comes back as a signal. The first result counts, later ones are ignored."""

    id: str
    outcome: Literal["done", "failed", "unknown"]
    detail: Mapping[str, Any] = field(default_factory=dict)
    message: str = ""
