"""What a provider of nodes offers."""

from __future__ import annotations

from typing import Protocol

from runner.facts.actions import Outcome
from runner.facts.messages.signals import Signal


class NodeProvider(Protocol):
    """A source of nodes. Its operations may take seconds and are called from threads of their own."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes it can start an agent on, known before they join."""
        ...

    def on_signal(self, signal: Signal) -> None:
        """Note a heartbeat, NodeJoined or NodeLeft. Called from the supervisor's thread for each, so it must be quick."""
        ...

    def start_agent(self, node: str) -> Outcome:
        """Start an agent; a live one is left alone."""
        ...

    def stop_agent(self, node: str) -> Outcome:
        """End the agent, its keeper and all ranks, and whatever else they left on the node."""
        ...

    def probe_node(self, node: str) -> Outcome:
        """Probe from outside: {reachable, agent: alive|dead, keeper: alive|dead|unknown, ranks_alive: pids}."""
        ...
