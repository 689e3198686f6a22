"""The command that a person has watch-only start: its output is passed through, signals are passed on, its exit code is kept."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence

from runner.collect.tails.piped_logs import PipeTail
from runner.errors import UserError

# At a time; a pipe holds as much.
_READ_BYTES = 64 * 1024
# What a terminal does not send to the whole process group by itself.
FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class Child:
    """A command and the pipes of its output. `streams`: descriptor to read -> what is read, and where it goes."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start it, in this process group, with this standard input. Raises UserError where that is impossible."""
        # Lines in the buffers of a dying process would be lost; a terminal has none of these buffers either.
        environment = {"PYTHONUNBUFFERED": "1", **os.environ}
        try:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, bufsize=0
            )
        except OSError as error:
            raise UserError(f"{command[0]!r} cannot be started: {error.strerror}") from error
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self.tails = (PipeTail("stdout"), PipeTail("stderr"))
        out, err = self._process.stdout.fileno(), self._process.stderr.fileno()
        self.streams = {out: (self.tails[0], 1), err: (self.tails[1], 2)}
        self.pipes = {os.fstat(descriptor).st_ino for descriptor in self.streams}
        for descriptor in self.streams:
            os.set_blocking(descriptor, False)

    @property
    def pid(self) -> int:
        """Its process."""
        return self._process.pid

    @property
    def is_open(self) -> bool:
        """Whether a process may still write to its pipes."""
        return bool(self.streams)

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def pass_on(self) -> bool:
        """Pass on what it has written; return whether there was anything."""
        has_read = False
        for descriptor in list(self.streams):
            tail, to = self.streams[descriptor]
            try:
                data = os.read(descriptor, _READ_BYTES)
            except BlockingIOError:
                continue
            has_read = has_read or bool(data)
            if data:
                tail.feed(data)
            if not data or not _write(to, data):
                # The end; or its reader has gone: the next write ends the command, as without watch-only.
                os.close(descriptor)
                del self.streams[descriptor]
        return has_read

    def close(self) -> None:
        """Close the pipes that are left."""
        for descriptor in self.streams:
            os.close(descriptor)
        self.streams.clear()
        # Their files must not close the same numbers again.
        for stream in (self._process.stdout, self._process.stderr):
            with contextlib.suppress(OSError, AttributeError):
                stream.close()  # type: ignore[union-attr]

    def forward(self, number: int) -> None:
        """Pass a signal on, unless the terminal has sent it to the command too."""
        if number == signal.SIGINT and _is_in_foreground():
            return
        if self._process.poll() is None:
            self._process.send_signal(number)


def _write(descriptor: int, data: bytes) -> bool:
    """Write all of it; return whether that is possible."""
    left = memoryview(data)
    try:
        while left:
            left = left[os.write(descriptor, left) :]
    except OSError:
        return False
    return True


def _is_in_foreground() -> bool:
    """Whether a terminal sends Ctrl-C to this process group."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
