"""Views: the newest View is written by a thread of its own, so that no decision waits for it.

The larger the fleet, the more a View costs and the less often it is drawn: at most `period` seconds old, plus the time to write it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Any

from runner.errors import StoreUnavailable
from runner.facts import wire
from runner.store.protocol import Lease, Store

VIEW = "view"
# a View, as `wire.to_message` makes it
Message = Mapping[str, Any]
# Between two Views at least: so long, or so long for each node, and never longer than `stoker status` takes for old; chosen.
SHORTEST_SECONDS = 0.5
SECONDS_PER_NODE = 0.0019
LONGEST_SECONDS = 4.0


def period(num_nodes: int) -> float:
    """Return the least time between two Views of a fleet, in seconds."""
    return min(LONGEST_SECONDS, max(SHORTEST_SECONDS, SECONDS_PER_NODE * num_nodes))


class StatusWriter:
    """Writes what it is given last; what the store does not take is overtaken by the next. Made at once, started when needed."""

    def __init__(self, store: Store, lease: Lease, on_error: Callable[[Exception], None]) -> None:
        """`on_error` is told, on the writer's thread, of everything but a store that is away."""
        self._store, self._lease, self._on_error = store, lease, on_error
        self._changed = threading.Condition()
        self._newest: Message | None = None
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="view", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def write(self, view: Message) -> None:
        """Have this written soon, in place of what still waits."""
        with self._changed:
            self._newest = view
            self._changed.notify()

    def stop(self, timeout_seconds: float) -> None:
        """Write nothing more, and wait for what is being written; may be called twice."""
        with self._changed:
            self._newest, self._is_over = None, True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def put(self, view: Message) -> None:
        """Write this now, on the caller's thread; raises what the store does."""
        self._store.put(VIEW, wire.encode_message(view), fence=self._lease)

    def _run(self) -> None:
        while True:
            with self._changed:
                while self._newest is None and not self._is_over:
                    self._changed.wait()
                view, self._newest = self._newest, None
            if view is None:
                return
            try:
                with contextlib.suppress(StoreUnavailable):
                    self.put(view)
            except Exception as error:  # noqa: BLE001 - bulkhead: whoever leads is told, and judges
                self._on_error(error)
                return
