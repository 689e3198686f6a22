"""Keys of a terminal, one by one, and what interrupts the wait for them: signals, and threads that have something to show.

While it is open, keys are not echoed and need no Return, and Ctrl-Z does not suspend. Closing it puts back every setting.
"""

import os
import select
import signal
import termios
from types import FrameType
from typing import Self

# Those that end the watch. A resize only wakes it.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SEQUENCES = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[H": "home",
    "\x1b[F": "end",
    "\x1b[1~": "home",
    "\x1b[4~": "end",
    "\r": "enter",
    "\n": "enter",
    "\x1b": "escape",
    " ": "page down",
    "\x7f": "escape",
}
_LOCAL_FLAGS = 3
_CONTROL_CHARACTERS = 6


class Keyboard:
    """The keys of the terminal `file`, from entering it to leaving it."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._settings: list[object] = []
        self._handlers: dict[signal.Signals, object] = {}
        self._wakeup_reader, self._wakeup_writer = -1, -1
        self._earlier_wakeup = -1
        # The signal that is to end the watch; the terminal that is gone counts as SIGHUP.
        self.ended_by: signal.Signals | None = None

    def __enter__(self) -> Self:
        """Take over terminal and signals."""
        self._settings = termios.tcgetattr(self._file)
        changed = termios.tcgetattr(self._file)
        changed[_LOCAL_FLAGS] &= ~(termios.ICANON | termios.ECHO)
        controls = list(changed[_CONTROL_CHARACTERS])
        # Suspended, it would leave its screen behind for the shell.
        controls[termios.VSUSP] = b"\x00"
        controls[termios.VMIN], controls[termios.VTIME] = 1, 0
        changed[_CONTROL_CHARACTERS] = controls
        self._wakeup_reader, self._wakeup_writer = os.pipe()
        for end in (self._wakeup_reader, self._wakeup_writer):
            os.set_blocking(end, False)
        self._earlier_wakeup = signal.set_wakeup_fd(self._wakeup_writer, warn_on_full_buffer=False)
        for number in (*ENDING, signal.SIGWINCH):
            self._handlers[number] = signal.signal(number, self._on_signal)
        termios.tcsetattr(self._file, termios.TCSADRAIN, changed)
        return self

    def __exit__(self, *_: object) -> None:
        """Put back everything, also where the terminal is gone."""
        try:
            termios.tcsetattr(self._file, termios.TCSAFLUSH, self._settings)  # type: ignore[arg-type]
        except termios.error:
            pass
        signal.set_wakeup_fd(self._earlier_wakeup)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        os.close(self._wakeup_reader)
        # A thread that wakes the wait later finds -1, not another file of this number.
        writer, self._wakeup_writer = self._wakeup_writer, -1
        os.close(writer)

    def wake(self) -> None:
        """End the present wait, from any thread."""
        try:
            if self._wakeup_writer >= 0:
                os.write(self._wakeup_writer, b"\x00")
        except OSError:
            # Full: it wakes already. Closed: there is no wait any more.
            pass

    def wait(self, seconds: float) -> list[str]:
        """Wait for keys at most so long; return their names ("up", "enter", "escape"), or the characters themselves."""
        try:
            ready, _, _ = select.select([self._file, self._wakeup_reader], [], [], seconds)
        except InterruptedError:
            return []
        if self._wakeup_reader in ready:
            self._drain()
        return self._read_keys() if self._file in ready else []

    def _read_keys(self) -> list[str]:
        try:
            data = os.read(self._file, 1024)
        except OSError:
            data = b""
        if not data:
            self.ended_by = self.ended_by or signal.SIGHUP
        return keys_of(data.decode(errors="replace"))

    def _drain(self) -> None:
        try:
            while os.read(self._wakeup_reader, 1024):
                pass
        except BlockingIOError:
            pass

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number in ENDING:
            self.ended_by = signal.Signals(number)


def keys_of(text: str) -> list[str]:
    """Split what a terminal sent into keys; a sequence that is not known is one key without a meaning, "", not several."""
    keys = []
    while text:
        size = 1
        if text.startswith(("\x1b[", "\x1bO")) and len(text) > 2:
            size = 3
            while size < len(text) and not "\x40" <= text[size - 1] <= "\x7e":
                size += 1
        piece, text = text[:size], text[size:]
        default = piece if len(piece) == 1 and piece.isprintable() else ""
        keys.append(_SEQUENCES.get(piece, default))
    return keys
