"""A connection to a Redis server: commands out, replies in, and no wait without an end.

Of our own, since what a store needs of Redis is small: the usual client costs 250 ms and 14 MB to import, ten times the time to
read a thousand items, and decides by itself when to connect and to try again. The protocol is RESP2, which every server speaks:
https://redis.io/docs/latest/develop/reference/protocol-spec/
"""

from __future__ import annotations

import contextlib
import ipaddress
import select
import socket
import ssl
import threading
import time
from collections.abc import Sequence
from typing import Any

Command = Sequence[bytes | str | int]

_READ_BYTES = 1 << 16
_TEXT, _ERROR, _NUMBER, _BULK, _LIST = _KINDS = tuple(b"+-:$*")
# After a handshake the server says whether it takes our certificate: its session tickets come, or an alert; chosen.
_VERDICT_SECONDS = 0.2
# The slowest network and disk that a large payload still gets through, in addition to the time-out; chosen, not measured.
_FLOOR_BYTES_PER_SECOND = 8e6


class LinkLost(Exception):
    """The connection ended, or nothing came in time: what was asked for may have been done or not."""


class NotRedis(Exception):
    """Whoever answers does not speak Redis' language."""


class Refused(Exception):
    """The server's answer is an error: `code`, its first word, and the whole `text`."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.code = text.partition(" ")[0]
        self.text = text


class Link:
    """One connection, owned by one thread. After LinkLost or NotRedis it is of no use any more."""

    def __init__(self, stream: socket.socket, *, timeout_seconds: float) -> None:
        """`timeout_seconds`: how long the server may be silent in the middle of a call."""
        self._stream = stream
        self._timeout_seconds = timeout_seconds
        self._buffer = bytearray()
        self._at = 0  # how far the buffer is read
        self._poll = select.poll()
        self._poll.register(stream, select.POLLIN)

    def fileno(self) -> int:
        """Return the descriptor to watch."""
        return self._stream.fileno()

    def is_stale(self) -> bool:
        """Say whether the other side has closed, or said something that nobody asked for. Between two calls only."""
        return bool(self._poll.poll(0)) or self._at < len(self._buffer)

    def call(self, *commands: Command) -> list[Any]:
        """Send commands together and return their replies, each of which may be a Refused."""
        extra_seconds = self.send(*commands)
        return [self.receive(extra_seconds) for _ in commands]

    def send(self, *commands: Command) -> float:
        """Send commands whose replies are received later; return what time more their size may cost, there as well as here."""
        data = b"".join(_packed(command) for command in commands)
        extra_seconds = len(data) / _FLOOR_BYTES_PER_SECOND
        self._stream.settimeout(self._timeout_seconds + extra_seconds)
        try:
            self._stream.sendall(data)
        except OSError as error:
            raise LinkLost(_said(error, "it takes nothing")) from error
        return extra_seconds

    def receive(self, extra_seconds: float = 0.0) -> Any:
        """Return the next reply: bytes, a number, None, a list of such, or Refused; `extra_seconds`: it may come later."""
        self._stream.settimeout(self._timeout_seconds + extra_seconds)
        reply = self._reply()
        del self._buffer[: self._at]
        self._at = 0
        return reply

    def tls(self) -> tuple[str, float] | None:
        """Return the version of TLS and when the server's certificate ends, in seconds since 1970; None without TLS."""
        if not isinstance(self._stream, ssl.SSLSocket):
            return None
        certificate = self._stream.getpeercert() or {}
        ends = ssl.cert_time_to_seconds(str(certificate["notAfter"]))
        return str(self._stream.version()), float(ends)

    def close(self) -> None:
        """Let go. In the child of a fork the parent's connection goes on."""
        self._stream.close()

    def _reply(self) -> Any:
        # One function with few calls: a supervisor of 2,000 nodes reads ten thousand of these a second.
        end = self._buffer.find(b"\r\n", self._at)
        if end < 0:
            end = self._end_of_line()
        kind, rest = self._buffer[self._at], self._buffer[self._at + 1 : end]
        self._at = end + 2
        if kind == _TEXT:
            return bytes(rest)
        if kind == _ERROR:
            return Refused(rest.decode(errors="replace"))
        try:
            number = int(rest)
        except ValueError as error:
            raise NotRedis(f"it says {bytes(rest[:40])!r} for a number") from error
        if kind == _BULK:
            return None if number < 0 else self._bulk(number)
        if kind == _NUMBER:
            return number
        if kind == _LIST:
            return None if number < 0 else [self._reply() for _ in range(number)]
        raise NotRedis(f"it says {bytes(rest[:40])!r}")

    def _end_of_line(self) -> int:
        """Wait for the end of the line that has begun."""
        while (end := self._buffer.find(b"\r\n", self._at)) < 0:
            begun = bytes(self._buffer[self._at : self._at + 40])
            if len(self._buffer) - self._at > _READ_BYTES or (begun and begun[0] not in _KINDS):
                raise NotRedis(f"it says {begun!r}")
            self._fill(_READ_BYTES)
        return end

    def _bulk(self, length: int) -> bytes:
        end = self._at + length
        while (missing := end + 2 - len(self._buffer)) > 0:
            self._fill(max(missing, _READ_BYTES))
        with memoryview(self._buffer) as view:
            payload = bytes(view[self._at : end])
        self._at = end + 2
        return payload

    def _fill(self, most_bytes: int) -> None:
        try:
            data = self._stream.recv(min(most_bytes, 1 << 20))
        except OSError as error:
            if isinstance(error, ssl.SSLError) and not isinstance(error, TimeoutError):
                raise  # it says why, and the opener knows which setting is meant
            raise LinkLost(_said(error, "it does not answer")) from error
        if not data:
            raise LinkLost("it closed the connection")
        self._buffer += data


