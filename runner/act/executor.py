"""Run each action in a thread of its own and report its outcome; one that hangs blocks no other.

The deadline belongs to the controller, which counts an overdue action as unknown and ignores a later result.
"""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Mapping

from runner.act.action_handlers import ActionHandler
from runner.errors import StokerError, TemporaryError
from runner.facts.actions import Action, ActionResult, Outcome

# Threads that wait for the next action: each has a connection to the store. Chosen: about as many as one decision makes.
MAX_IDLE = 8
IDLE_SECONDS = 10.0


class ActionExecutor:
    """Runs actions. `report` is called from the action's thread."""

    def __init__(
        self, handlers: Mapping[str, ActionHandler], report: Callable[[ActionResult], None]
    ) -> None:
        """`handlers` maps each kind of action to its handler."""
        self._handlers, self._report = handlers, report
        self._lock = threading.Lock()
        # Threads that wait and have no action assigned.
        self._num_idle = 0
        self._assigned: queue.SimpleQueue[Action] = queue.SimpleQueue()

    def submit(self, action: Action) -> None:
        """Start an action; return at once."""
        with self._lock:
            if self._num_idle:
                self._num_idle -= 1
                self._assigned.put(action)
                return
        threading.Thread(target=self._work, args=(action,), daemon=True).start()

    def _work(self, action: Action | None) -> None:
        while action is not None:
            threading.current_thread().name = f"act-{action.id}"
            self._run(action)
            action = self._next()

    def _next(self) -> Action | None:
        """Wait for another action; None when enough threads wait already, or none came in time."""
        with self._lock:
            if self._num_idle >= MAX_IDLE:
                return None
            self._num_idle += 1
        threading.current_thread().name = "act-idle"
        with contextlib.suppress(queue.Empty):
            return self._assigned.get(timeout=IDLE_SECONDS)
        with self._lock:
            # `submit` may have assigned one since the time-out.
            with contextlib.suppress(queue.Empty):
                return self._assigned.get_nowait()
            self._num_idle -= 1
        return None

    def _run(self, action: Action) -> None:
        handler = self._handlers.get(action.action)
        message = f"no handler for actions of kind {action.action!r}"
        outcome: Outcome | None = ("failed", {}, message)
        try:
            if handler is not None:
                outcome = _run_with_retries(handler, action)
        except Exception as error:  # noqa: BLE001 - bulkhead: a bug here is an outcome, no more
            bug = "" if isinstance(error, StokerError | OSError) else "bug: "
            outcome = ("failed", {}, f"{bug}{type(error).__name__}: {error}"[:1000])
        if outcome is not None:
            kind, detail, message = outcome
            self._report(ActionResult(id=action.id, outcome=kind, detail=detail, message=message))


def _run_with_retries(handler: ActionHandler, action: Action) -> Outcome | None:
    """Run an action; repeat it after a temporary failure while that leaves time before its deadline."""
    deadline = time.monotonic() + action.deadline_seconds
    while True:
        try:
            return handler(action)
        except TemporaryError as error:
            if time.monotonic() + 2 * error.delay_seconds >= deadline:
                raise
            time.sleep(error.delay_seconds)
