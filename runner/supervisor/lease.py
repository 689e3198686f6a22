"""The one lease of a cluster: acquired, renewed by a thread of its own, and released.

Only its holder may act. Every append checks the lease's token, so that a supervisor that lost the lease unnoticed writes nothing.
"""

import contextlib
import importlib.metadata
import os
import socket
import threading
from collections.abc import Callable
from typing import Self

import psutil

from runner.errors import Fenced, StoreRolledBack, StoreUnavailable, UserError
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.store_names import LEASE
from runner.store.protocol import Lease, LeaseHeld, Store, boot_id


def holder_name() -> str:
    """Name this process as host:pid:start:machine, which neither a reused pid nor another host can match.

    `machine` is this boot of the kernel and our pid namespace: containers may share a host's name.
    """
    start = f"{psutil.Process().create_time():.2f}"
    return f"{socket.gethostname()}:{os.getpid()}:{start}:{_machine()}"


def _machine() -> str:
    return f"{boot_id()[:8]}.{os.stat('/proc/self/ns/pid').st_ino}"


def _is_here(holder: str) -> bool:
    """Whether a holder is, or was, visible from this process. Holders of older releases are compared by host alone."""
    parts = holder.split(":")
    return parts[0] == socket.gethostname() and (len(parts) < 4 or parts[3] == _machine())


def holder_pid(holder: str) -> int | None:
    """Return the pid of a holder on this machine that is still alive (not a zombie); None if dead or elsewhere."""
    parts = holder.split(":")
    if len(parts) not in (3, 4) or not _is_here(holder):
        return None
    try:
        process = psutil.Process(int(parts[1]))
        is_same = f"{process.create_time():.2f}" == parts[2]
        return process.pid if is_same and process.status() != psutil.STATUS_ZOMBIE else None
    except (psutil.NoSuchProcess, ValueError):
        return None


def is_known_dead(holder: str) -> bool:
    """Whether a holder was on this machine and is gone; one elsewhere is never known dead."""
    return _is_here(holder) and holder_pid(holder) is None


def version() -> str:
    """Return the installed version of Stoker."""
    try:
        return importlib.metadata.version("stoker")
    except importlib.metadata.PackageNotFoundError:
        # Run from a checkout that was never installed.
        return "unknown"


def acquire_lease(cluster: ClusterSpec, store: Store) -> Lease:
    """Acquire the lease, at once if its holder is known to be dead. Raises LeaseHeld while the holder may be alive."""
    current = store.lease_holder(LEASE)
    if current is not None and is_known_dead(current.holder):
        store.break_lease(LEASE, current.holder)
    return store.acquire_lease(LEASE, holder_name(), ttl_seconds=cluster.lease_seconds)


def require_no_leader(cluster: ClusterSpec, store: Store) -> None:
    """Raise UserError that names the supervisor which leads the cluster, if one does that is not known to be dead."""
    current = store.lease_holder(LEASE)
    if current is None or current.expires_in_seconds <= 0 or is_known_dead(current.holder):
        return
    raise _is_led(cluster, current.holder, current.expires_in_seconds)


def _is_led(cluster: ClusterSpec, holder: str, expires_in_seconds: float) -> UserError:
    metrics = f" and serves metrics on port {cluster.metrics_port}" if cluster.metrics_port else ""
    return UserError(
        f"cluster {cluster.name!r} (state {cluster.state}) is led by another supervisor, "
        f"{holder} (host:pid:start){metrics}; use that one, or stop it with `stoker shutdown`; if it died on another "
        f"host, its lease expires in {expires_in_seconds:.0f} s; to take over when it dies, run "
        "`stoker supervise --standby`"
    )


class LeaseKeeper:
    """Holds the lease as a context; `start_renewing` renews it until the context ends."""

    def __init__(self, cluster: ClusterSpec, store: Store, lease: Lease | None = None) -> None:
        """`lease`: already acquired, by a standby; without it, it is acquired on entry."""
        self._cluster, self._store, self._acquired = cluster, store, lease
        self._ended = threading.Event()
        self.is_lost = False
        # Set if the lease was lost because the store rolled back.
        self.rollback: StoreRolledBack | None = None

    def __enter__(self) -> Self:
        """Acquire the lease unless it is ours. Raises UserError when another supervisor leads."""
        try:
            self.lease = self._acquired or acquire_lease(self._cluster, self._store)
        except LeaseHeld as error:
            raise _is_led(self._cluster, error.holder, error.expires_in_seconds) from error
        return self

    def start_renewing(self, *, on_loss: Callable[[], None]) -> None:
        """Renew the lease from now on; call `on_loss` once if it is no longer ours."""
        threading.Thread(target=self._renew, args=(on_loss,), name="lease", daemon=True).start()

    def _renew(self, on_loss: Callable[[], None]) -> None:
        while not self._ended.wait(self._cluster.lease_seconds / 3):
            try:
                self._store.renew(self.lease)
            except StoreUnavailable:
                # An expired lease is ours until another supervisor acquires it.
                continue
            except (Fenced, StoreRolledBack) as error:
                self.is_lost = True
                self.rollback = error if isinstance(error, StoreRolledBack) else None
                on_loss()
                return

    def __exit__(self, *_: object) -> None:
        """Release the lease, so that the next supervisor need not wait."""
        self._ended.set()
        with contextlib.suppress(StoreUnavailable):
            if self.rollback is None:
                self._store.release(self.lease)
