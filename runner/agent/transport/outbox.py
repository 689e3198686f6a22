"""The outbox of one session: messages on their way to the store. Durable signals wait in order; heartbeats may be lost.

The session's owner puts signals, a client's writer thread calls `write`. A spool keeps durable
signals until the store has acknowledged them, so that the next agent instance sends, unchanged,
those of one that was killed.
"""

from __future__ import annotations

import collections
import logging
import threading
import time
from collections.abc import Callable
from itertools import islice

from runner.agent.transport.spool import Spool
from runner.errors import StokerError, StoreRolledBack, TemporaryError, WireError
from runner.facts.store_names import HEARTBEATS, SIGNALS
from runner.facts.wire import MAX_MESSAGE_BYTES, decode, encode
from runner.signer import SIGNATURE_BYTES, Signer
from runner.store.protocol import Store

log = logging.getLogger("stoker.agent")

# Durable signals in one transaction; chosen.
MAX_BATCH = 64
# Heartbeats that wait while the store is slow; the oldest makes room; chosen.
MAX_HEARTBEATS = 8
# A call that takes longer counts as a lost store; chosen: three times a store's own deadline.
HANGING_SECONDS = 3.0
# Between tries, whatever delay the store asks for.
MAX_DELAY_SECONDS = 5.0
# Characters of an error that are logged.
MAX_LOGGED = 300


class Outbox:
    """Signals on their way to the store. `on_acknowledged(facts)` is called on the writer's thread.

    Signals are signed when they are written, so an earlier instance's carry the present signature.
    """

    def __init__(
        self,
        spool: Spool | None,
        signer: Signer,
        on_acknowledged: Callable[[list[object]], None],
        *,
        notify: Callable[[Outbox], None],
    ) -> None:
        """`notify(self)` is called when there is something to write."""
        self._signer = signer
        self._on_acknowledged = on_acknowledged
        self._notify = notify
        self._changed = threading.Condition()
        self._durable: collections.deque[tuple[object, bytes]] = collections.deque()
        self._heartbeats: collections.deque[bytes] = collections.deque(maxlen=MAX_HEARTBEATS)
        self._spool = spool
        # The newest durable signals which the spool had no room for.
        self._num_unspooled = 0
        self._retry_at = 0.0
        self._failing_since: float | None = None
        self._calling_since: float | None = None
        self._is_closed = False
        self._limit_bytes = MAX_MESSAGE_BYTES - (SIGNATURE_BYTES if signer.is_active else 0)
        if spool is not None:
            self._load(spool)

    @property
    def waiting(self) -> list[object]:
        """Return the unacknowledged durable signals, oldest first."""
        with self._changed:
            return [fact for fact, _ in self._durable]

    def lost_since(self, now: float) -> float | None:
        """Return since when the store has not answered (monotonic seconds); None while it answers."""
        with self._changed:
            if self._failing_since is not None:
                return self._failing_since
            since = self._calling_since
            return since if since is not None and now - since > HANGING_SECONDS else None

    def put(self, fact: object) -> None:
        """Queue a durable signal; raises WireError when it cannot be encoded or is too large."""
        name = type(fact).__name__
        try:
            line = encode(fact)
        except (RecursionError, ValueError) as error:
            raise WireError(f"{name} cannot be encoded: {error}") from error
        if len(line) > self._limit_bytes:
            raise WireError(f"{name} has {len(line)} bytes, the limit is {self._limit_bytes}")
        with self._changed:
            self._durable.append((fact, line))
            self._num_unspooled += 1
            self._spool_new()
        self._notify(self)

    def put_heartbeat(self, fact: object) -> bool:
        """Queue a heartbeat, which is lost while the store is down; False: it is too large to be sent."""
        line = encode(fact)
        if len(line) > self._limit_bytes:
            return False
        with self._changed:
            self._heartbeats.append(line)
            self._spool_new()
        self._notify(self)
        return True

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until every durable signal is acknowledged; False when that takes longer."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._durable, timeout_seconds)

    def close(self) -> None:
        """Accept no more signals; the unacknowledged ones stay in the spool."""
        with self._changed:
            if not self._is_closed and self._spool is not None:
                self._spool.close()
            self._is_closed = True

    def write(self, store: Store) -> float | None:
        """Write what is due; return when to call again without a `notify` (monotonic seconds), None for never."""
        with self._changed:
            if self._is_closed:
                return None
            is_due = bool(self._durable) and time.monotonic() >= self._retry_at
            batch = list(islice(self._durable, MAX_BATCH)) if is_due else []
            heartbeats = list(self._heartbeats)
            self._heartbeats.clear()
        if batch:
            delay_seconds = self._append(store, SIGNALS, [line for _, line in batch])
            if delay_seconds is None:
                self._acknowledge(batch)
            else:
                self._retry_at = time.monotonic() + delay_seconds
        if heartbeats:
            self._append(store, HEARTBEATS, heartbeats)
        with self._changed:
            return self._retry_at if self._durable and not self._is_closed else None

    def _load(self, spool: Spool) -> None:
        for line in spool.read():
            try:
                self._durable.append((decode(line), line))
            except WireError:
                # Its writer was killed in the middle of this line.
                continue

    def _spool_new(self) -> None:
        """Append the durable signals that the spool lacks."""
        if self._spool is None or self._is_closed or not self._num_unspooled:
            return
        newest = islice(self._durable, len(self._durable) - self._num_unspooled, None)
        if self._spool.write([line for _, line in newest]):
            self._num_unspooled = 0

    def _append(self, store: Store, stream: str, lines: list[bytes]) -> float | None:
        """Append; return None when acknowledged, else the seconds to wait before the next try."""
        started_at = time.monotonic()
        with self._changed:
            self._calling_since = started_at
        delay_seconds: float | None = None
        try:
            store.append_many(stream, [self._signer.sign(stream, line) for line in lines])
        except TemporaryError as error:
            delay_seconds = min(error.delay_seconds, MAX_DELAY_SECONDS)
            self._warn(f"cannot append to {stream}, trying again: {error}")
        except StoreRolledBack as error:
            # The supervisor deals with what was lost; the agent's signals must arrive.
            delay_seconds = 0.0
            self._warn(f"continuing on a rolled-back store: {error}")
            store.accept_rollback()
        except StokerError as error:
            delay_seconds = MAX_DELAY_SECONDS
            self._warn(f"the store refuses {stream}: {error}")
        except Exception:
            delay_seconds = MAX_DELAY_SECONDS
            log.exception("cannot append to %s", stream)
        with self._changed:
            self._calling_since = None
            if delay_seconds is None:
                self._failing_since = None
            elif self._failing_since is None:
                self._failing_since = started_at
        return delay_seconds

    def _warn(self, message: str) -> None:
        """Log once per outage."""
        if self._failing_since is None:
            log.warning("%s", message[:MAX_LOGGED])

    def _acknowledge(self, batch: list[tuple[object, bytes]]) -> None:
        with self._changed:
            for _ in batch:
                self._durable.popleft()
            self._num_unspooled = min(self._num_unspooled, len(self._durable))
            if not self._durable and self._spool is not None and not self._is_closed:
                self._spool.clear()
            self._retry_at = 0.0
            self._changed.notify_all()
        self._on_acknowledged([fact for fact, _ in batch])
