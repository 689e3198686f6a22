"""The courier: carries what sessions say to the store, and to them what the store holds for their nodes.

Two threads and one handle on the store, however many sessions there are: an agent has one session, a benchmark hundreds. Each
session writes its own messages in its own calls, as it would with a courier to itself; reads are shared, one for all.
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

# one blocking read; the store cuts it short when there is news
READ_SECONDS = 60.0


class StoreClient:
    """A reader that blocks in the store, and a writer. Boxes may be added before and after `start`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changed = threading.Condition()
        self._ready: collections.OrderedDict[Outbox, None] = collections.OrderedDict()
        # when to look again (monotonic seconds)
        self._later: dict[Outbox, float] = {}
        self._inboxes: tuple[Inbox, ...] = ()
        self._over = threading.Event()
        self._writer = threading.Thread(target=self._write, daemon=True, name="stoker-outbox")
        self._reader = threading.Thread(target=self._read, daemon=True, name="stoker-inbox")

    def start(self) -> None:
        """Begin to write and to read."""
        self._writer.start()
        self._reader.start()

    def ring(self, outbox: Outbox) -> None:
        """Have an outbox written soon."""
        with self._changed:
            self._ready[outbox] = None
            self._changed.notify()

    def add(self, inbox: Inbox) -> None:
        """Read for this one too; the first read counts as asked for."""
        with self._changed:
            self._inboxes = (*self._inboxes, inbox)
        self._wake()

    def remove(self, inbox: Inbox) -> None:
        """Read for this one no more; what was read already may still be told."""
        with self._changed:
            self._inboxes = tuple(each for each in self._inboxes if each is not inbox)
        self._wake()

    def confirm(self, inbox: Inbox) -> int:
        """Have the register read anew, whatever is known of it; return the number `on_confirmed` will carry."""
        inbox.asked += 1
        self._wake()
        return inbox.asked

    def close(self) -> None:
        """Stop both threads; a call of the store that hangs is left behind."""
        self._over.set()
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
            again_at = outbox.write(self._store)
            with self._changed:
                if again_at is None:
                    self._later.pop(outbox, None)
                else:
                    self._later[outbox] = again_at

    def _next(self) -> Outbox | None:
        """Wait for the next outbox with something to write; None when it is over."""
        with self._changed:
            while not self._over.is_set():
                now = time.monotonic()
                for outbox in [each for each, when in self._later.items() if when <= now]:
                    del self._later[outbox]
                    self._ready[outbox] = None
                if self._ready:
                    return self._ready.popitem(last=False)[0]
                due = min(self._later.values(), default=None)
                self._changed.wait(None if due is None else max(0.0, due - now))
            return None

    # -- reading

    def _read(self) -> None:
        is_failing = False
        while not self._over.is_set():
            asked = {inbox: inbox.asked for inbox in self._inboxes}
            try:
                batch = self._look(list(asked))
            except StoreRolledBack as error:
                self._begin_anew(error, list(asked))
                continue
            except Exception as error:  # noqa: BLE001  a bulkhead: an agent that cannot read goes on trying
                if not is_failing:
                    log.warning("cannot read from the store: %s", error)
                is_failing = True
                wanted = error.delay_seconds if isinstance(error, TemporaryError) else 5.0
                self._over.wait(min(wanted, MAX_DELAY_SECONDS))
                continue
            is_failing = False
            for inbox, number in asked.items():
                inbox.take(batch, number)

    def _begin_anew(self, error: StoreRolledBack, inboxes: list[Inbox]) -> None:
        """Go on with a store that forgot: what is old tells an agent by its epoch, and only the living can say what was lost."""
        log.warning("%s; going on with the store as it is", error)
        self._store.forget()
        try:
            for inbox in inboxes:
                inbox.begin_anew(self._store.last(inbox.stream))
        except StokerError as failure:
            log.warning("cannot read from the store: %s", failure)
        self._over.wait(MAX_DELAY_SECONDS / 5)

    def _look(self, inboxes: list[Inbox]) -> Batch:
        is_fresh = all(inbox.is_fresh for inbox in inboxes)
        return self._store.read(
            streams={inbox.stream: inbox.cursor for inbox in inboxes},
            registers={inbox.register: inbox.version if inbox.is_fresh else 0 for inbox in inboxes},
            timeout_seconds=READ_SECONDS if is_fresh else 0.0,
        )
