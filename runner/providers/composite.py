"""Several providers as one: each node belongs to the first provider that names it, any other node to the last."""

from __future__ import annotations

from collections.abc import Sequence

from runner.facts.actions import Outcome
from runner.facts.messages.signals import Signal
from runner.providers.protocol import NodeProvider


class CompositeProvider:
    """Passes each call on to the provider of the node; the last provider takes nodes that no provider names."""

    def __init__(self, providers: Sequence[NodeProvider]) -> None:
        self._fallback = providers[-1]
        self._by_node = {
            node: provider for provider in reversed(providers) for node in provider.nodes
        }
        self._nodes = tuple(node for provider in providers for node in provider.nodes)

    @property
    def nodes(self) -> tuple[str, ...]:
        return self._nodes

    def on_signal(self, signal: Signal) -> None:
        self._of(signal.node).on_signal(signal)

    def start_agent(self, node: str) -> Outcome:
        return self._of(node).start_agent(node)

    def stop_agent(self, node: str) -> Outcome:
        return self._of(node).stop_agent(node)

    def probe_node(self, node: str) -> Outcome:
        return self._of(node).probe_node(node)

    def _of(self, node: str) -> NodeProvider:
        return self._by_node.get(node, self._fallback)
