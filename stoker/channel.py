"""The rank's end of the channel to Stoker: reports out, requests in (docs/contract.md).

The law: supervision never slows training and never stops it. Once the channel is made, nothing here blocks or
raises: a report that does not fit is dropped and counted, and an agent that went away is no error. The trainer's own thread is the
only one. Standard library only, so that another trainer may copy this file.
"""

import json
import math
import os
import select
import socket
from collections.abc import Mapping
from typing import Any, Final

VARIABLE: Final = "STOKER_CHANNEL"
MAX_PACKET_BYTES: Final = 64 * 1024
# Read per call, so that many requests cannot delay a step. Chosen, not measured.
_MAX_PACKETS_AT_ONCE: Final = 64
# Far more than a trainer has. Chosen, not measured.
_MAX_TEMPLATES: Final = 100

# Made once: in each report, the two flags' own `|` costs half as much as the call that they are for.
_SEND_FLAGS: Final = int(socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
# Made once: json.dumps with arguments makes an encoder per call, which costs as much as the encoding.
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, ensure_ascii=True).encode
# Kind, names and types of values of a report -> its text, with a place for each value.
_templates: Final[dict[tuple[object, ...], str]] = {}


class Channel:
    """Reports and requests of one rank. Without a socket it does nothing, so a trainer runs without Stoker too.

    `dropped` counts reports that were not sent: no room, too large, not JSON.
    """

    def __init__(self, connection: socket.socket | None = None) -> None:
        if connection is not None:
            connection.setblocking(False)
        self._socket = connection
        self._readable = select.poll()
        if connection is not None:
            self._readable.register(connection, select.POLLIN)
        self.dropped = 0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> "Channel":
        """Open the channel that STOKER_CHANNEL names; one that does nothing when it names none that is open."""
        number = (os.environ if environment is None else environment).get(VARIABLE, "")
        if not number.isdecimal():
            return cls()
        try:
            connection = socket.socket(fileno=int(number))
        except (OSError, OverflowError, ValueError):
            return cls()
        if connection.family != socket.AF_UNIX or connection.type != socket.SOCK_SEQPACKET:
            # The descriptor belongs to other code and must stay open.
            connection.detach()
            return cls()
        # Data loaders and compilers that the trainer starts must not keep the channel open after its death.
        connection.set_inheritable(False)
        return cls(connection)

    @property
    def connected(self) -> bool:
        """Whether the other end is open, as far as known."""
        return self._socket is not None

    def report(self, kind: str, **fields: Any) -> None:
        """Send one report; fields that are None are left out. NaN and infinities become strings."""
        if self._socket is not None:
            self._send(_line(kind, fields))

    def requests(self) -> list[dict[str, Any]]:
        """Return the requests received since the last call, in order. Lines that are no request are skipped."""
        requests: list[dict[str, Any]] = []
        # Most steps find nothing.
        if self._socket is None or not self._readable.poll(0):
            return requests
        for _ in range(_MAX_PACKETS_AT_ONCE):
            packet = self._receive()
            if not packet:
                break
            requests.extend(_read_requests(packet))
        return requests

    def close(self) -> None:
        """End the channel; reports go nowhere from now on."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, packet: bytes | None) -> None:
        if packet is None or len(packet) > MAX_PACKET_BYTES or self._socket is None:
            self.dropped += 1
            return
        try:
            self._socket.send(packet, _SEND_FLAGS)
        except OSError:
            # The buffer is full, or the agent is gone. A request may still be unread, so only reading ends the channel.
            self.dropped += 1

    def _receive(self) -> bytes:
        """Return one packet; empty when there is none, or the channel has ended."""
        # Polled first: most steps find nothing, and an exception costs three times as much.
        if self._socket is None or not self._readable.poll(0):
            return b""
        try:
            packet = self._socket.recv(MAX_PACKET_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return b""
        except OSError:
            packet = b""
        if not packet:
            self.close()
        return packet


def _line(kind: str, fields: Mapping[str, Any]) -> bytes | None:
    """Return a report as bytes; None when JSON cannot express a field."""
    try:
        return _filled(kind, fields) or _encoded(kind, fields)
    except (ValueError, TypeError, RecursionError):
        return None


def _filled(kind: str, fields: Mapping[str, Any]) -> bytes | None:
    """Return a report of numbers alone by filling in a template, in a third of an encoder's time; None: it has others."""
    values = tuple(fields.values())
    form = (kind, *fields, *map(type, values))
    template = _templates.get(form)
    if template is None:
        template = _template(kind, fields)
        if len(_templates) < _MAX_TEMPLATES:
            _templates[form] = template
    if not template or not _is_finite(values):
        return None
    # True becomes true; all else is lower case already.
    return (template % values).lower().encode()


def _is_finite(values: tuple[Any, ...]) -> bool:
    try:
        return math.isfinite(sum(values))
    except OverflowError:
        # A whole number beyond all floats: the encoder writes it.
        return False


def _template(kind: str, fields: Mapping[str, Any]) -> str:
    """Return the text of a report with a place for each value; empty when its values or letters need the encoder."""
    names = [_encode(name).replace("%", "%%") for name in fields]
    text = f'{{"kind":{_encode(kind)}' + "".join(f",{name}:%r" for name in names) + "}\n"
    is_plain = all(type(value) in (float, int, bool) for value in fields.values())
    return text if is_plain and "%" not in kind and text == text.lower() else ""


def _encoded(kind: str, fields: Mapping[str, Any]) -> bytes:
    report = {"kind": kind, **{name: v for name, v in fields.items() if v is not None}}
    try:
        return (_encode(report) + "\n").encode()
    except ValueError:
        # Only a report with NaN or an infinity pays for converting every field.
        return (_encode(_plain(report)) + "\n").encode()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _read_requests(packet: bytes) -> list[dict[str, Any]]:
    requests = []
    for line in packet.splitlines():
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(request, dict) and request.get("kind") == "request":
            requests.append(request)
    return requests
