"""The journal's compactor: a thread that writes snapshots and moves old entries to files, so that no decision waits for it.
Learned summaries are written by it, too.

The thread that owns the state encodes it between two decisions; hashing, the store and the disk are this thread's work. It has
one job at a time and accepts none while busy: a late snapshot only makes the next take-over read more entries.
"""

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from runner.errors import StoreUnavailable, UserError
from runner.journal.journal import Journal

_LOG = logging.getLogger("stoker")


@dataclass(frozen=True, slots=True, kw_only=True)
class StateImage:
    """The state after entry `through`, as an encoded message. `cursors`: stream -> number of its newest processed item."""

    body: bytes
    through: int
    cursors: Mapping[str, int] = field(default_factory=dict)


class JournalCompactor:
    """The compactor of one supervisor. A store or disk that fails is retried with the next job; other errors go to `on_error`."""

    def __init__(self, journal: Journal, on_error: Callable[[Exception], None]) -> None:
        self._journal, self._on_error = journal, on_error
        self._jobs: queue.SimpleQueue[StateImage | Callable[[], None] | None] = queue.SimpleQueue()
        self._idle = threading.Event()
        self._idle.set()
        self._is_failing = False
        self._thread = threading.Thread(target=self._run, name="compactor", daemon=True)

    @property
    def is_idle(self) -> bool:
        """Whether it accepts a state image now."""
        return self._idle.is_set()

    def start(self) -> None:
        """Start, first finishing what an earlier supervisor left half done."""
        self._idle.clear()
        self._jobs.put(StateImage(body=b"", through=0))
        self._thread.start()

    def submit(self, image: StateImage) -> None:
        """Write this snapshot, then move the entries that it covers to files; only when idle."""
        self._idle.clear()
        self._jobs.put(image)

    def submit_write(self, write: Callable[[], None]) -> None:
        """Write something else that may be lost; only when idle."""
        self._idle.clear()
        self._jobs.put(write)

    def close(self, timeout_seconds: float) -> None:
        """End after the present job; wait for it at most this long."""
        self._jobs.put(None)
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while (image := self._jobs.get()) is not None:
            try:
                if not isinstance(image, StateImage):
                    # What it writes is written again soon.
                    with contextlib.suppress(StoreUnavailable):
                        image()
                else:
                    self._compact(image)
                    self._is_failing = False
            except (StoreUnavailable, UserError) as error:
                if not self._is_failing:
                    what = "journal entries were not moved to files"
                    _LOG.warning("%s: %s; retrying with the next snapshot", what, error)
                self._is_failing = True
            except Exception as error:  # noqa: BLE001 - bulkhead: ends the supervisor, loudly
                self._on_error(error)
                return
            self._idle.set()

    def _compact(self, image: StateImage) -> None:
        if image.through:
            self._journal.write_encoded_snapshot(image.body, image.through)
            self._journal.trim_inputs(image.cursors)
        num_moved = self._journal.archive()
        if num_moved:
            _LOG.info("%d journal entries were moved to files", num_moved)
