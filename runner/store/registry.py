"""Opening: which store a cluster has, and a handle on it. Nobody else names a kind of store."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from runner.errors import StoreUnavailable, UserError
from runner.facts.specs.cluster import ClusterSpec
from runner.store.protocol import Store
from runner.store.sqlite.store import SqliteStore

# between two tries to reach a server; chosen
MAX_DELAY_SECONDS = 2.0


def store_folder(cluster: ClusterSpec) -> Path:
    """Return where the cluster's store is, if it is one of files."""
    return Path(cluster.state) / "store"


def exists(cluster: ClusterSpec) -> bool:
    """Whether the cluster's store was ever written to; a server that is out of reach may hold one."""
    if not cluster.store.address:
        return store_folder(cluster).is_dir()
    from runner.store.redis.handshake import NeverStarted
    from runner.store.redis.store import RedisStore

    try:
        RedisStore(cluster.store, cluster.name, create=False).close()
    except NeverStarted:
        return False
    return True


def open_store(cluster: ClusterSpec, *, create: bool = True) -> Store:
    """Open a handle; without `create`, raise UserError when the cluster was never started."""
    if cluster.store.address:
        # brings ssl: only where it is needed
        from runner.store.redis.store import RedisStore

        return RedisStore(cluster.store, cluster.name, create=create)
    if not create and not store_folder(cluster).is_dir():
        raise UserError(
            f"cluster {cluster.name!r} was never started: there is no store in {store_folder(cluster)}; "
            "start it with `stoker run` or `stoker supervise`"
        )
    return SqliteStore(store_folder(cluster), create=create)


def open_store_in_time(cluster: ClusterSpec, say: Callable[[str], None]) -> Store:
    """Open a handle; wait for a server that is out of reach, however long that takes, having told `say` so once.

    For those who are to be there when it is back: agents, whose ranks go on meanwhile, and standbys.
    """
    is_away = False
    while True:
        try:
            return open_store(cluster)
        except StoreUnavailable as error:
            if not is_away:
                say(f"{error}; waiting for it")
            is_away = True
            time.sleep(min(error.delay_seconds, MAX_DELAY_SECONDS))


def check_durable(store: Store) -> None:
    """Raise UserError, with every setting that is to blame, if the store might forget what it acknowledges."""
    from runner.store.redis.store import RedisStore

    if not isinstance(store, RedisStore):
        return
    from runner.store.redis.durability import judge_durability

    wrong = [found for found in judge_durability(store) if not found.good]
    if wrong:
        reasons = "\n  ".join(f"{found.name}: {found.reason}" for found in wrong)
        raise UserError(
            f"store.address: {store.server} would forget, and nobody can lead by a journal that may be lost:\n  {reasons}\n"
            "deploy/redis.conf has it right, `stoker store doctor` looks at all of it; to lead in spite of it, where losing the "
            "run's history does no harm: --volatile-store"
        )
