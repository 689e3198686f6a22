"""loopback: a TCP exchange over 127.0.0.1 delivers every byte, fast enough.

Ranks of one node rendezvous and exchange over it. 16 MiB go out, come back as their complement, and are compared with
the expected bytes; both directions count in the speed.
"""

import errno
import hashlib
import socket
import threading
import time
from collections.abc import Callable

from healthchecks.check import Judge, NodeFacts, Verdict
from healthchecks.declaration import CHOSEN, DEFINED, HealthCheck, at_least, at_most

NAME = "loopback"
ADDRESS = "127.0.0.1"
PAYLOAD_BYTES = 16 << 20
CHUNK_BYTES = 1 << 20
# For one call; chosen: a hundred times what a loaded machine takes.
SOCKET_SECONDS = 10.0
COMPLEMENT = bytes(255 - value for value in range(256))
# Errors of a broken or closed path; any other (no descriptors, no permission) proves nothing about the path.
BROKEN = frozenset(
    {
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EPIPE,
        errno.ENETUNREACH,
        errno.ENETDOWN,
        errno.EHOSTUNREACH,
        errno.EADDRNOTAVAIL,
        errno.ETIMEDOUT,
    }
)


def check(node: NodeFacts, judge: Judge) -> Verdict:
    """Exchange PAYLOAD_BYTES with a thread of this process."""
    payload = hashlib.shake_256(NAME.encode()).digest(PAYLOAD_BYTES)
    try:
        began = time.monotonic()
        answer = exchange(payload)
        seconds = time.monotonic() - began
    except OSError as error:
        broken = error.errno in BROKEN or isinstance(error, TimeoutError)
        note = f"{type(error).__name__}: {error}"
        nothing = judge("loopback.exchanged_bytes", 0 if broken else None, note=note)
        return Verdict(check=NAME, evidence=(nothing,))
    exchanged = len(payload) + len(answer)
    return Verdict(
        check=NAME,
        evidence=(
            judge("loopback.exchanged_bytes", exchanged),
            judge("loopback.wrong_bytes", wrong_bytes(payload, answer)),
            judge("loopback.bytes_per_second", exchanged / seconds),
        ),
    )


def exchange(payload: bytes, convert: Callable[[bytes], bytes] | None = None) -> bytes:
    """Send `payload` to a thread that answers each piece converted (by default: complemented); return all that came back.

    Raises what went wrong first at either end.
    """
    troubles: list[Exception] = []
    with socket.create_server((ADDRESS, 0)) as server:
        server.settimeout(SOCKET_SECONDS)
        with socket.create_connection(server.getsockname(), timeout=SOCKET_SECONDS) as client:
            ends = (
                threading.Thread(target=_answer, args=(server, convert or _complement, troubles)),
                threading.Thread(target=_send, args=(client, payload, troubles)),
            )
            for end in ends:
                end.start()
            try:
                answer = _receive(client, len(payload))
            except OSError as error:
                troubles.append(error)
                answer = b""
            for end in (
                ends
                # each call of theirs is bounded by SOCKET_SECONDS, and they see an end that is gone
            ):
                end.join()
    if troubles:
        raise troubles[0]
    return answer


def wrong_bytes(payload: bytes, answer: bytes) -> int:
    """Count bytes of the answer that are not the complement of the payload; missing and surplus ones count."""
    # By XOR of the whole, while the answering end uses a table of bytes.
    ones = (1 << 8 * len(payload)) - 1
    expected = (int.from_bytes(payload, "little") ^ ones).to_bytes(len(payload), "little")
    if answer == expected:
        return 0
    differing = sum(a != b for a, b in zip(answer, expected, strict=False))
    return differing + abs(len(answer) - len(expected))


def _complement(piece: bytes) -> bytes:
    return piece.translate(COMPLEMENT)


def _answer(
    server: socket.socket, convert: Callable[[bytes], bytes], troubles: list[Exception]
) -> None:
    try:
        peer, _ = server.accept()
        with peer:
            peer.settimeout(SOCKET_SECONDS)
            while piece := peer.recv(CHUNK_BYTES):
                peer.sendall(convert(piece))
    except Exception as error:  # noqa: BLE001 - the top of a thread: raised again by who waits for it
        troubles.append(error)


def _send(client: socket.socket, payload: bytes, troubles: list[Exception]) -> None:
    try:
        client.sendall(payload)
        client.shutdown(socket.SHUT_WR)
    except Exception as error:  # noqa: BLE001 - the top of a thread: raised again by who waits for it
        troubles.append(error)


def _receive(client: socket.socket, num_bytes: int) -> bytes:
    pieces: list[bytes] = []
    missing = num_bytes
    while missing > 0 and (piece := client.recv(min(missing, CHUNK_BYTES))):
        pieces.append(piece)
        missing -= len(piece)
    return b"".join(pieces)


CHECK = HealthCheck(
    name=NAME,
    position=60,
    run=check,
    seconds={"passive": 0.7},
    limits={
        "loopback.exchanged_bytes": at_least(32 << 20, "bytes", "size of the probe", most=32 << 20),
        "loopback.wrong_bytes": at_most(0, "bytes", DEFINED, most=0),
        "loopback.bytes_per_second": at_least(50e6, "bytes/s", CHOSEN, most=1e12),
    },
)
