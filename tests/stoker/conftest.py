"""A run whose rank an agent has started, in this process."""

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.channel import Channel
from stoker.run import Run
from tests.stoker.agent import Agent


@pytest.fixture
def supervised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Run, Agent]]:
    """A run whose rank an agent has started, alone in its gang."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for name, value in {
        "STOKER_CHECKPOINTS": str(tmp_path / "checkpoints"),
        "STOKER_ATTEMPT": "1.1.0",
        "STOKER_GENERATION": "3",
        "STOKER_RUN": "tiny",
        "STOKER_RESUME": "",
        "WORLD_SIZE": "1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("STOKER_SEAL_KEYS", raising=False)
    (tmp_path / "checkpoints").mkdir()
    monkeypatch.setattr("atexit.register", lambda function: function)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    run = Run(Channel(ours), fallback=tmp_path / "alone")
    # What `stoker.attach()` returns.
    monkeypatch.setattr("stoker.run._attached", run)
    agent = Agent(theirs)
    yield run, agent
    theirs.close()
    ours.close()
