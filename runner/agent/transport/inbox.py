"""The inbox of one session: the store's messages for a node, read by a client's reader thread and dispatched as they come."""

from __future__ import annotations

from collections.abc import Callable

from runner.errors import Forged, StokerError
from runner.facts.messages.assignments import Assignment, Task
from runner.facts.store_names import assignment_register, task_stream
from runner.facts.wire import MAX_MESSAGE_BYTES, decode
from runner.signer import Signer
from runner.store.protocol import Batch

# The store's limit for a register.
MAX_ASSIGNMENT_BYTES = 16 * 1024 * 1024


class Inbox:
    """Reads `assignment/<node>` and `tasks/<node>`. Callbacks run on the reader's thread and are expected to post.

    `on_confirmed(request)`: the whole register was read after `confirm()` returned that number, and
    its message was dispatched before. It is not called while the register holds a refused message,
    because what that one overwrote is unknown.
    """

    def __init__(
        self,
        node: str,
        signer: Signer,
        task_cursor: int,
        *,
        on_message: Callable[[Assignment | Task, int], None],
        on_confirmed: Callable[[int], None],
        on_malformed: Callable[[str], None],
    ) -> None:
        self.register = assignment_register(node)
        self.stream = task_stream(node)
        self.cursor = task_cursor
        self.version = 0
        # How often `confirm` was called: written by the owner, read by the reader.
        self.num_requests = 0
        self._num_confirmed = -1
        self._is_register_refused = False
        self._signer = signer
        self._on_message = on_message
        self._on_confirmed = on_confirmed
        self._on_malformed = on_malformed

    @property
    def is_fresh(self) -> bool:
        """Whether the register was read since the last request; otherwise it must be read whatever its version."""
        return self.num_requests == self._num_confirmed

    def reset(self, last_task: int) -> None:
        """Read the register whatever its version, and tasks from the stream's present end if that is before the cursor."""
        self.version, self._num_confirmed = 0, -1
        self.cursor = min(self.cursor, last_task)

    def handle(self, batch: Batch, num_requests: int) -> None:
        """Dispatch the messages of a read that began after `num_requests` requests."""
        was_refused = self._is_register_refused
        register = batch.registers.get(self.register)
        if register is not None:
            self.version = register.version
            self._is_register_refused = not self._dispatch(
                self.register, register.payload, Assignment, register.version
            )
        for item in batch.items.get(self.stream, ()):
            self.cursor = item.number
            self._dispatch(self.stream, item.payload, Task, item.number)
        is_new = num_requests != self._num_confirmed
        self._num_confirmed = num_requests
        if not self._is_register_refused and (is_new or was_refused):
            self._on_confirmed(num_requests)

    def _dispatch(
        self, place: str, payload: bytes, expected: type[Assignment | Task], number: int
    ) -> bool:
        """Verify, decode and dispatch one message; False: it was refused."""
        label = f"{expected.__name__.lower()} {number}"
        limit_bytes = MAX_ASSIGNMENT_BYTES if expected is Assignment else MAX_MESSAGE_BYTES
        try:
            message = decode(self._signer.verify(place, payload), limit_bytes=limit_bytes)
        except StokerError as error:
            prefix = "forged " if isinstance(error, Forged) else ""
            self._on_malformed(f"{prefix}{label}: {error}")
            return False
        if not isinstance(message, expected):
            self._on_malformed(
                f"{type(message).__name__} {number} is no {expected.__name__.lower()}"
            )
            return False
        self._on_message(message, number)
        return True
