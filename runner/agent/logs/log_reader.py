"""The log reader: a child of low priority that reads logs (`python -m runner.collect`), connected by pipes, one message a line.

The agent never waits for it: it may hang on a disk, or die of the text it reads. The first request
starts it; one that died, or does not accept a request, is replaced at the next request.
"""

import contextlib
import logging
import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from runner.agent.event_loop import EventLoop
from runner.agent.logs.processor_share import ProcessorShare
from runner.errors import WireError
from runner.facts import wire
from runner.facts.specs.programs import module_command

log = logging.getLogger("stoker.agent")

# Chosen, not measured. For one search, for accepting a request, and between two messages.
LIMIT_SECONDS = 30.0
RETRY_WRITE_SECONDS = 0.05
# After the first, second and later deaths.
RESTART_BACKOFF_SECONDS = (1.0, 5.0, 60.0)
# Training and restarts come first, once it has imported what it needs: on a busy machine that alone would take it minutes.
NICE = 10
ERRORS_NAME = "reader.err"
# A result names every log of a node.
MAX_RESULT_BYTES = 16 * 1024 * 1024
_READ_BYTES = 1 << 20


@dataclass(slots=True)
class Reader:
    """Owned by the agent's loop. `on_message` handles its messages; `on_death(seconds)` is to send the requests again later."""

    loop: EventLoop
    # Of its log file.
    folder: Path
    on_message: Callable[[object], None]
    on_death: Callable[[float], None]
    _child: "subprocess.Popen[bytes] | None" = None
    # A killed child that waits for a disk lingers on.
    _killed: "list[subprocess.Popen[bytes]]" = field(default_factory=list)
    _unfinished_line: bytes = b""
    _unsent: bytes = b""
    _num_deaths: int = 0
    _is_closed: bool = False
    # Of the child there is.
    _has_answered: bool = False
    _share: ProcessorShare | None = None
    _nice: int = NICE

    @property
    def is_running(self) -> bool:
        """Whether there is a child."""
        return self._child is not None

    def send(self, request: object) -> None:
        """Send a request; starts the child if there is none."""
        if self._is_closed:
            return
        self._unsent += wire.encode(request) + b"\n"
        self._push(time.monotonic() + LIMIT_SECONDS)
        if self._share is not None:
            self._share.mark()

    def is_starved(self) -> bool:
        """Whether the child would work, but got hardly any of a processor since its last request, message or such a question."""
        return self._share is not None and self._share.is_starved()

    def is_preparing(self) -> bool:
        """Whether there is a child that has yet to send its first message: on a machine's first run it compiles its patterns."""
        return self._child is not None and not self._has_answered

    def hasten(self) -> None:
        """Let it, and those to come, no longer come after all others: no rank here is to come first."""
        self._nice = 0
        if self._child is not None:
            # Raising the priority of what runs takes a privilege.
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, self._child.pid, 0)

    def reset_backoff(self) -> None:
        """Count its deaths from 0."""
        self._num_deaths = 0

    def fail(self, reason: str) -> None:
        """Kill the child, log the reason, and have it replaced later."""
        self._drop()
        if self._is_closed:
            return
        delays = RESTART_BACKOFF_SECONDS
        delay_seconds = delays[min(self._num_deaths, len(delays) - 1)]
        self._num_deaths += 1
        log.warning("log reader %s; restarting in %g s", reason, delay_seconds)
        self.on_death(delay_seconds)

    def close(self) -> None:
        """Kill the child for good."""
        self._is_closed = True
        self.loop.cancel("reader request")
        self._drop()

    def _push(self, until: float) -> None:
        """Write what the pipe accepts, and the rest later; the child reads between two polls."""
        if not self._unsent:
            return
        try:
            child = self._child or self._start()
            assert child.stdin is not None
            self._unsent = self._unsent[os.write(child.stdin.fileno(), self._unsent) :]
        except BlockingIOError:
            pass
        except OSError as error:
            self.fail(f"accepts no request: {error}")
            return
        if not self._unsent:
            return
        if time.monotonic() > until:
            self.fail(f"accepted no request for {LIMIT_SECONDS:g} s")
        else:
            at = time.monotonic() + RETRY_WRITE_SECONDS
            self.loop.at("reader request", at, partial(self._push, until))

    def _start(self) -> subprocess.Popen[bytes]:
        self._killed = [child for child in self._killed if child.poll() is None]
        if self._killed:
            raise OSError(
                f"the reader before it, pid {self._killed[0].pid}, is killed and has not ended"
            )
        command = [*module_command("runner.collect"), f"--nice={self._nice}"]
        with (self.folder / ERRORS_NAME).open("wb") as errors:
            child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, bufsize=0
            )
        assert child.stdout is not None
        assert child.stdin is not None
        os.set_blocking(child.stdin.fileno(), False)
        os.set_blocking(child.stdout.fileno(), False)
        self._child, self._unfinished_line, self._has_answered = child, b"", False
        self._share = ProcessorShare(child.pid)
        self.loop.watch(child.stdout.fileno(), self._on_readable)
        return child

    def _on_readable(self) -> None:
        child = self._child
        if child is None or child.stdout is None:
            return
        try:
            data = os.read(child.stdout.fileno(), _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self.fail("ended")
            return
        *lines, self._unfinished_line = (self._unfinished_line + data).split(b"\n")
        if len(self._unfinished_line) > MAX_RESULT_BYTES:
            self.fail(f"sent a line of more than {MAX_RESULT_BYTES} bytes")
            return
        if lines and self._share is not None:
            self._has_answered = True
            self._share.mark()
        for line in lines:
            try:
                message = wire.decode(line, limit_bytes=MAX_RESULT_BYTES)
            except WireError as error:
                self.fail(f"sent a line that is no message: {error}")
                return
            self.on_message(message)

    def _drop(self) -> None:
        child, self._child, self._share = self._child, None, None
        self._unsent = b""
        if child is None:
            return
        assert child.stdout is not None
        assert child.stdin is not None
        self.loop.unwatch(child.stdout.fileno())
        child.kill()
        self._killed.append(child)
        child.stdout.close()
        with contextlib.suppress(OSError):
            child.stdin.close()
