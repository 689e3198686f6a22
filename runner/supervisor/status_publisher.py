"""The cluster's status: when it is built, how much of it at a time, and the thread that writes it, so that no decision waits.

The larger the fleet, the more a status costs and the less often it is built: once per `period`, plus the time to write it.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping

import psutil
from msgspec import Raw
from msgspec.structs import replace

from runner.decide.state.cluster_state import State
from runner.errors import StoreUnavailable
from runner.facts import wire
from runner.facts.messages.cluster_status import CheckStatus, ClusterStatus
from runner.facts.messages.signals import Heartbeat
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.store_names import CHECK_STATUS, STATUS
from runner.history.ledger import Ledger
from runner.signer import UNSIGNED, Signer
from runner.store.protocol import Lease, Store
from runner.supervisor.status_builder import LastHeartbeats, StatusBuilder

# Between two builds, for each node, and at least and at most: below the age at which `stoker status`
# warns; and while only heartbeats bring news. Chosen.
SECONDS_PER_NODE = 0.0019
SHORTEST_SECONDS = 0.5
LONGEST_SECONDS = 4.0
HEARTBEAT_SECONDS = 1.0
# Of a small fleet so many changes in a row are published at once, which builds that were not needed before pay for: a run that
# starts or ends is shown without delay. And the pause between those. Chosen.
MAX_BURST, BURST_PAUSE_SECONDS = 4.0, 0.05
# Of building, before the loop looks for something to decide. Chosen.
SLICE_SECONDS = 0.002


def period(num_nodes: int) -> float:
    """Return the least time between two builds for a fleet, in seconds."""
    return min(LONGEST_SECONDS, max(SHORTEST_SECONDS, SECONDS_PER_NODE * num_nodes))


class StatusWriter:
    """Writes the newest status; one that the store does not accept is replaced by the next."""

    def __init__(
        self,
        store: Store,
        lease: Lease,
        on_error: Callable[[Exception], None],
        signer: Signer = UNSIGNED,
    ) -> None:
        """`on_error` gets, on the writer's thread, every error except an unreachable store."""
        self._store, self._lease, self._on_error = store, lease, on_error
        self._signer = signer
        self._changed = threading.Condition()
        self._newest: tuple[ClusterStatus, CheckStatus | None] | None = None
        # The last that the store accepted: it is written only when it changed.
        self._written_checks: CheckStatus | None = None
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="status-writer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def write(self, status: ClusterStatus, checks: CheckStatus | None = None) -> None:
        """Write this soon, instead of one that still waits."""
        with self._changed:
            self._newest = status, checks
            self._changed.notify()

    def stop(self, timeout_seconds: float) -> None:
        """Write nothing more, and wait for the write in progress; may be called twice."""
        with self._changed:
            self._newest, self._is_over = None, True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def write_now(self, status: ClusterStatus, checks: CheckStatus | None = None) -> None:
        """Write this now, on the caller's thread; raises what the store does."""
        payload = self._signer.sign(STATUS, _encode(status))
        self._store.put(STATUS, payload, fence=self._lease)
        if checks is not None and checks != self._written_checks:
            payload = self._signer.sign(CHECK_STATUS, wire.encode(checks))
            self._store.put(CHECK_STATUS, payload, fence=self._lease)
            self._written_checks = checks

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._newest is None and not self._is_over:
                    self._changed.wait()
                newest, self._newest = self._newest, None
            if newest is None:
                return
            try:
                with contextlib.suppress(StoreUnavailable):
                    self.write_now(*newest)
            except Exception as error:  # noqa: BLE001 - bulkhead: the supervisor's loop raises it
                self._on_error(error)
                return


def _encode(status: ClusterStatus) -> bytes:
    """Encode each node and run by itself: the codec's slow way for a text in one is not taken for thousands of others."""
    message = wire.to_message(replace(status, nodes=(), runs=()))
    message["nodes"] = [Raw(wire.encode_value(node)) for node in status.nodes]
    message["runs"] = [Raw(wire.encode_value(run)) for run in status.runs]
    return wire.encode_message(message)


