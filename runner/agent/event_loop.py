"""The event loop: one thread runs callbacks for descriptors, named timers and posts from other threads."""

import collections
import contextlib
import logging
import os
import select
import selectors
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

log = logging.getLogger("stoker.agent")

# A turn that starts so late means that the process was stopped. Chosen, not measured.
LATE_SECONDS = 1.0

T = TypeVar("T")


def is_ready(
    stream: Any, seconds: float = 0.0, *, events: int = select.POLLIN | select.POLLHUP
) -> bool:
    """Wait so long for events of a stream; return whether one came."""
    poll = select.poll()
    poll.register(stream, events)
    return bool(poll.poll(seconds * 1000))


class EventLoop:
    """Runs callbacks one after the other. Only `post` may be called from other threads or from a signal handler.

    `on_late(seconds)` is called before any other callback when a turn starts late.
    """

    def __init__(self, on_late: Callable[[float], None]) -> None:
        self._on_late = on_late
        self._selector = selectors.DefaultSelector()
        self._posts: collections.deque[Callable[[], None]] = collections.deque()
        self._timers: dict[str, tuple[float, Callable[[], None]]] = {}
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._wakeup, selectors.EVENT_READ, self._run_posts)
        self._is_stopped = False

    def post(self, callback: Callable[[], None]) -> None:
        """Have the owner's thread call this soon."""
        self._posts.append(callback)
        # A closed loop drops what is posted.
        with contextlib.suppress(OSError):
            os.eventfd_write(self._wakeup, 1)

    def in_background(
        self, job: Callable[[], T], then: Callable[[T | None, Exception | None], None]
    ) -> None:
        """Run a blocking job on a thread of its own and post `then(result, error)`."""

        def work() -> None:
            try:
                self.post(partial(then, job(), None))
            except Exception as error:  # noqa: BLE001  a bulkhead: `then` reports it
                self.post(partial(then, None, error))

        threading.Thread(target=work, daemon=True, name="stoker-job").start()

    def watch(self, descriptor: int, callback: Callable[[], None]) -> None:
        """Call back whenever the descriptor can be read."""
        self._selector.register(descriptor, selectors.EVENT_READ, callback)

    def unwatch(self, descriptor: int) -> None:
        """Stop watching a descriptor, if it was watched."""
        with contextlib.suppress(KeyError):
            self._selector.unregister(descriptor)

    def at(self, name: str, when: float, callback: Callable[[], None]) -> None:
        """Set or replace the timer `name`, at a moment of the monotonic clock."""
        self._timers[name] = (when, callback)

    def cancel(self, name: str) -> None:
        """Cancel a timer, if it is set."""
        self._timers.pop(name, None)

    def stop(self) -> None:
        """End `run` after the current turn."""
        self._is_stopped = True

    def run(self) -> None:
        """Serve until stopped; a callback that raises is logged."""
        turned_at = time.monotonic()
        while not self._is_stopped:
            now = time.monotonic()
            due = min((when for when, _ in self._timers.values()), default=None)
            timeout_seconds = None if due is None else max(0.0, due - now)
            ready = self._selector.select(timeout_seconds)
            woke_at = time.monotonic()
            late_seconds = max(now - turned_at, woke_at - (due if due and due > now else woke_at))
            turned_at = woke_at
            if late_seconds > LATE_SECONDS:
                self._safely(partial(self._on_late, late_seconds))
            for key, _ in ready:
                self._safely(key.data)
            for name, (when, callback) in list(self._timers.items()):
                if when <= woke_at and self._timers.get(name) == (when, callback):
                    del self._timers[name]
                    self._safely(callback)

    def close(self) -> None:
        """Close the descriptors."""
        self._selector.close()
        os.close(self._wakeup)

    def _run_posts(self) -> None:
        os.eventfd_read(self._wakeup)
        for _ in range(len(self._posts)):
            self._safely(self._posts.popleft())

    def _safely(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:
            log.exception("a callback of the event loop failed; the agent continues")
