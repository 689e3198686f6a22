"""When the cluster's status is built, and how much of it at a time, so that no decision waits for it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

import psutil

from runner.decide.state.cluster_state import State
from runner.facts.messages.signals import Heartbeat
from runner.facts.specs.cluster import ClusterSpec
from runner.history.ledger import Ledger
from runner.supervisor.status_builder import LastHeartbeats, StatusBuilder, build_status
from runner.supervisor.status_writer import StatusWriter, period

# Between two builds while only heartbeats bring news. Chosen.
HEARTBEAT_SECONDS = 1.0
# Of building, before the loop looks for something to decide. Chosen.
SLICE_SECONDS = 0.002


class StatusPublisher:
    """Builds the status on the supervisor's loop; `StatusWriter`'s thread encodes and writes it.

    Times are seconds on the controller's clock.
    """

    def __init__(
        self,
        cluster: ClusterSpec,
        writer: StatusWriter,
        own_status: Callable[[], Mapping[str, object]],
    ) -> None:
        """`own_status` returns the fields of the status about the supervisor itself, except its process and the time."""
        self._cluster, self._writer, self._own_status = cluster, writer, own_status
        self._heartbeats = LastHeartbeats()
        # Begun, and not done.
        self._builder: StatusBuilder | None = None
        # Since the last build began: the state changed; a heartbeat arrived.
        self._has_changed, self._has_heartbeats = True, False
        self._built_at = self._period = 0.0
        self._process = psutil.Process()

    def on_heartbeat(self, heartbeat: Heartbeat, now: float) -> None:
        """Publish what an agent reports, at a pace of its own: building costs more than all other work of a small fleet."""
        self._heartbeats.record(heartbeat, now)
        self._has_heartbeats = True

    def mark_changed(self) -> None:
        """Publish soon: the state changed."""
        self._has_changed = True

    def due_at(self) -> float:
        """Return when there is something to do, inf: nothing; 0: now, because a build is half done."""
        if self._builder is not None:
            return 0.0
        if self._has_changed:
            return self._built_at + self._period
        return (
            self._built_at + max(self._period, HEARTBEAT_SECONDS)
            if self._has_heartbeats
            else math.inf
        )

    def advance(self, state: State, ledger: Ledger, now: float) -> None:
        """Begin a build if one is due, continue it for a moment, and hand it to the writer once it is done."""
        if self._builder is None and now >= self.due_at():
            self._builder = StatusBuilder(state, self._cluster, ledger, self._heartbeats, now)
            self._has_changed = self._has_heartbeats = False
            self._built_at, self._period = now, period(len(state.nodes))
        if self._builder is None:
            return
        until = time.monotonic() + SLICE_SECONDS
        while self._builder.build_next():
            if time.monotonic() >= until:
                return
        self._writer.write(self._builder.status(now, self._supervisor_fields()))
        self._builder = None

    def publish_final(self, state: State, ledger: Ledger, now: float) -> None:
        """Build and write a status now, on the caller's thread; raises what the store does."""
        about = self._supervisor_fields()
        self._writer.write_now(
            build_status(state, self._cluster, ledger, self._heartbeats, now=now, about=about)
        )

    def _supervisor_fields(self) -> dict[str, object]:
        return {
            "wall": time.time(),
            "supervisor_resident_bytes": self._process.memory_info().rss,
            "supervisor_cpu_seconds": time.process_time(),
            **self._own_status(),
        }
