"""What one thread of a Redis store's handle owns: a connection to the server and a wakeup."""

from __future__ import annotations

import contextlib
import os
import select
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from runner.errors import UserError
from runner.store.redis.connection import (
    Command,
    ConnectionLost,
    ErrorReply,
    NotRedis,
    ServerConnection,
)
from runner.store.redis.scripts import Script

_RAW_ERRORS = (ConnectionLost, NotRedis, ErrorReply, ssl.SSLError)


class RedisThreadConnection:
    """A connection, made when first needed and again after an error, and an eventfd that ends its wait.

    `lock` is held by its thread during a call (not while blocked), or by the thread that closes the handle. `cursors`: how far
    this connection has read streams; None when unknown.
    """

    def __init__(
        self,
        connect: Callable[[], tuple[ServerConnection, int]],
        translate_error: Callable[[Exception], Exception],
    ) -> None:
        """`connect` returns a connection that is logged in, and the server's instance id."""
        self.process = os.getpid()
        self.lock = threading.Lock()
        self.is_waiting = False
        self.cursors: dict[str, int] | None = None
        self.instance_id = 0
        self._connect, self._translate = connect, translate_error
        self._connection: ServerConnection | None = None
        self._wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._num_wakes_seen = 0

    def knows(self, cursors: Mapping[str, int]) -> bool:
        """Return whether this connection has read these streams exactly so far."""
        known = self.cursors
        return known is not None and all(known.get(name) == at for name, at in cursors.items())

    def ensure_connected(self) -> None:
        """Connect, also in place of a connection that the server has closed meanwhile."""
        if self._connection is not None and self._connection.is_stale():
            self.disconnect()
        if self._connection is None:
            try:
                self._connection, self.instance_id = self._connect()
            except (*_RAW_ERRORS, UserError) as error:
                raise self._translate(error) from error

    def run(self, script: Script, keys: Sequence[str], *arguments: bytes | str | int) -> list[Any]:
        """Run a script and return its reply. `ensure_connected` comes first."""
        assert self._connection is not None
        try:
            return evaluate(self._connection, script, keys, *arguments)
        except ErrorReply as error:
            raise self._translate(error) from error
        except (ConnectionLost, NotRedis, ssl.SSLError) as error:
            self.disconnect()
            raise self._translate(error) from error

    def command(self, *words: bytes | str | int) -> Any:
        """Run one command; the reply may be a ErrorReply."""
        assert self._connection is not None
        try:
            return self._connection.call(words)[0]
        except _RAW_ERRORS as error:
            self.disconnect()
            raise self._translate(error) from error

    def begin_wait(self, command: Command) -> None:
        """Send a blocking command; `wait` receives its reply."""
        assert self._connection is not None
        try:
            self._connection.send(command)
        except _RAW_ERRORS as error:
            self.disconnect()
            raise self._translate(error) from error

    def wait(self, seconds: float, *, deadline_seconds: float) -> tuple[bool, Any]:
        """Wait at most `seconds` for the reply; return whether `wake` ended the wait, and the reply or None."""
        assert self._connection is not None
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        poll.register(self._wakeup, select.POLLIN)
        ready = {fd for fd, _ in poll.poll((seconds + deadline_seconds) * 1000)}
        try:
            if not ready:
                raise ConnectionLost("it does not answer in time")
            if self._connection.fileno() not in ready:
                # A late reply must not be taken for that of the next command.
                self.disconnect()
                return True, None
            reply = self._connection.receive(extra_seconds=seconds)
        except _RAW_ERRORS as error:
            self.disconnect()
            raise self._translate(error) from error
        if isinstance(reply, ErrorReply):
            raise self._translate(reply) from reply
        return False, reply

    def wake(self) -> None:
        """End the wait. May be called from a signal handler."""
        with contextlib.suppress(OSError):
            os.eventfd_write(self._wakeup, 1)

    def has_been_woken(self, num_wakes: Callable[[], int]) -> bool:
        """Return whether the handle was woken since the last call, and clear the wakeup."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wakeup)
        number = num_wakes()
        if number == self._num_wakes_seen:
            return False
        self._num_wakes_seen = number
        return True

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
        raise reply
    assert isinstance(reply, list)
    return reply
