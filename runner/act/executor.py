"""Perform: runs each action in a thread that has no other to run, and reports its outcome; one that hangs blocks nobody.

Threads that are done wait a while for the next action, since each has a connection to the store to itself.

The deadline belongs to the controller, which counts an overdue action as unknown; a result that comes later is ignored there.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Mapping

from runner.errors import StokerError, TemporaryError
from runner.facts.actions import Action, ActionResult, Outcome

# threads that wait for the next action; chosen: about as many as one decision makes
MAX_IDLE = 8
# for which they wait; chosen
IDLE_SECONDS = 10.0

Performance = Callable[[Action], Outcome | None]


class ActionExecutor:
    """Performs actions. `report` is called from the action's thread."""

    def __init__(
        self, performances: Mapping[str, Performance], report: Callable[[ActionResult], None]
    ) -> None:
        """`performances` maps a kind to what does it; None as its outcome means: somebody else will report (an agent)."""
        self._performances = performances
        self._report = report
        self._lock = threading.Lock()
        # threads that wait and have been promised nothing
        self._num_idle = 0
        self._promised: queue.SimpleQueue[Action] = queue.SimpleQueue()

    def submit(self, action: Action) -> None:
        """Start performing; returns at once."""
        with self._lock:
            if self._num_idle:
                self._num_idle -= 1
                self._promised.put(action)
                return
        threading.Thread(target=self._work, args=(action,), daemon=True).start()

    def _work(self, action: Action | None) -> None:
        while action is not None:
            threading.current_thread().name = f"act-{action.id}"
            self._perform(action)
            action = self._next()

    def _next(self) -> Action | None:
        """Wait for another action; None when there are enough who wait, or none came for a while."""
        with self._lock:
            if self._num_idle >= MAX_IDLE:
                return None
            self._num_idle += 1
        threading.current_thread().name = "act-idle"
        with contextlib.suppress(queue.Empty):
            return self._promised.get(timeout=IDLE_SECONDS)
        with self._lock:
            with contextlib.suppress(queue.Empty):
                # promised at the last moment
                return self._promised.get_nowait()
            self._num_idle -= 1
        return None

    def _perform(self, action: Action) -> None:
        performance = self._performances.get(action.action)
        if performance is None:
            message = f"nothing here performs {action.action!r}"
            self._report(ActionResult(id=action.id, outcome="failed", message=message))
            return
        try:
            outcome = _patiently(performance, action)
        except (StokerError, OSError) as error:
            outcome = ("failed", {}, f"{type(error).__name__}: {error}"[:1000])
        except Exception as error:  # noqa: BLE001 - bulkhead: a bug here is an outcome, no more
            outcome = ("failed", {}, f"bug: {type(error).__name__}: {error}"[:1000])
        if outcome is not None:
            kind, detail, message = outcome
            self._report(ActionResult(id=action.id, outcome=kind, detail=detail, message=message))


def _patiently(performance: Performance, action: Action) -> Outcome | None:
    """Perform, and again after a temporary failure, as long as that leaves time before the deadline."""
    deadline = time.monotonic() + action.deadline_seconds
    while True:
        try:
            return performance(action)
        except TemporaryError as error:
            if time.monotonic() + 2 * error.delay_seconds >= deadline:
                raise
            time.sleep(error.delay_seconds)
