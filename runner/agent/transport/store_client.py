"""The store client: two threads and one store handle that serve any number of sessions, which share one read."""

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
        # When to write an outbox (monotonic seconds).
        self._due: dict[Outbox, float] = {}
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
            self._due[outbox] = 0.0
            self._changed.notify()

    def add(self, inbox: Inbox) -> None:
        """Read for this inbox too; its first read is confirmed."""
        with self._changed:
            self._inboxes = (*self._inboxes, inbox)
        self.wake()

    def remove(self, inbox: Inbox) -> None:
        """Stop reading for this inbox; messages already read may still be dispatched."""
        with self._changed:
            self._inboxes = tuple(each for each in self._inboxes if each is not inbox)
        self.wake()

    def close(self) -> None:
        """Stop both threads; a store call that hangs is abandoned."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()
        self.wake()
        timeouts = {self._reader: MAX_DELAY_SECONDS, self._writer: HANGING_SECONDS}
        for thread, timeout_seconds in timeouts.items():
            if thread.is_alive():
                thread.join(timeout_seconds)

    def wake(self) -> None:
        """Have the reader begin another read."""
        if self._reader.is_alive():
            self._store.wake()

    def _write(self) -> None:
        while (outbox := self._next()) is not None:
            retry_at = outbox.write(self._store)
            if retry_at is not None:
                with self._changed:
                    self._due.setdefault(outbox, retry_at)

    def _next(self) -> Outbox | None:
        """Wait for the next outbox with something to write; None after `close`."""
        with self._changed:
            while not self._closed.is_set():
                now = time.monotonic()
                for outbox, at in self._due.items():
                    if at <= now:
                        del self._due[outbox]
                        return outbox
                self._changed.wait(min(self._due.values()) - now if self._due else None)
            return None

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
            registers={name: at for inbox in inboxes for name, at in inbox.registers.items()},
            timeout_seconds=READ_SECONDS if is_fresh else 0.0,
        )
