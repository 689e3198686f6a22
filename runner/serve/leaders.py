"""Which supervisor holds a cluster's lease, and whether a store is the cluster's own: what is asked before a request is sent."""

from dataclasses import dataclass

from runner.errors import TemporaryError, UserError
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.store_names import LEASE
from runner.signer import signer_of
from runner.store.protocol import Store


class NoLeader(TemporaryError):
    """No supervisor holds the cluster's lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """The holder of a cluster's lease, as seen from this machine."""

    # host:pid:start; "": the lease is free.
    holder: str = ""
    alive: bool = False


def leader_of(store: Store) -> Leader:
    """Return the lease's holder; one that died on this machine is not alive, even before its lease expires."""
    current = store.lease_holder(LEASE)
    if current is None:
        return Leader()
    from runner.supervisor.lease import is_known_dead

    alive = current.expires_in_seconds > 0 and not is_known_dead(current.holder)
    return Leader(holder=current.holder, alive=alive)


def require_leader(store: Store, cluster: ClusterSpec) -> Leader:
    """Return the lease's holder; raise NoLeader if there is none alive."""
    leader = leader_of(store)
    if leader.alive:
        return leader
    last = f"; the last one was {leader.holder}" if leader.holder else ""
    raise NoLeader(
        f"no supervisor holds the lease of cluster {cluster.name!r} ({cluster.state}){last}, so nothing would act on this; "
        "start one with `stoker supervise`"
    )


def require_own_store(store: Store, cluster: ClusterSpec) -> None:
    """Raise UserError if a cluster of the same name, with another token, has written this store."""
    from runner.journal.journal import Journal

    if Journal(store, signer=signer_of(cluster)).is_of_another_cluster():
        token = cluster.token_file
        raise UserError(
            f"name: {store} holds the journal of another cluster {cluster.name!r}, whose token is not "
            f"{f'in {token}' if token else 'here: this one has none'}; give this cluster (state {cluster.state}) another name, or "
            "another store; if it is the same cluster, copy the token file of the machine that led it"
        )
