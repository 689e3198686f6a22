"""The store client: two threads and one store handle that serve any number of sessions.

An agent has one session, a benchmark hundreds. Each session's messages are written in calls of
their own; all sessions share one read.
"""

from __future__ import annotations

import collections
import logging
import threading
import time

from runner.agent.transport.inbox import Inbox
from runner.agent.transport.outbox import HANGING_SECONDS, MAX_DELAY_SECONDS, Outbox
from runner.errors import StokerError, StoreRolledBack, TemporaryError
from runner.store.protocol import Batch, Store

log = logging.getLogger("stoker.agent")

# One blocking read; the store returns early when something is written.
READ_SECONDS = 60.0


class StoreClient:
    """A reader that blocks in the store, and a writer. Inboxes and outboxes may be added before and after `start`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changed = threading.Condition()
        self._ready: collections.OrderedDict[Outbox, None] = collections.OrderedDict()
        # Outbox -> when to write again (monotonic seconds).
        self._retries: dict[Outbox, float] = {}
        self._inboxes: tuple[Inbox, ...] = ()
        self._closed = threading.Event()
        self._writer = threading.Thread(target=self._write, daemon=True, name="stoker-outbox")
        self._reader = threading.Thread(target=self._read, daemon=True, name="stoker-inbox")

    def start(self) -> None:
        """Start both threads."""
        self._writer.start()
        self._reader.start()

    def notify(self, outbox: Outbox) -> None:
        """Have the writer write an outbox soon."""
        with self._changed:
            self._ready[outbox] = None
            self._changed.notify()

    def add(self, inbox: Inbox) -> None:
        """Read for this inbox too; its first read is confirmed."""
        with self._changed:
            self._inboxes = (*self._inboxes, inbox)
        self._wake()

    def remove(self, inbox: Inbox) -> None:
        """Stop reading for this inbox; messages already read may still be dispatched."""
        with self._changed:
            self._inboxes = tuple(each for each in self._inboxes if each is not inbox)
        self._wake()

    def confirm(self, inbox: Inbox) -> int:
        """Have the register read again whatever its version; return the number that `on_confirmed` will carry."""
        inbox.num_requests += 1
        self._wake()
        return inbox.num_requests

    def close(self) -> None:
        """Stop both threads; a store call that hangs is abandoned."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()
        self._wake()
        for thread, wait_seconds in (
            (self._reader, MAX_DELAY_SECONDS),
            (self._writer, HANGING_SECONDS),
        ):
            if thread.is_alive():
                thread.join(wait_seconds)

    def _wake(self) -> None:
        if self._reader.is_alive():
            self._store.wake()

    # -- writing

    def _write(self) -> None:
        while True:
            outbox = self._next()
            if outbox is None:
                return
            retry_at = outbox.write(self._store)
            with self._changed:
                if retry_at is None:
                    self._retries.pop(outbox, None)
                else:
                    self._retries[outbox] = retry_at

    def _next(self) -> Outbox | None:
        """Wait for the next outbox with something to write; None after `close`."""
        with self._changed:
            while not self._closed.is_set():
                now = time.monotonic()
                for outbox in [each for each, when in self._retries.items() if when <= now]:
                    del self._retries[outbox]
                    self._ready[outbox] = None
                if self._ready:
                    return self._ready.popitem(last=False)[0]
                due = min(self._retries.values(), default=None)
                self._changed.wait(None if due is None else max(0.0, due - now))
            return None

    # -- reading

    def _read(self) -> None:
        is_failing = False
        while not self._closed.is_set():
            num_requests = {inbox: inbox.num_requests for inbox in self._inboxes}
            try:
                batch = self._poll(list(num_requests))
            except StoreRolledBack as error:
                self._on_rollback(error, list(num_requests))
                continue
            except Exception as error:  # noqa: BLE001  a bulkhead: an agent that cannot read keeps trying
                if not is_failing:
                    log.warning("cannot read from the store: %s", error)
                is_failing = True
                delay = error.delay_seconds if isinstance(error, TemporaryError) else 5.0
                self._closed.wait(min(delay, MAX_DELAY_SECONDS))
                continue
            is_failing = False
            for inbox, number in num_requests.items():
                inbox.handle(batch, number)

    def _on_rollback(self, error: StoreRolledBack, inboxes: list[Inbox]) -> None:
        """Continue on a rolled-back store: stale assignments are rejected by generation, agents re-report their state."""
        log.warning("%s; continuing on the store as it is", error)
        self._store.accept_rollback()
        try:
            for inbox in inboxes:
                inbox.reset(self._store.last(inbox.stream))
        except StokerError as failure:
            log.warning("cannot read from the store: %s", failure)
        self._closed.wait(MAX_DELAY_SECONDS / 5)

    def _poll(self, inboxes: list[Inbox]) -> Batch:
        is_fresh = all(inbox.is_fresh for inbox in inboxes)
        return self._store.read(
            streams={inbox.stream: inbox.cursor for inbox in inboxes},
            registers={inbox.register: inbox.version if inbox.is_fresh else 0 for inbox in inboxes},
            timeout_seconds=READ_SECONDS if is_fresh else 0.0,
        )
