"""What readers of the page are sent: the whole state once, then what changed, encoded once and shared by all of them.

One thread follows the status in the store while there are readers. A reader that does not keep up gets the whole state again
instead of what it missed, so that none holds memory for long.
"""

import asyncio
import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator
from typing import Self

import msgspec

from runner.errors import StokerError
from runner.facts.messages.cluster_status import ClusterStatus
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.store_names import STATUS
from runner.facts.wording import printable
from runner.serve.leaders import leader_of
from runner.serve.status_reader import decode_status
from runner.serve.web.changes import PageContent
from runner.signer import signer_of
from runner.store.protocol import Store

# Updates are this far apart at least; and without any news, a reader learns that often how old the status is. Chosen.
SHORTEST_SECONDS = 0.2
TICK_SECONDS = 2.0
# Updates that wait for one reader; with more to catch up with, it gets the whole state. Chosen.
MAX_PENDING = 16

_LOG = logging.getLogger("stoker.web")


class PageReader:
    """One open connection: what it is still to be sent. Belongs to the event loop."""

    def __init__(self) -> None:
        self.pending: deque[bytes] = deque()
        self.needs_all = True
        self.wakeup = asyncio.Event()

    def add(self, event: bytes) -> None:
        """Send this next; all of the state instead, when too much waits."""
        if len(self.pending) >= MAX_PENDING:
            self.pending.clear()
            self.needs_all = True
        if not self.needs_all:
            self.pending.append(event)
        self.wakeup.set()


class Feed:
    """Follows the status of one cluster for any number of readers, from a thread of its own."""

    def __init__(self, store: Store, cluster: ClusterSpec) -> None:
        self._store, self._signer = store, signer_of(cluster)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._readers: set[PageReader] = set()
        self._has_readers, self._is_over = threading.Event(), threading.Event()
        # Of what follows, the thread is the writer.
        self._content, self._version = PageContent(), 0
        self._status: ClusterStatus | None = None
        # What is wrong with the store, and with the newest status in it; "" for nothing.
        self._store_problem = self._status_problem = ""
        # While the content changes, or is read by another thread.
        self._changing = threading.Lock()
        self._sent_at = -math.inf
        self._thread = threading.Thread(target=self._run, name="web-feed", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop following, and end every reader's connection."""
        self._is_over.set()
        self._has_readers.set()
        self._store.wake()
        self._call(self._wake_all)
        self._thread.join(timeout=TICK_SECONDS + SHORTEST_SECONDS)

    # -- on the event loop

    async def events(self) -> AsyncGenerator[bytes]:
        """Yield server-sent events until the feed is closed: the state, then what changes in it."""
        self._loop = asyncio.get_running_loop()
        reader = PageReader()
        self._readers.add(reader)
        self._has_readers.set()
        if self._is_current():
            reader.wakeup.set()
        try:
            while not self._is_over.is_set():
                await reader.wakeup.wait()
                reader.wakeup.clear()
                if reader.needs_all:
                    reader.needs_all = False
                    yield self._whole()
                while reader.pending:
                    yield reader.pending.popleft()
        finally:
            self._readers.discard(reader)
            if not self._readers and not self._is_over.is_set():
                self._has_readers.clear()

    def _whole(self) -> bytes:
        with self._changing:
            content = self._content.whole()
        return b'data: {"whole":true,' + self._about() + b"," + content + b"}\n\n"

    def _publish(self, event: bytes) -> None:
        for reader in self._readers:
            reader.add(event)

    def _wake_all(self) -> None:
        for reader in self._readers:
            reader.wakeup.set()

    # -- on the feed's thread

    def _run(self) -> None:
        while not self._is_over.is_set():
            self._has_readers.wait()
            begun, changes = time.monotonic(), b""
            try:
                changes = self._follow()
            except Exception:  # noqa: BLE001 - a bulkhead: readers keep what they have, and learn that it is old
                _LOG.exception("the status cannot be shown")
                self._status_problem = "the page failed; the log of its process has the reason"
            parts = [part for part in (self._about(), changes) if part]
            self._sent_at = time.monotonic()
            self._call(self._publish, b"data: {" + b",".join(parts) + b"}\n\n")
            least = TICK_SECONDS if self._store_problem else SHORTEST_SECONDS
            self._is_over.wait(max(0.0, begun + least - time.monotonic()))

    def _follow(self) -> bytes:
        """Wait for the next status, for a while if readers have the last one, and return what changed."""
        seconds = TICK_SECONDS if self._is_current() else 0.0
        wanted = {STATUS: self._version}
        try:
            batch = self._store.read(streams={}, registers=wanted, timeout_seconds=seconds)
            self._store_problem = ""
        except StokerError as error:
            self._store_problem = str(error)
            return b""
        register = batch.registers.get(STATUS)
        if register is None:
            return b""
        # One that cannot be read is not read again.
        self._version = register.version
        try:
            status = decode_status(register.payload, self._signer)
            self._status_problem = ""
        except StokerError as error:
            self._status_problem = str(error)
            return b""
        with self._changing:
            self._status = status
            return self._content.update(status)

    def _is_current(self) -> bool:
        """Whether readers were sent the newest status just now."""
        return time.monotonic() - self._sent_at < 2 * TICK_SECONDS

    def _about(self) -> bytes:
        """Return the members that say who leads, how old the status is, and what is wrong with reading it."""
        about: dict[str, object] = {"led": False, "holder": ""}
        with contextlib.suppress(StokerError):
            leader = leader_of(self._store)
            about |= {"led": leader.alive, "holder": leader.holder}
        status = self._status
        about["age"] = None if status is None else max(0.0, time.time() - status.wall)
        about["problem"] = printable(self._store_problem or self._status_problem)
        return msgspec.json.encode(about)[1:-1]

    def _call(self, function: object, *arguments: bytes) -> None:
        if self._loop is not None:
            # The loop may be closed already.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(function, *arguments)  # type: ignore[arg-type]
