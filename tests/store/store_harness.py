"""The store's test harness: a clock that a test sets, and handles on one store of some kind."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from runner.store.protocol import Store


@dataclass
class SteppedClock:
    """A clock that moves only when a test raises `seconds`."""

    seconds: float = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.seconds


@dataclass
class StoreHarness:
    """One store: `open` makes a further handle on it, as another process would have."""

    open: Callable[[], Store]
    clock: SteppedClock


def payloads(store: Store, stream: str, after: int = 0) -> list[bytes]:
    """Return all payloads of a stream past a number."""
    batch = store.read(streams={stream: after}, registers={}, timeout_seconds=0, limit=100_000)
    return [item.payload for item in batch.items.get(stream, ())]


def start_player(*arguments: str | Path) -> subprocess.Popen[str]:
    """Start `player.py` as a process of its own, which reports on stdout."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.store.player", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
