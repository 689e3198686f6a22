"""A process of its own that serves something beside a supervisor: it costs the supervisor's turns nothing, and ends with it."""

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence

END_SECONDS = 5.0
# Before it is started again: the first wait, and the longest, each twice the one before; the first again after a life that was
# longer than the longest. Chosen, not measured.
FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 1.0, 300.0

_LOG = logging.getLogger("stoker")


class ServingChild:
    """Runs a command while the block runs, again when it ended. The command must end once its standard input does.

    `what`: its name in log lines. `passed`: file descriptors that it inherits, under the same numbers.
    """

    def __init__(
        self,
        what: str,
        command: Sequence[str],
        *,
        passed: Sequence[int] = (),
        first_wait_seconds: float = FIRST_WAIT_SECONDS,
        longest_wait_seconds: float = LONGEST_WAIT_SECONDS,
    ) -> None:
        self._what, self._command, self._passed = what, command, passed
        self._first_wait_seconds = first_wait_seconds
        self._longest_wait_seconds = longest_wait_seconds
        self._is_over = threading.Event()
        self._changing = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._watch, name=f"{what} child", daemon=True)

    def __enter__(self) -> None:
        self._start()
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        with self._changing:
            self._is_over.set()
            child = self._child
        if child is not None:
            _end(child)
        self._thread.join(END_SECONDS)

    def _start(self) -> None:
        """Start it, unless this is over."""
        with self._changing:
            if self._is_over.is_set():
                return
            self._child = None
            try:
                self._child = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
                    pass_fds=self._passed,
                    start_new_session=True,
                )
            except OSError as error:
                _LOG.warning("%s: cannot start its process: %s", self._what, error)

    def _watch(self) -> None:
        wait_seconds = self._first_wait_seconds
        while True:
            child, began = self._child, time.monotonic()
            code = None if child is None else child.wait()
            if time.monotonic() - began > self._longest_wait_seconds:
                wait_seconds = self._first_wait_seconds
            if child is not None and child.stdin is not None:
                child.stdin.close()
            if self._is_over.is_set():
                return
            reason = "did not start" if code is None else f"ended with code {code}"
            _LOG.warning(
                "%s: its process %s; starting it again in %g s", self._what, reason, wait_seconds
            )
            if self._is_over.wait(wait_seconds):
                return
            wait_seconds = min(2 * wait_seconds, self._longest_wait_seconds)
            self._start()


def _end(child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None
    child.stdin.close()
    try:
        child.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def on_end_of_parent(call: Callable[[], None]) -> None:
    """In such a child: have a thread call this once the parent is gone, however it ended."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 1):
            pass
        call()

    threading.Thread(target=wait, daemon=True).start()
