"""Showing: when a View is drawn, and how much of it at a time, so that nobody who decides is kept waiting for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import psutil

from runner.decide.state.cluster_state import State
from runner.decide.status_builder import LastHeartbeats, StatusBuilder, draw
from runner.facts.messages.signals import Heartbeat
from runner.facts.specs.cluster import ClusterSpec
from runner.history.ledger import Ledger
from runner.supervisor.status_writer import StatusWriter, period

# between two Views while nothing changes but what heartbeats say; chosen
HEARD_SECONDS = 1.0
# of drawing, before it is seen whether there is something to decide; chosen
SLICE_SECONDS = 0.002


class StatusPublisher:
    """Owned by the supervisor's loop; encoding and writing are the thread's of `StatusWriter`.

    Times are seconds on the controller's clock.
    """

    def __init__(
        self, cluster: ClusterSpec, views: StatusWriter, about: Callable[[], Mapping[str, object]]
    ) -> None:
        """`about` returns what a View says of the supervisor itself, but for its process and the time."""
        self._cluster, self._views, self._about = cluster, views, about
        self._heard = LastHeartbeats()
        # begun, and not done
        self._drawing: StatusBuilder | None = None
        # Since the last one was begun: what we decide on; and what heartbeats alone say.
        self._has_changed, self._has_heard = True, False
        # of the one begun last
        self._drawn_at = self._period = 0.0
        self._process = psutil.Process()

    def hear(self, beat: Heartbeat, now: float) -> None:
        """Have what an agent sees shown, at heartbeats' own pace: drawing costs more than all else that a small fleet asks for."""
        self._heard.take(beat, now)
        self._has_heard = True

    def touch(self) -> None:
        """Have a View drawn soon that shows what has changed."""
        self._has_changed = True

    def due_at(self) -> float | None:
        """Return when there is something to do, if anything; 0: now, for one is half drawn."""
        if self._drawing is not None:
            return 0.0
        if self._has_changed:
            return self._drawn_at + self._period
        return self._drawn_at + max(self._period, HEARD_SECONDS) if self._has_heard else None

    def go_on(self, state: State, ledger: Ledger, now: float) -> None:
        """Begin a View if one is due, draw some more of it, and hand it over once it is done."""
        if self._drawing is None and (due := self.due_at()) is not None and now >= due:
            self._drawing = StatusBuilder(state, self._cluster, ledger, self._heard, now)
            self._has_changed = self._has_heard = False
            self._drawn_at, self._period = now, period(len(state.nodes))
        if self._drawing is None:
            return
        until = time.monotonic() + SLICE_SECONDS
        while self._drawing.go_on():
            if time.monotonic() >= until:
                return
        self._views.write(self._drawing.message(now, self._all_about()))
        self._drawing = None

    def show_the_last(self, state: State, ledger: Ledger, now: float) -> None:
        """Draw and write one now, on the caller's thread; raises what the store does."""
        about = self._all_about()
        self._views.put(draw(state, self._cluster, ledger, self._heard, now=now, about=about))

    def _all_about(self) -> dict[str, object]:
        return {
            "wall": time.time(),
            "supervisor_resident_bytes": self._process.memory_info().rss,
            "supervisor_cpu_seconds": time.process_time(),
            **self._about(),
        }
