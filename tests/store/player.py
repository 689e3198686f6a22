"""The other process in the store's tests: `python -m tests.store.player <part> <folder> ...`, one line out per deed.

The safety poll is put out of reach, so that a reader who is not rung for waits for ever.
"""

import os
import random
import sys
import time

import runner.store.sqlite
from runner.errors import Fenced
from runner.store.sqlite import SqliteStore
from runner.store.store import LeaseHeld

runner.store.sqlite.POLL_SECONDS = 3600.0


def echo(folder: str, num_rounds: str) -> None:
    """Wait for each item of `ping` and answer with one in `pong`."""
    store = SqliteStore(folder)
    print("ready", flush=True)
    seen = 0
    while seen < int(num_rounds):
        batch = store.read(streams={"ping": seen}, registers={}, timeout_seconds=60)
        for item in batch.items["ping"]:
            seen = item.number
            store.append("pong", item.payload)


def append(folder: str, stream: str) -> None:
    """Append 1, 2, 3, ... for ever, and say each number once it is acknowledged."""
    store = SqliteStore(folder)
    while True:
        number = store.append(stream, b"%d" % (store.last(stream) + 1))
        print(number, flush=True)


def wait(folder: str, stream: str) -> None:
    """Block on a stream."""
    store = SqliteStore(folder)
    print("ready", flush=True)
    store.read(streams={stream: 0}, registers={}, timeout_seconds=60)
    print("seen", flush=True)


def lead(folder: str, num_appends: str) -> None:
    """Contend for a lease that runs out all the time; append its token under it until that often done."""
    store = SqliteStore(folder, deadline_seconds=10.0)
    dice = random.Random(os.getpid())
    while store.last("tokens") < int(num_appends):
        try:
            lease = store.acquire_lease("lead", f"p{os.getpid()}", ttl_seconds=0.005)
            for _ in range(dice.randrange(1, 6)):
                time.sleep(dice.random() * 0.004)
                store.append("tokens", b"%d" % lease.token, fence=lease)
        except LeaseHeld:
            time.sleep(dice.random() * 0.002)
        except Fenced:
            print("fenced", flush=True)


if __name__ == "__main__":
    {"echo": echo, "append": append, "wait": wait, "lead": lead}[sys.argv[1]](*sys.argv[2:])