class StatusPublisher:
    """Builds the status on the supervisor's loop; `StatusWriter`'s thread encodes and writes it.

    Times are seconds on the controller's clock.
    """

    def __init__(
        self,
        cluster: ClusterSpec,
        writer: StatusWriter,
        own_status: Callable[[], Mapping[str, object]],
        *,
        rungs_per_day: Mapping[str, int] | None = None,
        page_notes: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """`own_status` returns the fields of the status about the supervisor itself, except its process and the time.

        `rungs_per_day`: page -> its limit, of pages that have one. `page_notes`: incident -> how far the newest page about it got.
        """
        self._page_notes = page_notes
        self._rungs_per_day = rungs_per_day
        self._cluster, self._writer, self._own_status = cluster, writer, own_status
        self._heartbeats = LastHeartbeats()
        # Begun, and not done.
        self._builder: StatusBuilder | None = None
        # Since the last build began: the state changed; a heartbeat arrived.
        self._has_changed, self._has_heartbeats = True, False
        self._built_at = self._period = 0.0
        # Builds that are allowed before their time: a token bucket, one token a period.
        self._burst = MAX_BURST
        self._process = psutil.Process()

    def on_heartbeat(self, heartbeat: Heartbeat, now: float) -> None:
        """Publish what an agent reports, at a pace of its own: building costs more than all other work of a small fleet."""
        self._heartbeats.record(heartbeat, now)
        self._has_heartbeats = True

    def mark_changed(self) -> None:
        """Publish soon: the state changed."""
        self._has_changed = True

    def mark_answered(self) -> None:
        """Publish sooner: an operator was answered, and looks at the status next."""
        self._has_changed = True
        self._burst = max(self._burst, 1.0)

    def due_at(self) -> float:
        """Return when there is something to do; 0: now, because a build is half done.

        A cluster without nodes and news is published as well: a status that grows old says that the supervisor is stuck.
        """
        if self._builder is not None:
            return 0.0
        if self._has_changed:
            may_hurry = self._burst >= 1.0 and self._period <= SHORTEST_SECONDS
            return self._built_at + (BURST_PAUSE_SECONDS if may_hurry else self._period)
        pause_seconds = HEARTBEAT_SECONDS if self._has_heartbeats else LONGEST_SECONDS
        return self._built_at + max(self._period, pause_seconds)

    def advance(self, state: State, ledger: Ledger, now: float) -> None:
        """Begin a build if one is due, continue it for a moment, and hand it to the writer once it is done."""
        if self._builder is None and now >= self.due_at():
            self._builder = self._begin(state, ledger, now)
            self._has_changed = self._has_heartbeats = False
            earned = (now - self._built_at) / self._period if self._period else MAX_BURST
            self._burst = min(MAX_BURST, self._burst + earned) - 1.0
            self._built_at, self._period = now, period(len(state.nodes))
        if self._builder is None:
            return
        until = time.monotonic() + SLICE_SECONDS
        while self._builder.build_next():
            if time.monotonic() >= until:
                return
        status = self._builder.status(now, self._supervisor_fields(), self._page_notes())
        self._writer.write(status, self._builder.check_status())
        self._builder = None

    def publish_final(self, state: State, ledger: Ledger, now: float) -> None:
        """Build and write a status now, on the caller's thread; raises what the store does."""
        builder = self._begin(state, ledger, now)
        status = builder.status(now, self._supervisor_fields(), self._page_notes())
        self._writer.write_now(status, builder.check_status())

    def _begin(self, state: State, ledger: Ledger, now: float) -> StatusBuilder:
        return StatusBuilder(
            state,
            self._cluster,
            ledger,
            self._heartbeats,
            now,
            rungs_per_day=self._rungs_per_day,
        )

    def _supervisor_fields(self) -> dict[str, object]:
        return {
            "wall": time.time(),
            "supervisor_resident_bytes": self._process.memory_info().rss,
            "supervisor_cpu_seconds": time.process_time(),
            **self._own_status(),
        }
