"""Which providers a cluster has. Only this module names them: a new one is its own file and an entry here."""

from __future__ import annotations

from collections.abc import Callable

from runner.facts.specs.cluster import ClusterSpec
from runner.providers.composite import CompositeProvider
from runner.providers.local import LocalProvider, check_local_nodes, claim_local_nodes
from runner.providers.protocol import NodeProvider
from runner.providers.self_joined import SelfJoinedProvider
from runner.signer import Signer
from runner.store.protocol import Lease, Store

Factory = Callable[[ClusterSpec, Store, Lease, Signer], NodeProvider | None]


def _local(cluster: ClusterSpec, *_: object) -> NodeProvider | None:
    return LocalProvider(cluster)


def _self_joined(
    cluster: ClusterSpec, store: Store, lease: Lease, signer: Signer
) -> NodeProvider | None:
    # Without an address the store is files on this machine, which no other machine reaches.
    return SelfJoinedProvider(cluster, store, lease, signer) if cluster.store.address else None


# The last one that applies takes the nodes that no provider names.
FACTORIES: tuple[Factory, ...] = (_local, _self_joined)


def check_provider(cluster: ClusterSpec, store: Store) -> None:
    """Raise UserError when the cluster's nodes cannot be reached from this machine."""
    check_local_nodes(cluster, store)


def provider_of(cluster: ClusterSpec, store: Store, lease: Lease, signer: Signer) -> NodeProvider:
    """Return the provider of the cluster's nodes, which this machine claims; raise UserError as `check_provider` does."""
    claim_local_nodes(cluster, store, lease)
    made = [factory(cluster, store, lease, signer) for factory in FACTORIES]
    providers = [provider for provider in made if provider is not None]
    return CompositeProvider(providers) if len(providers) > 1 else providers[0]
