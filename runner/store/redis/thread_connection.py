"""A seat: what one thread of a Redis store's handle owns, so that threads never share a connection."""

from __future__ import annotations

import contextlib
import os
import select
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from runner.errors import UserError
from runner.store.redis.connection import Command, Link, LinkLost, NotRedis, Refused
from runner.store.redis.scripts import Script

_RAW_ERRORS = (LinkLost, NotRedis, Refused, ssl.SSLError)


class RedisThreadConnection:
    """A connection, made when first needed and made anew after an error, and a bell for `wake`.

    `lock` is held by whoever uses the seat: its thread during a call (not while blocked), or the thread that closes the
    handle. `process` is the one that made it: a connection must not be used on the far side of a fork. `known`: how far this
    connection has read streams, so that they are known to reach there; None when nothing is known.
    """

    def __init__(
        self,
        connect: Callable[[], tuple[Link, int]],
        meaning: Callable[[Exception], Exception],
    ) -> None:
        """`connect` returns a connection that is logged in, and the number of the server's life."""
        self.process = os.getpid()
        self.lock = threading.Lock()
        self.is_waiting = False
        self.known: dict[str, int] | None = None
        self.life = 0
        self._connect, self._meaning = connect, meaning
        self._link: Link | None = None
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._num_wakes_seen = 0

    def knows(self, cursors: Mapping[str, int]) -> bool:
        """Say whether this connection has read these streams so far, and nothing came between."""
        known = self.known
        return known is not None and all(known.get(name) == at for name, at in cursors.items())

    def ready(self) -> None:
        """Be connected, by a connection that the server has not closed meanwhile, so that nothing is sent into the void."""
        if self._link is not None and self._link.is_stale():
            self.hang_up()
        if self._link is None:
            try:
                self._link, self.life = self._connect()
            except (*_RAW_ERRORS, UserError) as error:
                raise self._meaning(error) from error

    def run(self, script: Script, keys: Sequence[str], *arguments: bytes | str | int) -> list[Any]:
        """Run a script and return what it returns. `ready` comes first."""
        assert self._link is not None
        try:
            return evaluate(self._link, script, keys, *arguments)
        except Refused as error:
            raise self._meaning(error) from error
        except (LinkLost, NotRedis, ssl.SSLError) as error:
            self.hang_up()
            raise self._meaning(error) from error

    def command(self, *words: bytes | str | int) -> Any:
        """Run one command; the reply may be a Refused."""
        assert self._link is not None
        try:
            return self._link.call(words)[0]
        except _RAW_ERRORS as error:
            self.hang_up()
            raise self._meaning(error) from error

    def ask_to_wait(self, command: Command) -> None:
        """Send a command that the server answers when it likes; `wait` takes the answer."""
        assert self._link is not None
        try:
            self._link.send(command)
        except _RAW_ERRORS as error:
            self.hang_up()
            raise self._meaning(error) from error

    def wait(self, seconds: float, *, deadline_seconds: float) -> tuple[bool, Any]:
        """Wait for the answer, at most `seconds`; return whether the bell rang instead, and the answer: None if nothing came."""
        assert self._link is not None
        poll = select.poll()
        poll.register(self._link, select.POLLIN)
        poll.register(self._bell, select.POLLIN)
        ready = {fd for fd, _ in poll.poll((seconds + deadline_seconds) * 1000)}
        try:
            if not ready:
                raise LinkLost("it does not answer in time")
            if self._link.fileno() not in ready:
                # the answer may still come, and nobody would want it
                self.hang_up()
                return True, None
            reply = self._link.receive(extra_seconds=seconds)
        except _RAW_ERRORS as error:
            self.hang_up()
            raise self._meaning(error) from error
        if isinstance(reply, Refused):
            raise self._meaning(reply) from reply
        return False, reply

    def ring(self) -> None:
        """End the seat's wait. May be called from a signal handler."""
        with contextlib.suppress(OSError):
            os.eventfd_write(self._bell, 1)

    def has_been_woken(self, num_wakes: Callable[[], int]) -> bool:
        """Say whether the handle was woken since this seat was asked last; rings so far are then done with."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        number = num_wakes()
        if number == self._num_wakes_seen:
            return False
        self._num_wakes_seen = number
        return True

    def hang_up(self) -> None:
        """Close the connection; the next call makes another."""
        self.known = None
        link, self._link = self._link, None
        if link is not None:
            with contextlib.suppress(OSError):
                link.close()

    def __del__(self) -> None:
        # The bell is closed here only, where nobody can be about to ring it: its number may be another file's next.
        if self.process == os.getpid():
            self.hang_up()
            os.close(self._bell)


def evaluate(
    link: Link, script: Script, keys: Sequence[str], *arguments: bytes | str | int
) -> list[Any]:
    """Run a script by its hash, by its text where the server does not know it yet. Raises Refused."""
    rest = (len(keys), *keys, *arguments)
    evalsha, eval_ = ("EVALSHA", "EVAL") if script.changes else ("EVALSHA_RO", "EVAL_RO")
    reply = link.call((evalsha, script.sha, *rest))[0]
    if isinstance(reply, Refused) and reply.code == "NOSCRIPT":
        reply = link.call((eval_, script.source, *rest))[0]
    if isinstance(reply, Refused):
        raise reply
    assert isinstance(reply, list)
    return reply
