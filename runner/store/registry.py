"""Which store a cluster has, by the form of its address, and a handle on it. Only this module names back ends."""

import pkgutil
import time
from collections.abc import Callable
from typing import Protocol

from runner.errors import StoreUnavailable, UserError
from runner.facts.specs.cluster import ClusterSpec
from runner.store.examination import PASS
from runner.store.protocol import Store

# between two tries to reach a server; chosen
MAX_DELAY_SECONDS = 2.0


class BackEnd(Protocol):
    """A kind of store."""

    def of_cluster(self, cluster: ClusterSpec, *, create: bool) -> Store:
        """Open a handle; without `create`, raise UserError when the cluster was never started."""
        ...

    def exists(self, cluster: ClusterSpec) -> bool:
        """Return whether the cluster was ever started; true for a server that is out of reach."""
        ...


HOST_PORT = "HOST:PORT"
# form of store.address -> its back end, imported when needed: that of Redis loads ssl
BACK_ENDS = {
    "": "runner.store.sqlite.store:SqliteStore",
    HOST_PORT: "runner.store.redis.store:RedisStore",
}


def form_of(address: str) -> str:
    """Return "", HOST_PORT, or the scheme of an address with "://", whose rest the back end checks itself."""
    scheme, separator, _ = address.partition("://")
    return scheme if separator else address and HOST_PORT


def _back_end(cluster: ClusterSpec) -> BackEnd:
    form = form_of(cluster.store.address)
    if form not in BACK_ENDS:
        known = ", ".join(filter(None, BACK_ENDS))
        raise UserError(
            f"store.address: no back end {form!r}; known: {known}, and files if left out"
        )
    back_end: BackEnd = pkgutil.resolve_name(BACK_ENDS[form])
    return back_end


def exists(cluster: ClusterSpec) -> bool:
    """Return whether the cluster was ever started; true for a server that is out of reach."""
    return _back_end(cluster).exists(cluster)


def open_store(cluster: ClusterSpec, *, create: bool = True) -> Store:
    """Open a handle; without `create`, raise UserError when the cluster was never started."""
    return _back_end(cluster).of_cluster(cluster, create=create)


def open_store_in_time(cluster: ClusterSpec, log: Callable[[str], None]) -> Store:
    """Open a handle; wait for a server that is out of reach, and log that once.

    For agents, whose ranks run on meanwhile, and for standbys.
    """
    is_logged = False
    while True:
        try:
            return open_store(cluster)
        except StoreUnavailable as error:
            if not is_logged:
                log(f"{error}; waiting for it")
            is_logged = True
            time.sleep(min(error.delay_seconds, MAX_DELAY_SECONDS))


def check_durable(store: Store) -> None:
    """Raise UserError that names every setting by which the store may lose acknowledged writes."""
    wrong = [each for each in store.durability() if each.outcome != PASS]
    if wrong:
        reasons = "\n  ".join(f"{each.check}: {each.reason}" for each in wrong)
        raise UserError(
            f"store.address: {store} may lose acknowledged writes, and no supervisor can lead by such a journal:\n  {reasons}\n"
            "`stoker docs redis.conf` has the right settings, `stoker store doctor` checks all of them; to lead in spite of it, "
            "where losing the run's history does no harm: --volatile-store"
        )
