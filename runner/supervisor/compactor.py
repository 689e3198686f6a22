"""The archivist: a thread that writes snapshots down and moves old entries to files, so that no decision waits for either.

The picture of the state is taken between two turns, by the thread that owns the state; turning it into bytes, hashing, the
store and the disk are this thread's. It has one job at a time, and looks at none while it has one: a snapshot that comes later
only makes the next take-over read a longer tail.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.errors import StoreUnavailable, UserError
from runner.facts.wire import encode_message
from runner.journal.journal import Journal

_LOG = logging.getLogger("stoker")


@dataclass(frozen=True, slots=True, kw_only=True)
class StateImage:
    """The state after entry `through`, ready for JSON; nobody changes it any more."""

    plain: dict[str, Any]
    through: int
    # stream -> the newest word taken in
    cursors: Mapping[str, int] = field(default_factory=dict)

    def encoded(self) -> bytes:
        """Return it as the message it is."""
        return encode_message(self.plain)


class JournalCompactor:
    """Works for one supervisor. What it cannot do now it leaves to the next time; other errors go to `on_error`."""

    def __init__(self, journal: Journal, on_error: Callable[[Exception], None]) -> None:
        self._journal = journal
        self._on_error = on_error
        self._jobs: queue.SimpleQueue[StateImage | None] = queue.SimpleQueue()
        self._idle = threading.Event()
        self._idle.set()
        self._is_failing = False
        self._thread = threading.Thread(target=self._run, name="archivist", daemon=True)

    @property
    def is_idle(self) -> bool:
        """Whether it would take a picture now."""
        return self._idle.is_set()

    def start(self) -> None:
        """Begin, with what an earlier life left half done."""
        self._idle.clear()
        self._jobs.put(StateImage(plain={}, through=0))
        self._thread.start()

    def take(self, picture: StateImage) -> None:
        """Write this snapshot, and move what can be moved then; only when it is idle."""
        self._idle.clear()
        self._jobs.put(picture)

    def close(self, timeout_seconds: float) -> None:
        """End once the job in hand is done, waiting for it as long as said."""
        self._jobs.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while (picture := self._jobs.get()) is not None:
            try:
                self._work(picture)
                self._is_failing = False
            except (StoreUnavailable, UserError) as error:
                if not self._is_failing:
                    _LOG.warning("old journal entries stay in the store for now: %s", error)
                self._is_failing = True
            except Exception as error:  # noqa: BLE001 - bulkhead: ends the supervisor, loudly
                self._on_error(error)
                return
            self._idle.set()

    def _work(self, picture: StateImage) -> None:
        if picture.through:
            self._journal.write_encoded_snapshot(picture.encoded(), picture.through)
            self._journal.forget_words(picture.cursors)
        num_moved = self._journal.archive()
        if num_moved:
            _LOG.info("%d journal entries were moved to files", num_moved)
