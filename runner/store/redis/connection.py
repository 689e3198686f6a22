"""Connections to a Redis server: commands out, replies in, and no wait without an end.

redis-py packs the commands and parses the replies (hiredis does it, in C). Its clients and pools are not used: they connect and
try again as they see fit, for 34 s on a cut link, and a store must know what was acknowledged and what was not.
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

from redis import connection as redis_py
from redis import exceptions

Command = Sequence[bytes | str | int]

# the protocol that every server speaks, and in which nothing comes unasked
_RESP2 = 2
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

    def __init__(self, connection: _Connection, *, timeout_seconds: float) -> None:
        """`timeout_seconds`: how long the server may be silent in the middle of a call."""
        self._connection = connection
        self._timeout_seconds = timeout_seconds
        self._poll = select.poll()
        self._poll.register(connection.stream, select.POLLIN)

    def fileno(self) -> int:
        """Return the descriptor to watch."""
        return self._connection.stream.fileno()

    def is_stale(self) -> bool:
        """Say whether the other side has closed, or said something that nobody asked for. Between two calls only."""
        return bool(self._poll.poll(0))

    def call(self, *commands: Command) -> list[Any]:
        """Send commands together and return their replies, each of which may be a Refused."""
        extra_seconds = self.send(*commands)
        return [self.receive(extra_seconds) for _ in commands]

    def send(self, *commands: Command) -> float:
        """Send commands whose replies are received later; return what time more their size may cost, there as well as here."""
        packed = self._connection.pack_commands(commands)
        extra_seconds = sum(map(len, packed)) / _FLOOR_BYTES_PER_SECOND
        self._connection.stream.settimeout(self._timeout_seconds + extra_seconds)
        try:
            self._connection.send_packed_command(packed, check_health=False)
        except exceptions.RedisError as error:
            raise _translated(error, "it takes nothing") from error
        return extra_seconds

    def receive(self, extra_seconds: float = 0.0) -> Any:
        """Return the next reply: bytes, a number, None, a list of such, or Refused; `extra_seconds`: it may come later."""
        patience_seconds = self._timeout_seconds + extra_seconds
        try:
            return self._connection.read_response(disable_decoding=True, timeout=patience_seconds)
        except exceptions.RedisError as error:
            wrong = _translated(error, "it does not answer")
            if isinstance(wrong, Refused):
                return wrong
            raise wrong from error

    def tls(self) -> tuple[str, float] | None:
        """Return the version of TLS and when the server's certificate ends, in seconds since 1970; None without TLS."""
        stream = self._connection.stream
        if not isinstance(stream, ssl.SSLSocket):
            return None
        certificate = stream.getpeercert() or {}
        ends = ssl.cert_time_to_seconds(str(certificate["notAfter"]))
        return str(stream.version()), float(ends)

    def close(self) -> None:
        """Let go. In the child of a fork the parent's connection goes on."""
        self._connection.disconnect()


class _Connection(redis_py.Connection):
    """redis-py's connection, over a socket that is open already and is opened only once."""

    def __init__(self, stream: socket.socket, *, timeout_seconds: float) -> None:
        self.stream = stream
        super().__init__(socket_timeout=timeout_seconds, protocol=_RESP2, driver_info=None)
        self.connect()

    def _connect(self) -> socket.socket:
        return self.stream


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
            # the one known stays, if there is any
            return
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
    return Link(
        _Connection(stream, timeout_seconds=timeout_seconds), timeout_seconds=timeout_seconds
    )


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


def _translated(error: exceptions.RedisError, otherwise: str) -> Exception:
    """Return what redis-py's error means: Refused, LinkLost, NotRedis, or the ssl.SSLError behind it."""
    if isinstance(error, exceptions.ResponseError) or error.status_code is not None:
        return Refused(" ".join(filter(None, (error.status_code, str(error)))))
    if isinstance(error, exceptions.InvalidResponse):
        return NotRedis(f"it says what is no reply ({error})")
    cause = error.__context__
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, TimeoutError):
        # it says why, and the opener knows which setting is meant
        return cause
    if "closed" in str(error):
        return LinkLost("it closed the connection")
    is_late = isinstance(error, exceptions.TimeoutError)
    return LinkLost(f"{otherwise} in time" if is_late else f"{otherwise}: {cause or error}")


def _said(error: OSError, otherwise: str) -> str:
    return f"{otherwise} in time" if isinstance(error, TimeoutError) else f"{otherwise}: {error}"
