"""The outbox: one thread that writes to the store. Durable signals wait for it, in order; heartbeats do not.

Durable signals are also kept in a spool file until the store has acknowledged them, so that an agent killed meanwhile says
them in its next life, as they were. The file is in the page cache, not fsynced: it is to survive the process, and what a
machine's death takes is reported by the silence of the node.
"""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from runner.errors import StokerError, TemporaryError, WireError
from runner.facts.wire import MAX_MESSAGE_BYTES, decode, encode
from runner.store.store import Store

log = logging.getLogger("stoker.agent")

SIGNALS = "signals"
BEATS = "beats"
MAX_BATCH = 64  # durable signals in one transaction; chosen
MAX_BEATS = 8  # heartbeats that wait while the store is slow; the oldest makes room; chosen
HANGING_SECONDS = 3.0  # a call that takes longer counts as a store that is lost; chosen: three times a store's own deadline
MAX_DELAY_SECONDS = 5.0  # between tries, whatever the store asks for


class Outbox:
    """Signals on their way to the store. Only the owner puts; `on_acknowledged(facts)` is called on the writer's thread."""

    def __init__(
        self, store: Store, spool: Path, on_acknowledged: Callable[[list[object]], None]
    ) -> None:
        self._store = store
        self._on_acknowledged = on_acknowledged
        self._changed = threading.Condition()
        self._durable: collections.deque[tuple[object, bytes]] = collections.deque()
        self._beats: collections.deque[bytes] = collections.deque(maxlen=MAX_BEATS)
        self._spool = spool.open("ab+")
        self._load()
        self._failing_since: float | None = None
        self._calling_since: float | None = None
        self._is_over = False
        self._thread = threading.Thread(target=self._run, daemon=True, name="stoker-outbox")

    @property
    def waiting(self) -> list[object]:
        """Return the durable signals that are not acknowledged, oldest first."""
        with self._changed:
            return [fact for fact, _ in self._durable]

    def lost_since(self, now: float) -> float | None:
        """Return since when the store does not answer (monotonic seconds); None while it does."""
        with self._changed:
            if self._failing_since is not None:
                return self._failing_since
            since = self._calling_since
            return since if since is not None and now - since > HANGING_SECONDS else None

    def start(self) -> None:
        """Begin to write, with what an earlier life left in the spool."""
        self._thread.start()

    def put(self, fact: object) -> None:
        """Queue a durable signal; raises WireError when it cannot be a message."""
        try:
            line = encode(fact)
        except (RecursionError, ValueError) as error:
            raise WireError(f"{type(fact).__name__} cannot be written: {error}") from error
        if len(line) > MAX_MESSAGE_BYTES:
            raise WireError(f"{type(fact).__name__} of {len(line)} bytes; {MAX_MESSAGE_BYTES} fit")
        with self._changed:
            self._spool.write(line + b"\n")
            self._spool.flush()
            self._durable.append((fact, line))
            self._changed.notify_all()

    def beat(self, line: bytes) -> None:
        """Queue an encoded heartbeat; lost when the store is away."""
        with self._changed:
            self._beats.append(line)
            self._changed.notify_all()

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until every durable signal is acknowledged; False if some are not by then."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._durable, timeout_seconds)

    def close(self) -> None:
        """Stop writing; what is not acknowledged stays in the spool."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(HANGING_SECONDS)
        self._spool.close()

    def _load(self) -> None:
        self._spool.seek(0)
        for line in self._spool.read().splitlines():
            try:
                self._durable.append((decode(line), line))
            except WireError:
                continue  # its writer was killed in the middle of this line

    def _run(self) -> None:
        retry_at = 0.0
        while True:
            with self._changed:
                while not (self._is_over or self._beats or self._is_due(retry_at)):
                    wait_seconds = max(0.0, retry_at - time.monotonic())
                    self._changed.wait(wait_seconds if self._durable else None)
                if self._is_over:
                    return
                batch = list(self._durable)[:MAX_BATCH] if self._is_due(retry_at) else []
                beats = list(self._beats)
                self._beats.clear()
            if batch:
                delay_seconds = self._write(SIGNALS, [line for _, line in batch])
                if delay_seconds is None:
                    self._acknowledged(batch)
                else:
                    retry_at = time.monotonic() + delay_seconds
            if beats:
                self._write(BEATS, beats)

    def _is_due(self, retry_at: float) -> bool:
        return bool(self._durable) and time.monotonic() >= retry_at

    def _write(self, stream: str, lines: list[bytes]) -> float | None:
        """Append; return None when acknowledged, else the seconds to wait before the next try."""
        started_at = time.monotonic()
        with self._changed:
            self._calling_since = started_at
        delay_seconds: float | None = None
        try:
            self._store.append_many(stream, lines)
        except TemporaryError as error:
            delay_seconds = min(error.delay_seconds, MAX_DELAY_SECONDS)
            self._say(f"the store does not take {stream}: {error}")
        except StokerError as error:
            delay_seconds = MAX_DELAY_SECONDS
            self._say(f"the store refuses {stream}: {error}")
        except Exception:
            delay_seconds = MAX_DELAY_SECONDS
            log.exception("writing to the store failed")
        with self._changed:
            self._calling_since = None
            if delay_seconds is None:
                self._failing_since = None
            elif self._failing_since is None:
                self._failing_since = started_at
        return delay_seconds

    def _say(self, message: str) -> None:
        if self._failing_since is None:  # once per outage
            log.warning("%s", message)

    def _acknowledged(self, batch: list[tuple[object, bytes]]) -> None:
        with self._changed:
            for _ in batch:
                self._durable.popleft()
            if not self._durable:
                self._spool.truncate(0)
            self._changed.notify_all()
        self._on_acknowledged([fact for fact, _ in batch])
