"""Runbooks as data: the front matter the daemon executes. The prose below it is for the on-call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from runner.facts.faults import Fault

RungVerb = Literal[
    "restart",  # the same nodes, from the newest intact checkpoint
    "swap",  # the culprit's node leaves, a spare takes its place
    "start_agent",  # only the agent is gone: start another, it adopts the ranks
    "quarantine",  # the culprit's hardware is refused until somebody readmits it; its node is out of service
    "stop",  # end the run, keep everything, say why
    "watch",  # nothing: the run goes on, and a later step proves that it could
]
Condition = Literal["always", "agent_only", "node_dead"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One remedy: what to do, how often before the next rung, and on what evidence."""

    do: RungVerb
    tries: int = 1
    when: Condition = "always"
    page: bool = False  # tell a person when this rung is taken


@dataclass(frozen=True, slots=True, kw_only=True)
class Runbook:
    """One page: the faults that open it and its ladder, tried from the top."""

    name: str
    title: str
    faults: tuple[Fault, ...]
    ladder: tuple[Rung, ...]
