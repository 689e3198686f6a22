"""The outbox of one session: messages on their way to the store. Durable signals wait in order; heartbeats may be lost.

The session's owner puts signals, a client's writer thread calls `write`. A spool keeps durable
signals until the store has acknowledged them: the next agent sends, unchanged, those of one that
was killed. Its file is not fsynced, for it must survive the process only: a node's lost heartbeat
reports the machine's death. Signals that a full disk refuses wait in memory and are sent as always.
"""

import collections
import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from runner.errors import PermanentError, StokerError, StoreRolledBack, TemporaryError, WireError
from runner.facts.store_names import HEARTBEATS, SIGNALS
from runner.facts.wire import MAX_MESSAGE_BYTES, decode, encode
from runner.signer import SIGNATURE_BYTES, Signer
from runner.store.protocol import Store

log = logging.getLogger("stoker.agent")

# Chosen, not measured. The oldest of waiting heartbeats makes room.
MAX_BATCH = 64
MAX_HEARTBEATS = 8
MAX_DELAY_SECONDS = 5.0
MAX_LOGGED_CHARACTERS = 300
# Chosen: three times a store's own deadline. A call that takes longer counts as a lost store.
HANGING_SECONDS = 3.0


class Spool:
    """Lines in a file. A line that a kill or a full disk cut off is removed or ignored."""

    def __init__(self, path: Path) -> None:
        """Open or create the file. Raises PermanentError."""
        self._path = path
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        try:
            self._file = os.open(path, flags, 0o644)
        except OSError as error:
            reason = f"{path} cannot be opened ({error}); it holds signals until the store has them"
            raise PermanentError(reason) from error
        self._size = os.fstat(self._file).st_size
        self._is_failing = False

    def read(self) -> list[bytes]:
        """Return the lines of earlier instances; end a line that was cut off."""
        data = b""
        while chunk := os.pread(self._file, 1 << 20, len(data)):
            data += chunk
        if data and not data.endswith(b"\n"):
            self.write([b""])
        return data.splitlines()

    def write(self, lines: list[bytes]) -> bool:
        """Append all lines or none; False when the disk refuses them."""
        data = b"".join(line + b"\n" for line in lines)
        try:
            written = os.write(self._file, data)
            if written < len(data):
                os.ftruncate(self._file, self._size)
                raise OSError("it took a part of the lines only")
        except OSError as error:
            self._on_failure(error)
            return False
        self._size += written
        if self._is_failing:
            log.warning("%s can be written again", self._path)
            self._is_failing = False
        return True

    def clear(self) -> None:
        """Remove all lines."""
        try:
            os.ftruncate(self._file, 0)
            self._size = 0
        except OSError as error:
            self._on_failure(error)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _on_failure(self, reason: OSError) -> None:
        if not self._is_failing:
            log.warning(
                "%s cannot be written (%s): unsent signals are kept in memory only, and are lost if this agent dies",
                self._path,
                reason,
            )
            self._is_failing = True


class Outbox:
    """Signals on their way to the store. `on_acknowledged(facts)` is called on the writer's thread.

    `notify(self)` is called when there is something to write. Signals are signed when they are
    written, so an earlier instance's carry the present signature.
    """

    def __init__(
        self,
        spool: Spool | None,
        signer: Signer,
        on_acknowledged: Callable[[list[object]], None],
        *,
        notify: "Callable[[Outbox], None]",
    ) -> None:
        self._spool, self._signer = spool, signer
        self._on_acknowledged, self._notify = on_acknowledged, notify
        self._changed = threading.Condition()
        self._durable = collections.deque[tuple[object, bytes]]()
        self._heartbeats = collections.deque[bytes](maxlen=MAX_HEARTBEATS)
        # The newest durable signals which the spool had no room for.
        self._num_unspooled = 0
        self._retry_at = 0.0
        self._failing_since: float | None = None
        self._calling_since: float | None = None
        self._is_closed = False
        self._limit_bytes = MAX_MESSAGE_BYTES - (SIGNATURE_BYTES if signer.is_active else 0)
        for line in spool.read() if spool is not None else []:
            # The writer of the last line may have been killed in the middle of it.
            with contextlib.suppress(WireError):
                self._durable.append((decode(line), line))

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

    def _spool_new(self) -> None:
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
        """Warn once per outage."""
        if self._failing_since is None:
            log.warning("%s", message[:MAX_LOGGED_CHARACTERS])

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
