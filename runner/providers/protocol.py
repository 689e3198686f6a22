"""What a provider of nodes offers. Each kind registers itself where it is defined."""

from typing import ClassVar, Protocol, Self, TypeVar

from runner.facts.actions import Outcome
from runner.facts.messages.signals import Signal
from runner.facts.specs.cluster import ClusterSpec
from runner.signer import Signer
from runner.store.protocol import Lease, Store


class NodeProvider(Protocol):
    """A source of nodes. Its operations may take seconds and are called from threads of their own.

    `order`: a node belongs to the first provider that names it, any other node to the last. `nodes`: names of the nodes that it
    can start an agent on, known before they join. `check`, `claim` and `on_signal` do nothing unless a provider needs them.
    """

    order: ClassVar[int] = 0
    nodes: tuple[str, ...] = ()

    @classmethod
    def of_cluster(cls, cluster: ClusterSpec, store: Store, signer: Signer) -> Self | None:
        """Return the provider of a cluster; None if the cluster cannot have such nodes."""
        ...

    def check(self) -> None:
        """Raise UserError when its nodes cannot be reached from this machine."""
        return

    def claim(self, lease: Lease) -> None:
        """Prepare to lead under this lease, which fences all that the provider writes; raise UserError as `check` does."""
        return

    def on_signal(self, signal: Signal) -> None:
        """Note a heartbeat, NodeJoined or NodeLeft. Called from the supervisor's thread for each, so it must be quick."""
        return

    def find_down(self) -> tuple[str, ...]:
        """Return those of `nodes` on which no process of ours is left, looked up without waiting."""
        return ()

    def start_agent(self, node: str) -> Outcome:
        """Start an agent; a live one is left alone."""
        ...

    def stop_agent(self, node: str) -> Outcome:
        """End the agent, its keeper and all ranks, and whatever else they left on the node."""
        ...

    def probe_node(self, node: str) -> Outcome:
        """Probe from outside: {reachable, agent: alive|dead, keeper: alive|dead|unknown, ranks_alive: pids}."""
        ...


PROVIDERS: list[type[NodeProvider]] = []
Kind = TypeVar("Kind", bound=type[NodeProvider])


def register(kind: Kind) -> Kind:
    """Add a class of providers to `PROVIDERS`."""
    PROVIDERS.append(kind)
    return kind
