"""The outbox of one session: what is on its way to the store. Durable signals wait for it, in order; heartbeats do not.

A courier's writer calls `write`; whoever owns the session puts. Durable signals are also kept in a spool, if there is one, until
the store has acknowledged them, so that an agent killed meanwhile says them in its next life, as they were.
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
from runner.facts.wire import MAX_MESSAGE_BYTES, decode, encode
from runner.signer import SIGNATURE_BYTES, Signer
from runner.store.protocol import Store

log = logging.getLogger("stoker.agent")

SIGNALS = "signals"
BEATS = "beats"
# durable signals in one transaction; chosen
MAX_BATCH = 64
# heartbeats that wait while the store is slow; the oldest makes room; chosen
MAX_BEATS = 8
# a call that takes longer counts as a store that is lost; chosen: three times a store's own deadline
HANGING_SECONDS = 3.0
# between tries, whatever the store asks for
MAX_DELAY_SECONDS = 5.0
# characters of an error that are logged
MAX_SAID_AT_ONCE = 300


class Outbox:
    """Signals on their way to the store. `on_acknowledged(facts)` is called on the writer's thread.

    Signals are signed as they are written, so that those an earlier life left are signed with today's token.
    """

    def __init__(
        self,
        spool: Spool | None,
        signer: Signer,
        on_acknowledged: Callable[[list[object]], None],
        *,
        ring: Callable[[Outbox], None],
    ) -> None:
        """`ring(self)` is called when there is something to write."""
        self._signer = signer
        self._on_acknowledged = on_acknowledged
        self._ring = ring
        self._changed = threading.Condition()
        self._durable: collections.deque[tuple[object, bytes]] = collections.deque()
        self._beats: collections.deque[bytes] = collections.deque(maxlen=MAX_BEATS)
        self._spool = spool
        # of the newest that wait: not in the spool, which had no room
        self._num_unspooled = 0
        self._retry_at = 0.0
        self._failing_since: float | None = None
        self._calling_since: float | None = None
        self._is_over = False
        self._limit_bytes = MAX_MESSAGE_BYTES - (SIGNATURE_BYTES if signer.is_active else 0)
        if spool is not None:
            self._load(spool)

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

    def put(self, fact: object) -> None:
        """Queue a durable signal; raises WireError when it cannot be a message."""
        try:
            line = encode(fact)
        except (RecursionError, ValueError) as error:
            raise WireError(f"{type(fact).__name__} cannot be written: {error}") from error
        if len(line) > self._limit_bytes:
            raise WireError(f"{type(fact).__name__} of {len(line)} bytes; {self._limit_bytes} fit")
        with self._changed:
            self._durable.append((fact, line))
            self._num_unspooled += 1
            self._catch_up()
        self._ring(self)

    def beat(self, fact: object) -> bool:
        """Queue a heartbeat, which is lost when the store is away; False when it is too large to be sent."""
        line = encode(fact)
        if len(line) > self._limit_bytes:
            return False
        with self._changed:
            self._beats.append(line)
            self._catch_up()
        self._ring(self)
        return True

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until every durable signal is acknowledged; False if some are not by then."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._durable, timeout_seconds)

    def close(self) -> None:
        """Take nothing any more; what is not acknowledged stays in the spool."""
        with self._changed:
            if not self._is_over and self._spool is not None:
                self._spool.close()
            self._is_over = True

    def write(self, store: Store) -> float | None:
        """Write what is due; return when to come again if nothing rings before (monotonic seconds), None for never."""
        with self._changed:
            if self._is_over:
                return None
            is_due = bool(self._durable) and time.monotonic() >= self._retry_at
            batch = list(islice(self._durable, MAX_BATCH)) if is_due else []
            beats = list(self._beats)
            self._beats.clear()
        if batch:
            delay_seconds = self._append(store, SIGNALS, [line for _, line in batch])
            if delay_seconds is None:
                self._acknowledged(batch)
            else:
                self._retry_at = time.monotonic() + delay_seconds
        if beats:
            self._append(store, BEATS, beats)
        with self._changed:
            return self._retry_at if self._durable and not self._is_over else None

    def _load(self, spool: Spool) -> None:
        for line in spool.read():
            try:
                self._durable.append((decode(line), line))
            except WireError:
                # its writer was killed in the middle of this line
                continue

    def _catch_up(self) -> None:
        """Write down what is not in the spool yet."""
        if self._spool is None or self._is_over or not self._num_unspooled:
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
            self._say(f"the store does not take {stream}: {error}")
        except StoreRolledBack as error:
            # what it forgot is for the supervisor and a person; we say what we have to say
            delay_seconds = 0.0
            self._say(f"going on with the store as it is: {error}")
            store.forget()
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
        # once per outage
        if self._failing_since is None:
            log.warning("%s", message[:MAX_SAID_AT_ONCE])

    def _acknowledged(self, batch: list[tuple[object, bytes]]) -> None:
        with self._changed:
            for _ in batch:
                self._durable.popleft()
            self._num_unspooled = min(self._num_unspooled, len(self._durable))
            if not self._durable and self._spool is not None and not self._is_over:
                self._spool.clear()
            self._retry_at = 0.0
            self._changed.notify_all()
        self._on_acknowledged([fact for fact, _ in batch])