class Names:
    """Addresses behind a host's name, found in bounded time: a resolver waits for minutes when its network is cut."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def address_of(self, host: str, timeout_seconds: float) -> str:
        """Return an address; the last one known when asking takes too long. Raises LinkLost when none is known."""
        try:
            return str(ipaddress.ip_address(host))
        except ValueError:
            pass
        asking = threading.Thread(target=self._ask, args=(host,), name="resolver", daemon=True)
        asking.start()
        asking.join(timeout_seconds)
        if host not in self._known:
            raise LinkLost(f"no address is known for the name {host!r}")
        return self._known[host]

    def _ask(self, host: str) -> None:
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError:
            return  # the one known stays, if there is any
        self._known[host] = str(found[0][4][0])


def connected(
    address: tuple[str, int],
    *,
    names: Names,
    tls: ssl.SSLContext | None,
    timeout_seconds: float,
) -> Link:
    """Connect to (host, port). Raises LinkLost, and ssl.SSLError for a certificate that is not to be believed."""
    host, port = address
    until = time.monotonic() + timeout_seconds
    try:
        stream = socket.create_connection(
            (names.address_of(host, timeout_seconds), port), max(until - time.monotonic(), 0.05)
        )
    except OSError as error:
        raise LinkLost(_said(error, "it cannot be reached")) from error
    try:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if tls is not None:
            stream.settimeout(timeout_seconds)
            stream = tls.wrap_socket(stream, server_hostname=host)
            _take_verdict(stream)
    except (LinkLost, NotRedis):
        stream.close()
        raise
    except ssl.SSLError:
        stream.close()
        raise
    except TimeoutError as error:
        stream.close()
        raise LinkLost("it does not answer in TLS; is its port a TLS port?") from error
    except OSError as error:
        stream.close()
        raise LinkLost(_said(error, "it ended the connection")) from error
    return Link(stream, timeout_seconds=timeout_seconds)


def _take_verdict(stream: ssl.SSLSocket) -> None:
    """Raise ssl.SSLError if the server refuses our certificate: in TLS 1.3 it says so after the handshake.

    Told to a connection that has sent something meanwhile, the refusal would be lost in the reset.
    """
    if stream.version() != "TLSv1.3":
        return
    select.select([stream], [], [], _VERDICT_SECONDS)
    stream.settimeout(0)
    with contextlib.suppress(ssl.SSLWantReadError):
        if not stream.recv(1):
            raise LinkLost("it closed the connection")
        raise NotRedis("it speaks before it is asked")


def _packed(command: Command) -> bytes:
    parts = [b"*%d\r\n" % len(command)]
    for word in command:
        data = word if isinstance(word, bytes) else str(word).encode()
        parts += (b"$%d\r\n" % len(data), data, b"\r\n")
    return b"".join(parts)


def _said(error: OSError, otherwise: str) -> str:
    return f"{otherwise} in time" if isinstance(error, TimeoutError) else f"{otherwise}: {error}"
