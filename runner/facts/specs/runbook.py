"""Runbooks as data: the front matter the daemon executes. The prose below it is for the on-call."""

from typing import Literal

from runner.facts.faults import Fault
from runner.facts.wire import Value

RungVerb = Literal[
    # The same nodes, from the newest intact checkpoint.
    "restart",
    # The culprit's node leaves, a spare takes its place.
    "swap",
    # Only the agent is gone: start another, it adopts the ranks.
    "start_agent",
    # The culprit's hardware is refused until an operator readmits it; its node is out of service.
    "quarantine",
    # End the run, keep everything, report why.
    "stop",
    # Nothing: the run goes on, and a later step proves that it could.
    "watch",
]
# Verbs that leave the gang alone: the incident is non-fatal.
NON_FATAL_VERBS: tuple[RungVerb, ...] = ("watch",)
Condition = Literal["always", "agent_only", "node_dead"]


class Rung(Value):
    """One remedy: what to do, how often before the next rung, and on what evidence."""

    do: RungVerb
    tries: int = 1
    when: Condition = "always"
    # Page an operator when this rung is taken.
    page: bool = False

    @property
    def ends_gang(self) -> bool:
        """Whether the gang does not go on when this rung is taken."""
        return self.do not in NON_FATAL_VERBS


class Runbook(Value):
    """One page: the faults that open it and its ladder, tried from the top."""

    name: str
    title: str
    faults: tuple[Fault, ...]
    ladder: tuple[Rung, ...]
