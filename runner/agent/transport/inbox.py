"""The inbox of one session: what the store holds for a node, read by a courier's reader and told as it comes."""

from __future__ import annotations

from collections.abc import Callable

from runner.errors import Forged, StokerError
from runner.facts.messages.assignments import Assignment, Task
from runner.facts.wire import MAX_MESSAGE_BYTES, decode
from runner.signer import Signer
from runner.store.protocol import Batch

# of a register, as the store takes it
MAX_ASSIGNMENT_BYTES = 16 * 1024 * 1024


class Inbox:
    """Reads `assignment/<node>` and `tasks/<node>`. Callbacks run on the reader's thread and are expected to post.

    `on_confirmed(asked)`: the register was read, whole, after the `asked`-th `confirm()`, and what it held was told before. It is
    not called while the register holds what cannot be believed, since what that has overwritten is not known.
    """

    def __init__(
        self,
        node: str,
        signer: Signer,
        task_cursor: int,
        *,
        on_message: Callable[[Assignment | Task, int], None],
        on_confirmed: Callable[[int], None],
        on_junk: Callable[[str], None],
    ) -> None:
        self.register = f"assignment/{node}"
        self.stream = f"tasks/{node}"
        self.cursor = task_cursor
        self.version = 0
        # written by the owner, read by the reader
        self.asked = 0
        self._confirmed = -1
        # the register holds what cannot be believed
        self._is_blind = False
        self._signer = signer
        self._on_message = on_message
        self._on_confirmed = on_confirmed
        self._on_junk = on_junk

    @property
    def is_fresh(self) -> bool:
        """Whether the register was read since that was last asked for: else it is to be read whatever its version."""
        return self.asked == self._confirmed

    def begin_anew(self, last_task: int) -> None:
        """Read the register whatever its version, and tasks from where the stream ends now, if that is before our cursor."""
        self.version, self._confirmed = 0, -1
        self.cursor = min(self.cursor, last_task)

    def take(self, batch: Batch, asked: int) -> None:
        """Tell what a read has found that began when `asked` confirmations were asked for."""
        was_blind = self._is_blind
        register = batch.registers.get(self.register)
        if register is not None:
            self.version = register.version
            self._is_blind = not self._decode(
                self.register, register.payload, Assignment, register.version
            )
        for item in batch.items.get(self.stream, ()):
            self.cursor = item.number
            self._decode(self.stream, item.payload, Task, item.number)
        is_new = asked != self._confirmed
        self._confirmed = asked
        if not self._is_blind and (is_new or was_blind):
            self._on_confirmed(asked)

    def _decode(
        self, place: str, payload: bytes, wanted: type[Assignment | Task], number: int
    ) -> bool:
        what = f"{wanted.__name__.lower()} {number}"
        limit_bytes = MAX_ASSIGNMENT_BYTES if wanted is Assignment else MAX_MESSAGE_BYTES
        try:
            message = decode(self._signer.verify(place, payload), limit_bytes=limit_bytes)
        except Forged as error:
            self._on_junk(f"forged {what}: {error}")
            return False
        except StokerError as error:
            self._on_junk(f"{what}: {error}")
            return False
        if not isinstance(message, wanted):
            self._on_junk(f"{type(message).__name__} {number} is no {wanted.__name__.lower()}")
            return False
        self._on_message(message, number)
        return True
