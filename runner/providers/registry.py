"""All providers of a cluster as one. Every module of this package that registers a provider takes part."""

import pkgutil
from collections.abc import Sequence
from importlib import import_module
from operator import attrgetter
from typing import Self

import runner.providers
from runner.facts.actions import Outcome
from runner.facts.messages.signals import Signal
from runner.facts.specs.cluster import ClusterSpec
from runner.providers.protocol import PROVIDERS, NodeProvider
from runner.signer import Signer
from runner.store.protocol import Lease, Store

for _module in pkgutil.iter_modules(runner.providers.__path__, "runner.providers."):
    import_module(_module.name)


class CompositeProvider(NodeProvider):
    """Passes each call on to the provider of the node; the last provider takes nodes that no provider names."""

    def __init__(self, providers: Sequence[NodeProvider]) -> None:
        self._providers = providers
        self._by_node = {
            node: provider for provider in reversed(providers) for node in provider.nodes
        }
        self.nodes = tuple(node for provider in providers for node in provider.nodes)

    @classmethod
    def of_cluster(cls, cluster: ClusterSpec, store: Store, signer: Signer) -> Self:
        kinds = sorted(PROVIDERS, key=attrgetter("order"))
        made = (kind.of_cluster(cluster, store, signer) for kind in kinds)
        return cls([provider for provider in made if provider is not None])

    def check(self) -> None:
        for provider in self._providers:
            provider.check()

    def claim(self, lease: Lease) -> None:
        for provider in self._providers:
            provider.claim(lease)

    def on_signal(self, signal: Signal) -> None:
        self._of(signal.node).on_signal(signal)

    def find_down(self) -> tuple[str, ...]:
        return tuple(node for provider in self._providers for node in provider.find_down())

    def start_agent(self, node: str) -> Outcome:
        return self._of(node).start_agent(node)

    def stop_agent(self, node: str) -> Outcome:
        return self._of(node).stop_agent(node)

    def probe_node(self, node: str) -> Outcome:
        return self._of(node).probe_node(node)

    def _of(self, node: str) -> NodeProvider:
        return self._by_node.get(node, self._providers[-1])
