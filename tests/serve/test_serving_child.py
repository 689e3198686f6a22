"""What serves beside a supervisor is a process of its own, which comes back when it dies and ends with its parent."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.serve.serving_child import ServingChild

WAIT_SECONDS = 60.0
# Answers one connection after the other on the socket that it inherits, with its pid; ends with its parent.
SERVER = """
import os, socket, sys, threading
from runner.serve.serving_child import on_end_of_parent
on_end_of_parent(lambda: os._exit(0))
listening = socket.socket(fileno=int(sys.argv[1]))
while True:
    connection, _ = listening.accept()
    connection.sendall(str(os.getpid()).encode())
    connection.close()
"""
# Leads with such a child until it is killed.
PARENT = """
import socket, sys, time
from runner.serve.serving_child import ServingChild
listening = socket.create_server(("127.0.0.1", 0))
number = listening.fileno()
with ServingChild("server", [sys.executable, "-c", sys.argv[1], str(number)], passed=(number,)):
    print(listening.getsockname()[1], flush=True)
    time.sleep(600)
"""


def until(holds: Callable[[], bool]) -> None:
    """Wait until this holds."""
    end = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def ask(port: int) -> int:
    """Return the pid of the server; waits until one answers."""
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS) as connection:
        return int(connection.recv(100))


def is_gone(pid: int) -> bool:
    """Whether a process has ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def test_a_child_that_dies_comes_back_on_the_same_socket(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Requests wait meanwhile, the log says how it ended, and nothing is left when the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        number, port = listening.fileno(), listening.getsockname()[1]
        command = [sys.executable, "-c", SERVER, str(number)]
        with ServingChild("server", command, passed=(number,), first_wait_seconds=0.01):
            first = ask(port)
            os.kill(first, signal.SIGKILL)
            until(lambda: is_gone(first))
            second = ask(port)
            assert second != first
        assert is_gone(second)
    assert "server: its process ended with code -9; starting it again in 0.01 s" in caplog.text


def test_a_command_that_cannot_be_started_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """Each try is logged with its reason, and the caller goes on."""
    with ServingChild("server", ["/nowhere/program"], first_wait_seconds=0.01):
        until(lambda: caplog.text.count("cannot start its process") > 1)
    assert "/nowhere/program" in caplog.text


def test_waits_grow_while_it_ends_soon_and_begin_again_after_a_long_life(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A server that is killed once a day is back at once each time."""
    with ServingChild("soon", ["false"], first_wait_seconds=0.01):
        until(
            lambda: (
                "soon: its process ended with code 1; starting it again in 0.04 s" in caplog.text
            )
        )
    often, first = (
        "late: its process ended",
        "late: its process ended with code 0; starting it again in 0.01 s",
    )
    with ServingChild("late", ["sleep", "0.2"], first_wait_seconds=0.01, longest_wait_seconds=0.1):
        until(lambda: caplog.text.count(often) > 2)
    assert caplog.text.count(often) == caplog.text.count(first)


def test_it_ends_with_a_parent_that_is_killed() -> None:
    """And frees the port."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, SERVER], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        port = int(parent.stdout.readline())
        pid = ask(port)
        parent.kill()
    until(lambda: is_gone(pid))
    socket.create_server(("127.0.0.1", port)).close()
