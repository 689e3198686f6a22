"""Leadership: the one lease of a cluster, taken, renewed by a thread of its own, and given back.

The lease says who may act; the token in it is checked in every append, so that one who lost it without noticing writes nothing.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

import psutil

from runner.errors import Fenced, StoreUnavailable, UserError
from runner.facts.cluster_spec import ClusterSpec
from runner.store.store import Lease, LeaseHeld, Store

LEASE = "supervisor"


def holder_name() -> str:
    """Name this life of this process: host:pid:start, so that a pid used again is not taken for us."""
    return f"{socket.gethostname()}:{os.getpid()}:{psutil.Process().create_time():.2f}"


def holder_pid(holder: str) -> int | None:
    """Return the pid of a holder on this machine that is still alive (not a zombie); None if dead or elsewhere."""
    parts = holder.split(":")
    if len(parts) != 3 or parts[0] != socket.gethostname():
        return None
    try:
        process = psutil.Process(int(parts[1]))
        alive = (
            f"{process.create_time():.2f}" == parts[2] and process.status() != psutil.STATUS_ZOMBIE
        )
    except (psutil.NoSuchProcess, ValueError):
        return None
    return process.pid if alive else None


def is_known_dead(holder: str) -> bool:
    """Whether a holder was on this machine and is gone; one elsewhere is never known dead."""
    return holder.split(":")[0] == socket.gethostname() and holder_pid(holder) is None


class Leadership:
    """Holds the lease as a context; `keep` renews it until the context ends."""

    def __init__(self, cluster: ClusterSpec, store: Store) -> None:
        """Nothing is taken yet."""
        self._cluster, self._store = cluster, store
        self._ended = threading.Event()
        self.is_lost = False

    def __enter__(self) -> Self:
        """Take the lease; a holder known to be dead is not waited for. Raises UserError when a living one leads."""
        holder, ttl = holder_name(), self._cluster.lease_seconds
        current = self._store.lease_holder(LEASE)
        if current is not None and is_known_dead(current.holder):
            self._store.break_lease(LEASE, current.holder)
        try:
            self.lease: Lease = self._store.acquire_lease(LEASE, holder, ttl_seconds=ttl)
        except LeaseHeld as error:
            raise UserError(
                f"cluster {self._cluster.name!r} (state {self._cluster.state}) is led by another supervisor, "
                f"{error.holder} (host:pid:start); use that one, or stop it with `stoker shutdown`; should it be dead "
                f"on another host, its lease runs out in {error.expires_in_seconds:.0f} s"
            ) from error
        return self

    def keep(self, *, on_loss: Callable[[], None]) -> None:
        """Renew from now on; call `on_loss` once if the lease is no longer ours."""
        threading.Thread(target=self._renew, args=(on_loss,), name="lease", daemon=True).start()

    def _renew(self, on_loss: Callable[[], None]) -> None:
        while not self._ended.wait(self._cluster.lease_seconds / 3):
            try:
                self._store.renew(self.lease)
            except StoreUnavailable:
                continue  # the token protects the journal; a lease that ran out is still ours until somebody takes it
            except Fenced:
                self.is_lost = True
                on_loss()
                return

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the lease back, so that the next supervisor need not wait."""
        self._ended.set()
        with contextlib.suppress(StoreUnavailable):
            self._store.release(self.lease)
