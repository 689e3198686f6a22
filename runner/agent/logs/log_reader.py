"""The reader: a child of low priority that reads logs (`python -m runner.collect`), spoken to over a pipe, line by line.

Nothing here waits for it: it may hang over a disk, and die of what it reads. It is started with the first order; one that died, or
took no order, is replaced by the next order that comes after it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from runner.agent.event_loop import EventLoop
from runner.errors import WireError
from runner.facts import wire

log = logging.getLogger("stoker.agent")

# for one search, for taking an order, and between two words; far above what they take; chosen
LIMIT_SECONDS = 30.0
# between two tries to hand over an order; chosen
PUSH_SECONDS = 0.05
AGAIN_SECONDS = (
    1.0,
    5.0,
    60.0,
    # until one that died is replaced, the more often the later; chosen
)
# others train, or restart ranks, meanwhile
NICE = 10
ERRORS_NAME = "reader.err"
# an answer names every log of a node
MOST_ANSWER_BYTES = 16 * 1024 * 1024
_READ_BYTES = 1 << 20


class Reader:
    """Owned by the agent's loop. `on_word` takes its messages; `on_death(seconds)` asks to come back after so long."""

    def __init__(
        self,
        loop: EventLoop,
        folder: Path,
        *,
        on_word: Callable[[object], None],
        on_death: Callable[[float], None],
    ) -> None:
        """`folder`: where its errors go."""
        self._loop, self._folder = loop, folder
        self._on_word, self._on_death = on_word, on_death
        self._child: subprocess.Popen[bytes] | None = None
        # Killed. One that waits for a disk does not die of it, and nobody waits for it.
        self._old: list[subprocess.Popen[bytes]] = []
        # not a whole line yet
        self._said = b""
        # that its pipe has not taken yet
        self._orders = b""
        self._num_deaths = 0
        self._is_over = False

    @property
    def is_there(self) -> bool:
        """Whether there is one that orders go to."""
        return self._child is not None

    def order(self, order: object) -> None:
        """Hand over an order; whoever is to obey is started if need be."""
        if self._is_over:
            return
        self._orders += wire.encode(order) + b"\n"
        self._push(time.monotonic() + LIMIT_SECONDS)

    def forgive(self) -> None:
        """Begin to count its deaths anew."""
        self._num_deaths = 0

    def died(self, why: str) -> None:
        """Give it up, for a reason that is logged."""
        self._drop()
        if self._is_over:
            return
        again_seconds = AGAIN_SECONDS[min(self._num_deaths, len(AGAIN_SECONDS) - 1)]
        self._num_deaths += 1
        log.warning("whoever reads logs %s; again in %g s", why, again_seconds)
        self._on_death(again_seconds)

    def close(self) -> None:
        """End it: nobody will hear of it."""
        self._is_over = True
        self._loop.cancel("order")
        self._drop()

    def _push(self, until: float) -> None:
        """Write what the pipe takes; it is read between two looks. Nothing is left to write after a death."""
        if not self._orders:
            return
        try:
            child = self._child or self._started()
            assert child.stdin is not None
            self._orders = self._orders[os.write(child.stdin.fileno(), self._orders) :]
        except BlockingIOError:
            pass
        except OSError as error:
            self.died(f"takes no order: {error}")
            return
        if not self._orders:
            return
        if time.monotonic() > until:
            self.died(f"took no order for {LIMIT_SECONDS:g} s")
        else:
            self._loop.at("order", time.monotonic() + PUSH_SECONDS, partial(self._push, until))

    def _started(self) -> subprocess.Popen[bytes]:
        self._old = [child for child in self._old if child.poll() is None]
        if self._old:
            raise OSError(f"the one before it, pid {self._old[0].pid}, cannot be killed yet")
        # -P: whatever lies in the folder that we were started in is no module of ours.
        command = ["nice", "-n", str(NICE), sys.executable, "-P", "-m", "runner.collect"]
        with (self._folder / ERRORS_NAME).open("wb") as errors:
            child = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, bufsize=0
            )
        assert child.stdout is not None
        assert child.stdin is not None
        os.set_blocking(child.stdin.fileno(), False)
        os.set_blocking(child.stdout.fileno(), False)
        self._child, self._said = child, b""
        self._loop.watch(child.stdout.fileno(), self._hear)
        return child

    def _hear(self) -> None:
        child = self._child
        if child is None or child.stdout is None:
            return
        try:
            data = os.read(child.stdout.fileno(), _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self.died("ended")
            return
        *lines, self._said = (self._said + data).split(b"\n")
        if len(self._said) > MOST_ANSWER_BYTES:
            self.died("says more than it may")
            return
        for line in lines:
            try:
                said = wire.decode(line, limit_bytes=MOST_ANSWER_BYTES)
            except WireError as error:
                self.died(f"says what is no message: {error}")
                return
            self._on_word(said)

    def _drop(self) -> None:
        child, self._child = self._child, None
        self._orders = b""
        if child is None:
            return
        assert child.stdout is not None
        assert child.stdin is not None
        self._loop.unwatch(child.stdout.fileno())
        child.kill()
        self._old.append(child)
        child.stdout.close()
        with contextlib.suppress(OSError):
            child.stdin.close()
