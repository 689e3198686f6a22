"""Perform: runs each action in a thread of its own and reports its outcome; one that hangs blocks nobody.

The deadline belongs to the controller, which counts an overdue action as unknown; a result that comes later is ignored there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Literal

from runner.errors import StokerError, TemporaryError
from runner.facts.actions import Action, ActionResult

Outcome = tuple[Literal["done", "failed"], Mapping[str, Any], str]
Performance = Callable[[Action], Outcome | None]


class Performer:
    """Performs actions. `report` is called from the action's thread."""

    def __init__(
        self, performances: Mapping[str, Performance], report: Callable[[ActionResult], None]
    ) -> None:
        """`performances` maps a kind to what does it; None as its outcome means: somebody else will report (an agent)."""
        self._performances = performances
        self._report = report

    def submit(self, action: Action) -> None:
        """Start performing; returns at once."""
        threading.Thread(
            target=self._perform, args=(action,), name=f"act-{action.id}", daemon=True
        ).start()

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
