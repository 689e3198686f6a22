"""The rank's end of the channel: it never blocks, never raises, and what it sends follows the contract."""

import json
import math
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from stoker.channel import MAX_PACKET_BYTES, VARIABLE, Channel

STEP = {
    "step": 123,
    "loss": 2.345678,
    "grad_norm": 0.98765,
    "local_grad_norm": 0.12345,
    "compute_seconds": 0.123456,
    "data_wait_seconds": 0.000123,
    "step_seconds": 0.23456,
    "lr": 0.000987,
    "skipped": False,
    "tokens_per_second": 4321.5,
    "model_tflops_per_second": 0.0234,
    "peak_memory_bytes": 123456789,
}


@pytest.fixture
def ends() -> Iterator[tuple[Channel, socket.socket]]:
    """A channel, and the supervisor's end of it."""
    rank, peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    channel = Channel(rank)
    yield channel, peer
    channel.close()
    peer.close()


def received(peer: socket.socket) -> list[dict[str, Any]]:
    """Read all reports that are waiting."""
    peer.setblocking(False)
    reports: list[dict[str, Any]] = []
    while True:
        try:
            packet = peer.recv(MAX_PACKET_BYTES + 1)
        except BlockingIOError:
            return reports
        if not packet:
            return reports
        reports += [json.loads(line) for line in packet.splitlines()]


def test_report(ends: tuple[Channel, socket.socket]) -> None:
    """A report is one line of JSON with its kind; fields without a value are left out."""
    channel, peer = ends
    channel.report("step", **STEP, loss_scale=None)
    assert received(peer) == [{"kind": "step", **STEP}]
    assert channel.dropped == 0


def test_numbers_json_does_not_know(ends: tuple[Channel, socket.socket]) -> None:
    """NaN and infinities travel as strings, however deep they sit."""
    channel, peer = ends
    channel.report("step", loss=math.nan, grad_norm=math.inf, values={"a": [-math.inf, (1.5,)]})
    assert received(peer) == [
        {
            "kind": "step",
            "loss": "NaN",
            "grad_norm": "Infinity",
            "values": {"a": ["-Infinity", [1.5]]},
        }
    ]


def test_requests(ends: tuple[Channel, socket.socket]) -> None:
    """Requests come out in order, several to a packet or one, and the reader skips malformed ones between them."""
    channel, peer = ends
    assert channel.requests() == []
    lines = [{"kind": "request", "id": f"a{n}", "request": "checkpoint"} for n in range(3)]
    peer.send("\n".join(json.dumps(line) for line in lines[:2]).encode() + b"\n")
    peer.send(b'not JSON\n[1]\n"x"\n\xff\xfe\n' + b'{"kind": "other"}\n' + b"[" * 5000)
    peer.send(json.dumps(lines[2]).encode())
    assert channel.requests() == lines
    assert channel.requests() == []
    assert channel.connected


def test_full_channel_drops(ends: tuple[Channel, socket.socket]) -> None:
    """Without a reader, reports are dropped and counted at once, and flow again when there is room."""
    channel, peer = ends
    for step in range(5000):
        channel.report("step", step=step)
    assert 0 < channel.dropped < 5000
    assert len(received(peer)) == 5000 - channel.dropped
    channel.report("step", step=6000)
    assert received(peer) == [{"kind": "step", "step": 6000}]


def test_unsendable_reports_are_dropped(ends: tuple[Channel, socket.socket]) -> None:
    """The channel counts reports that are too large or not JSON, and does not raise."""
    channel, peer = ends
    endless: list[Any] = []
    endless.append(endless)
    channel.report("step", text="x" * MAX_PACKET_BYTES)
    channel.report("step", value=object())
    channel.report("step", value=endless)
    assert channel.dropped == 3
    assert received(peer) == []
    channel.report("step", text="x" * (MAX_PACKET_BYTES - 100))
    assert len(received(peer)) == 1


def test_closed_peer_is_survived(ends: tuple[Channel, socket.socket]) -> None:
    """A closed peer causes no error; the rank still reads its earlier requests."""
    channel, peer = ends
    request = {"kind": "request", "id": "a1", "request": "stop"}
    peer.send(json.dumps(request).encode())
    peer.close()
    channel.report("step", step=1)
    channel.report("step", step=2)
    assert channel.requests() == [request]
    assert channel.requests() == []
    assert not channel.connected
    channel.report("step", step=3)
    assert channel.dropped == 2


@pytest.mark.parametrize("number", ["", "x", "-1", "999999", str(2**70), "9" * 5000])
def test_no_channel(number: str) -> None:
    """Without a channel, or with an invalid number, reports are dropped and there are no requests."""
    channel = Channel.from_environment({VARIABLE: number})
    channel.report("hello", requests=["stop"])
    assert channel.requests() == []
    assert not channel.connected
    assert channel.dropped == 0


def test_foreign_descriptor_stays_open() -> None:
    """The rank leaves a descriptor open that is no such socket."""
    one, other = socket.socketpair()
    reader, writer = os.pipe()
    for number in (one.fileno(), reader):
        assert not Channel.from_environment({VARIABLE: str(number)}).connected
        os.fstat(number)
    one.close()
    other.close()
    os.close(reader)
    os.close(writer)


def test_inherited_channel() -> None:
    """A rank started with the descriptor in its environment reports through it; its children do not inherit it."""
    rank, peer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    program = (
        "import os, subprocess, sys; from stoker.channel import Channel\n"
        "channel = Channel.from_environment()\n"
        "number = int(os.environ['STOKER_CHANNEL'])\n"
        "look = f'import os; os.fstat({number})'\n"
        "code = subprocess.run([sys.executable, '-c', look], close_fds=False, stderr=-3).returncode\n"
        "channel.report('hello', requests=['stop'], child=code)\n"
    )
    with rank, peer:
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, VARIABLE: str(rank.fileno())},
            pass_fds=[rank.fileno()],
            check=True,
            timeout=30,
        )
        assert received(peer) == [{"kind": "hello", "requests": ["stop"], "child": 1}]


@pytest.mark.parametrize(
    "fields",
    [
        {"zero": -0.0, "small": 5e-324, "large": 1e300, "third": 1 / 3, "yes": True, "no": False},
        {"count": 10**30, "beyond": 10**400, "float": 1.0},
        {"most": 1.7e308, "and": 1.7e308},
        {"Capital": 1, "100 %": 2, 'a "name"\n': True},
        {"number": 1.5, "text": 'é "text"\n', "list": [1, {"deep": None}], "half": np.float64(0.5)},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_report_has_the_bytes_of_json(
    ends: tuple[Channel, socket.socket], fields: dict[str, Any]
) -> None:
    """Numbers, names and texts of every kind are written as an encoder writes them, in the first report and in later ones."""
    channel, peer = ends
    expected = json.dumps({"kind": "step", **fields}, separators=(",", ":"))
    for _ in range(2):
        channel.report("step", **fields)
        assert peer.recv(MAX_PACKET_BYTES) == expected.encode() + b"\n"
