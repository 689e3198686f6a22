"""The inbox: one thread that blocks in reads of the store, and tells the owner what it found."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from runner.errors import StokerError, TemporaryError
from runner.facts.assignments import Assignment, Task
from runner.facts.wire import decode
from runner.store.store import Batch, Store

log = logging.getLogger("stoker.agent")

READ_SECONDS = 60.0  # one blocking read; the store cuts it short when there is news
MAX_DELAY_SECONDS = 5.0  # between tries, whatever the store asks for
MAX_ASSIGNMENT_BYTES = 16 * 1024 * 1024  # of a register, as the store takes it


class Inbox:
    """Reads `assignment/<node>` and `tasks/<node>`. Callbacks run on its thread and are expected to post.

    `on_confirmed(asked)`: the register was read, whole, after the `asked`-th `confirm()`, and what it held was told before.
    """

    def __init__(
        self,
        store: Store,
        node: str,
        task_cursor: int,
        *,
        on_message: Callable[[Assignment | Task, int], None],
        on_confirmed: Callable[[int], None],
        on_junk: Callable[[str], None],
    ) -> None:
        self._store = store
        self._register = f"assignment/{node}"
        self._stream = f"tasks/{node}"
        self._cursor = task_cursor
        self._version = 0
        self._on_message = on_message
        self._on_confirmed = on_confirmed
        self._on_junk = on_junk
        self._asked = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="stoker-inbox")

    def start(self) -> None:
        """Begin to read; the first look counts as asked for."""
        self._thread.start()

    def confirm(self) -> int:
        """Ask for the register to be read anew, whatever is known of it; return the number `on_confirmed` will carry."""
        self._asked += 1
        self._store.wake()
        return self._asked

    def close(self) -> None:
        """Stop reading."""
        self._over.set()
        self._store.wake()
        self._thread.join(MAX_DELAY_SECONDS)

    def _run(self) -> None:
        confirmed = -1
        is_failing = False
        while not self._over.is_set():
            asked = self._asked
            is_fresh = asked == confirmed
            try:
                batch = self._store.read(
                    streams={self._stream: self._cursor},
                    registers={self._register: self._version if is_fresh else 0},
                    timeout_seconds=READ_SECONDS if is_fresh else 0.0,
                )
            except Exception as error:  # noqa: BLE001  a bulkhead: an agent that cannot read goes on trying
                if not is_failing:
                    log.warning("cannot read from the store: %s", error)
                is_failing = True
                wanted = error.delay_seconds if isinstance(error, TemporaryError) else 5.0
                self._over.wait(min(wanted, MAX_DELAY_SECONDS))
                continue
            is_failing = False
            self._tell(batch)
            if not is_fresh:
                confirmed = asked
                self._on_confirmed(asked)

    def _tell(self, batch: Batch) -> None:
        register = batch.registers.get(self._register)
        if register is not None:
            self._version = register.version
            self._decode(register.payload, Assignment, register.version)
        for item in batch.items.get(self._stream, ()):
            self._cursor = item.number
            self._decode(item.payload, Task, item.number)

    def _decode(self, payload: bytes, wanted: type[Assignment | Task], number: int) -> None:
        try:
            message = decode(payload, limit_bytes=MAX_ASSIGNMENT_BYTES)
        except StokerError as error:
            self._on_junk(f"{wanted.__name__.lower()} {number}: {error}")
            return
        if isinstance(message, wanted):
            self._on_message(message, number)
        else:
            self._on_junk(f"{type(message).__name__} {number} is no {wanted.__name__.lower()}")
