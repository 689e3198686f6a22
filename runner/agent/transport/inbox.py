"""The inbox of one session: the store's messages for a node, read by a client's reader thread and dispatched as they come."""

from collections.abc import Callable
from dataclasses import dataclass

from runner.errors import Forged, StokerError
from runner.facts.messages.assignments import Assignment, Task
from runner.facts.messages.requests import Answer
from runner.facts.store_names import assignment_register, task_stream
from runner.facts.wire import MAX_MESSAGE_BYTES, decode
from runner.signer import Signer
from runner.store.protocol import Batch

# The store's limit for a register.
MAX_ASSIGNMENT_BYTES = 16 * 1024 * 1024

Message = Assignment | Task | Answer


@dataclass(eq=False)
class Inbox:
    """Reads `assignment/<node>`, `tasks/<node>` and `answer`, unless that is "". Callbacks run on the reader's thread and post.

    `on_confirmed(request)`: the whole register was read after `confirm()` returned that number, and
    its message was dispatched before. It is not called while the register holds a refused message,
    because what that one overwrote is unknown.
    """

    node: str
    # The register by which a join is refused.
    answer: str
    signer: Signer
    # Number of the newest task read.
    cursor: int
    on_message: Callable[[Message, int], None]
    on_confirmed: Callable[[int], None]
    on_malformed: Callable[[str], None]
    version: int = 0
    answer_version: int = 0
    # How often `confirm` was called: written by the owner, read by the reader.
    num_requests: int = 0
    _num_confirmed: int = -1
    _is_register_refused: bool = False

    def __post_init__(self) -> None:
        self.register, self.stream = assignment_register(self.node), task_stream(self.node)

    @property
    def is_fresh(self) -> bool:
        """Whether the register was read since the last request; otherwise it must be read whatever its version."""
        return self.num_requests == self._num_confirmed

    @property
    def registers(self) -> dict[str, int]:
        """The registers to read, each with the version read last."""
        versions = {self.register: self.version if self.is_fresh else 0}
        return {**versions, self.answer: self.answer_version} if self.answer else versions

    def reset(self, last_task: int) -> None:
        """Read the register whatever its version, and tasks from the stream's present end if that is before the cursor."""
        self.version, self.answer_version, self._num_confirmed = 0, 0, -1
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
        if (answer := batch.registers.get(self.answer)) is not None:
            self.answer_version = answer.version
            self._dispatch(self.answer, answer.payload, Answer, answer.version)
        for item in batch.items.get(self.stream, ()):
            self.cursor = item.number
            self._dispatch(self.stream, item.payload, Task, item.number)
        is_new = num_requests != self._num_confirmed
        self._num_confirmed = num_requests
        if not self._is_register_refused and (is_new or was_refused):
            self.on_confirmed(num_requests)

    def _dispatch(self, place: str, payload: bytes, expected: type[Message], number: int) -> bool:
        """Verify, decode and dispatch one message; False: it was refused."""
        label = f"{expected.__name__.lower()} {number}"
        limit_bytes = MAX_ASSIGNMENT_BYTES if expected is Assignment else MAX_MESSAGE_BYTES
        try:
            message = decode(self.signer.verify(place, payload), limit_bytes=limit_bytes)
        except StokerError as error:
            prefix = "forged " if isinstance(error, Forged) else ""
            self.on_malformed(f"{prefix}{label}: {error}")
            return False
        if not isinstance(message, expected):
            kind = expected.__name__.lower()
            self.on_malformed(f"{type(message).__name__} {number} is no {kind}")
            return False
        self.on_message(message, number)
        return True
