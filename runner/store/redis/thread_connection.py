"""What one thread of a Redis store's handle owns: a connection to the server and a wakeup."""

import contextlib
import os
import select
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from runner.errors import UserError
from runner.store.connected_store import ThreadConnection
from runner.store.protocol import Cursors, is_volatile_register, is_volatile_stream
from runner.store.redis.connection import (
    Command,
    ConnectionLost,
    ErrorReply,
    NotRedis,
    ServerConnection,
)
from runner.store.redis.keys import Keys
from runner.store.redis.scripts import Script

# In each instance of the server, volatile numbers start above all earlier ones.
_INSTANCE_ID_BITS = 32


class RedisThreadConnection(ThreadConnection):
    """A connection, made when first needed and again after an error, and an eventfd that ends its wait.

    `cursors`: how far this connection has read streams; None when unknown. `base`: the number below all volatile ones of the
    server's present instance.
    """

    def __init__(
        self,
        keys: Keys,
        connect: Callable[[], tuple[ServerConnection, int]],
        translate_error: Callable[[Exception], Exception],
    ) -> None:
        """`connect` returns a connection that is logged in, and the server's instance id."""
        super().__init__()
        self.cursors: dict[str, int] | None = None
        self._keys = self._volatile_keys = keys
        self.base = 0
        self._connect, self._translate = connect, translate_error
        self._connection: ServerConnection | None = None
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def knows(self, cursors: Mapping[str, int]) -> bool:
        """Return whether this connection has read these streams exactly so far."""
        known = self.cursors
        return known is not None and all(known.get(name) == at for name, at in cursors.items())

    def ensure_connected(self) -> None:
        if self._connection is not None and self._connection.is_stale():
            self.disconnect()
        if self._connection is None:
            try:
                self._connection, instance_id = self._connect()
            except (ConnectionLost, NotRedis, ErrorReply, ssl.SSLError, UserError) as error:
                raise self._translate(error) from error
            self._volatile_keys = self._keys.of_instance(instance_id)
            self.base = (instance_id - 1) << _INSTANCE_ID_BITS

    def keys_of(self, is_volatile: bool) -> Keys:
        """Return the cluster's keys, or those of the server's present instance."""
        return self._volatile_keys if is_volatile else self._keys

    def item_keys(self, wanted: Cursors) -> list[str]:
        """Return the keys of the streams, then of the registers."""
        streams = [self.keys_of(is_volatile_stream(n)).stream(n) for n in wanted.streams]
        registers = [self.keys_of(is_volatile_register(n)).register(n) for n in wanted.registers]
        return streams + registers

    def run(self, script: Script, keys: Sequence[str], *arguments: bytes | str | int) -> list[Any]:
        """Run a script and return its reply. `ensure_connected` comes first."""
        with self._translating() as connection:
            return evaluate(connection, script, keys, *arguments)

    def command(self, *words: bytes | str | int) -> Any:
        """Run one command; the reply may be an ErrorReply."""
        with self._translating() as connection:
            return connection.call(words)[0]

    def begin_wait(self, command: Command) -> None:
        """Send a blocking command; `wait` receives its reply."""
        with self._translating() as connection:
            connection.send(command)

    def wait(self, seconds: float, *, deadline_seconds: float) -> tuple[bool, Any]:
        """Wait at most `seconds` for the reply; return whether `wake` ended the wait, and the reply or None."""
        with self._translating() as connection:
            poll = select.poll()
            poll.register(connection, select.POLLIN)
            poll.register(self._wakeup, select.POLLIN)
            ready = {fd for fd, _ in poll.poll((seconds + deadline_seconds) * 1000)}
            if not ready:
                raise ConnectionLost("it does not answer in time")
            if connection.fileno() not in ready:
                # A late reply must not be taken for that of the next command.
                self.disconnect()
                return True, None
            reply = connection.receive(extra_seconds=seconds)
            if isinstance(reply, ErrorReply):
                raise reply
            return False, reply

    @contextmanager
    def _translating(self) -> Iterator[ServerConnection]:
        assert self._connection is not None
        try:
            yield self._connection
        except (ConnectionLost, NotRedis, ErrorReply, ssl.SSLError) as error:
            # An error that the server sent leaves the connection usable.
            if not isinstance(error, ErrorReply):
                self.disconnect()
            raise self._translate(error) from error

    def wake(self) -> None:
        with contextlib.suppress(OSError):
            os.eventfd_write(self._wakeup, 1)

    def clear_wakeup(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wakeup)

    def close(self) -> None:
        if not self.is_waiting:
            self.disconnect()

    def disconnect(self) -> None:
        """Close the connection; the next call makes another."""
        self.cursors = None
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.close()

    def __del__(self) -> None:
        # Closed here only, where no thread can call `wake`: the descriptor may be reused by another file.
        if self.process == os.getpid():
            self.disconnect()
            os.close(self._wakeup)


def evaluate(
    connection: ServerConnection, script: Script, keys: Sequence[str], *arguments: bytes | str | int
) -> list[Any]:
    """Run a script by its hash, or by its text if the server does not know it yet. Raises ErrorReply."""
    rest = (len(keys), *keys, *arguments)
    evalsha, eval_ = ("EVALSHA", "EVAL") if script.changes else ("EVALSHA_RO", "EVAL_RO")
    reply = connection.call((evalsha, script.sha, *rest))[0]
    if isinstance(reply, ErrorReply) and reply.code == "NOSCRIPT":
        reply = connection.call((eval_, script.source, *rest))[0]
    if isinstance(reply, ErrorReply):
        raise ErrorReply(f"{reply.text}: {keys[0]}") if reply.code == "NOPERM" and keys else reply
    assert isinstance(reply, list)
    return reply
