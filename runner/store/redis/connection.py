"""Connections to a Redis server: commands out, replies in, and no wait without a limit.

redis-py packs the commands and parses the replies (in C, by hiredis). Its clients and pools are not used: they retry for
34 s on a cut link, and a store must know which writes were acknowledged.
"""

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

# Every server supports it, and it has no push messages.
_RESP2 = 2
# After a TLS handshake the server sends session tickets, or an alert if it refuses our certificate; chosen.
_ALERT_SECONDS = 0.2
# A large payload may take its size by this rate longer than the time-out; chosen, not measured.
_MIN_BYTES_PER_SECOND = 8e6


class ConnectionLost(Exception):
    """The connection ended, or no reply came in time: the command may or may not have been run."""


class NotRedis(Exception):
    """The peer does not use the Redis protocol."""


class ErrorReply(Exception):
    """The server's reply is an error: `code`, its first word, and the whole `text`."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.code = text.partition(" ")[0]
        self.text = text


class ServerConnection(redis_py.Connection):
    """redis-py's connection over an open socket, owned by one thread; useless after ConnectionLost or NotRedis."""

    def __init__(self, stream: socket.socket, *, timeout_seconds: float) -> None:
        """`timeout_seconds`: how long the server may be silent in the middle of a call."""
        self._stream = stream
        self._timeout_seconds = timeout_seconds
        self._poll = select.poll()
        self._poll.register(stream, select.POLLIN)
        super().__init__(socket_timeout=timeout_seconds, protocol=_RESP2, driver_info=None)
        self.connect()

    def _connect(self) -> socket.socket:
        return self._stream

    def fileno(self) -> int:
        """Return the descriptor to watch."""
        return self._stream.fileno()

    def is_stale(self) -> bool:
        """Return whether the server has closed it or sent unexpected bytes. Between two calls only."""
        return bool(self._poll.poll(0))

    def call(self, *commands: Command) -> list[Any]:
        """Send commands together and return their replies, each of which may be an ErrorReply."""
        extra_seconds = self.send(*commands)
        return [self.receive(extra_seconds) for _ in commands]

    def send(self, *commands: Command) -> float:
        """Send commands whose replies are received later; return the extra seconds that their size may cost."""
        packed = self.pack_commands(commands)
        extra_seconds = sum(map(len, packed)) / _MIN_BYTES_PER_SECOND
        self._stream.settimeout(self._timeout_seconds + extra_seconds)
        try:
            self.send_packed_command(packed, check_health=False)
        except exceptions.RedisError as error:
            raise _translated(error, "it takes nothing") from error
        return extra_seconds

    def receive(self, extra_seconds: float = 0.0) -> Any:
        """Return the next reply: bytes, a number, None, a list of such, or ErrorReply; `extra_seconds`: it may come later."""
        limit_seconds = self._timeout_seconds + extra_seconds
        try:
            return self.read_response(disable_decoding=True, timeout=limit_seconds)
        except exceptions.RedisError as error:
            wrong = _translated(error, "it does not answer")
            if isinstance(wrong, ErrorReply):
                return wrong
            raise wrong from error

    def tls(self) -> tuple[str, float] | None:
        """Return the version of TLS and when the server's certificate ends, in seconds since 1970; None without TLS."""
        if not isinstance(self._stream, ssl.SSLSocket):
            return None
        certificate = self._stream.getpeercert() or {}
        ends = ssl.cert_time_to_seconds(str(certificate["notAfter"]))
        return str(self._stream.version()), float(ends)

    def close(self) -> None:
        """Disconnect. In the child of a fork the parent's connection stays open."""
        self.disconnect()


class HostResolver:
    """Resolves host names in bounded time: the system's resolver waits for minutes when its network is cut."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def address_of(self, host: str, timeout_seconds: float) -> str:
        """Return an address, the last known one after the time-out. Raises ConnectionLost when none is known."""
        try:
            return str(ipaddress.ip_address(host))
        except ValueError:
            pass
        thread = threading.Thread(target=self._resolve, args=(host,), name="resolver", daemon=True)
        thread.start()
        thread.join(timeout_seconds)
        if host not in self._known:
            raise ConnectionLost(f"no address is known for the name {host!r}")
        return self._known[host]

    def _resolve(self, host: str) -> None:
        try:
            addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError:
            return
        self._known[host] = str(addresses[0][4][0])


def connected(
    address: tuple[str, int],
    *,
    resolver: HostResolver,
    tls: ssl.SSLContext | None,
    timeout_seconds: float,
) -> ServerConnection:
    """Connect to (host, port). Raises ConnectionLost, NotRedis, and ssl.SSLError for a certificate that is not trusted."""
    host, port = address
    until = time.monotonic() + timeout_seconds
    try:
        stream = socket.create_connection(
            (resolver.address_of(host, timeout_seconds), port), max(until - time.monotonic(), 0.05)
        )
    except OSError as error:
        raise ConnectionLost(_reason(error, "it cannot be reached")) from error
    try:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if tls is not None:
            stream.settimeout(timeout_seconds)
            stream = tls.wrap_socket(stream, server_hostname=host)
            _check_certificate_accepted(stream)
    except (ConnectionLost, NotRedis, ssl.SSLError):
        stream.close()
        raise
    except TimeoutError as error:
        stream.close()
        raise ConnectionLost("it does not answer in TLS; is its port a TLS port?") from error
    except OSError as error:
        stream.close()
        raise ConnectionLost(_reason(error, "it ended the connection")) from error
    return ServerConnection(stream, timeout_seconds=timeout_seconds)


def parse_info(reply: bytes) -> dict[str, str]:
    """Return the fields of a reply to INFO."""
    lines = (line.partition(":") for line in reply.decode().splitlines())
    return {name: value for name, separator, value in lines if separator}


def _check_certificate_accepted(stream: ssl.SSLSocket) -> None:
    """Raise ssl.SSLError if the server refuses our certificate: in TLS 1.3 its alert comes after the handshake.

    Wait for it before the first command, whose reset would hide the alert.
    """
    if stream.version() != "TLSv1.3":
        return
    select.select([stream], [], [], _ALERT_SECONDS)
    stream.settimeout(0)
    with contextlib.suppress(ssl.SSLWantReadError):
        if not stream.recv(1):
            raise ConnectionLost("it closed the connection")
        raise NotRedis("it sends data before a request")


def _translated(error: exceptions.RedisError, otherwise: str) -> Exception:
    """Translate redis-py's error to ErrorReply, ConnectionLost, NotRedis, or the ssl.SSLError behind it."""
    if isinstance(error, exceptions.ResponseError) or error.status_code is not None:
        return ErrorReply(" ".join(filter(None, (error.status_code, str(error)))))
    if isinstance(error, exceptions.InvalidResponse):
        return NotRedis(f"it says what is no reply ({error})")
    cause = error.__context__
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, TimeoutError):
        return cause
    if "closed" in str(error):
        return ConnectionLost("it closed the connection")
    is_late = isinstance(error, exceptions.TimeoutError)
    return ConnectionLost(f"{otherwise} in time" if is_late else f"{otherwise}: {cause or error}")


def _reason(error: OSError, otherwise: str) -> str:
    return f"{otherwise} in time" if isinstance(error, TimeoutError) else f"{otherwise}: {error}"
