"""The writer of the cluster's status: a thread that encodes and writes the newest one, so that no decision waits for it.

The larger the fleet, the more a status costs and the less often it is built: once per `period`,
plus the time to write it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from msgspec import Raw
from msgspec.structs import replace

from runner.errors import StoreUnavailable
from runner.facts import wire
from runner.facts.messages.cluster_status import ClusterStatus
from runner.facts.store_names import STATUS
from runner.store.protocol import Lease, Store

# Between two builds at least, for each node, and at most: below the age at which `stoker status`
# warns. Chosen.
SHORTEST_SECONDS = 0.5
SECONDS_PER_NODE = 0.0019
LONGEST_SECONDS = 4.0


def period(num_nodes: int) -> float:
    """Return the least time between two builds for a fleet, in seconds."""
    return min(LONGEST_SECONDS, max(SHORTEST_SECONDS, SECONDS_PER_NODE * num_nodes))


class StatusWriter:
    """Writes the newest status; one that the store does not accept is replaced by the next."""

    def __init__(self, store: Store, lease: Lease, on_error: Callable[[Exception], None]) -> None:
        """`on_error` gets, on the writer's thread, every error except an unreachable store."""
        self._store, self._lease, self._on_error = store, lease, on_error
        self._changed = threading.Condition()
        self._newest: ClusterStatus | None = None
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="status-writer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def write(self, status: ClusterStatus) -> None:
        """Write this soon, instead of one that still waits."""
        with self._changed:
            self._newest = status
            self._changed.notify()

    def stop(self, timeout_seconds: float) -> None:
        """Write nothing more, and wait for the write in progress; may be called twice."""
        with self._changed:
            self._newest, self._is_over = None, True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def write_now(self, status: ClusterStatus) -> None:
        """Write this now, on the caller's thread; raises what the store does."""
        self._store.put(STATUS, _encode(status), fence=self._lease)

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._newest is None and not self._is_over:
                    self._changed.wait()
                status, self._newest = self._newest, None
            if status is None:
                return
            try:
                with contextlib.suppress(StoreUnavailable):
                    self.write_now(status)
            except Exception as error:  # noqa: BLE001 - bulkhead: the supervisor's loop raises it
                self._on_error(error)
                return


def _encode(status: ClusterStatus) -> bytes:
    """Encode each node and run by itself: the codec's slow way for a text in one is not taken for thousands of others."""
    message = wire.to_message(replace(status, nodes=(), runs=()))
    message["nodes"] = [Raw(wire.encode_value(node)) for node in status.nodes]
    message["runs"] = [Raw(wire.encode_value(run)) for run in status.runs]
    return wire.encode_message(message)
