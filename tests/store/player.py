"""The other process in the store's tests: `python -m tests.store.player <part> <store> ...`, one line out per deed.

`<store>` is a folder for SQLite, or `redis://HOST:PORT/CLUSTER`.

The safety poll is put far off, so that a reader that gets no notification blocks for ever.
"""

import os
import random
import sys
import time

import runner.store.redis.store
import runner.store.sqlite.store
from runner.errors import Fenced, StoreUnavailable
from runner.facts.specs.cluster import StoreSpec
from runner.store.protocol import LeaseHeld, Store
from runner.store.redis.store import RedisStore
from runner.store.sqlite.store import SqliteStore

runner.store.sqlite.store.POLL_SECONDS = 3600.0
runner.store.redis.store.SLICE_SECONDS = 3600.0


def opened(where: str, *, deadline_seconds: float = 10.0) -> Store:
    """Open the store that is meant."""
    if where.startswith("redis://"):
        address, _, cluster = where.removeprefix("redis://").partition("/")
        return RedisStore(StoreSpec(address=address), cluster, deadline_seconds=deadline_seconds)
    return SqliteStore(where, deadline_seconds=deadline_seconds)


def echo(where: str, num_rounds: str) -> None:
    """Wait for each item of `ping` and answer with one in `pong`."""
    store = opened(where)
    print("ready", flush=True)
    seen = 0
    while seen < int(num_rounds):
        batch = store.read(streams={"ping": seen}, registers={}, timeout_seconds=60)
        for item in batch.items["ping"]:
            seen = item.number
            store.append("pong", item.payload)


def append(where: str, stream: str) -> None:
    """Append 1, 2, 3, ... for ever, and print each number once it is acknowledged."""
    store = opened(where)
    while True:
        number = store.append(stream, b"%d" % (store.last(stream) + 1))
        print(number, flush=True)


def insist(where: str, stream: str) -> None:
    """Append 1, 2, 3, ... for ever at their numbers, again until acknowledged, and print each number then."""
    store = opened(where)
    number = 0
    while True:
        try:
            number = number or store.last(stream)
            store.append(stream, b"%d" % (number + 1), at=number + 1)
        except StoreUnavailable:
            time.sleep(0.01)
            continue
        number += 1
        print(number, flush=True)


def follow(where: str, stream: str) -> None:
    """Read a stream for ever, through outages, and print each number."""
    store = opened(where)
    seen = 0
    while True:
        try:
            batch = store.read(streams={stream: seen}, registers={}, timeout_seconds=60)
        except StoreUnavailable:
            time.sleep(0.01)
            continue
        for item in batch.items.get(stream, ()):
            seen = item.number
            print(seen, item.payload.decode(), flush=True)


def wait(where: str, stream: str) -> None:
    """Block on a stream."""
    store = opened(where)
    print("ready", flush=True)
    store.read(streams={stream: 0}, registers={}, timeout_seconds=60)
    print("seen", flush=True)


def lead(where: str, num_appends: str) -> None:
    """Contend for a lease that runs out all the time; append its token under it until that often done."""
    store = opened(where)
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
    {
        "echo": echo,
        "append": append,
        "insist": insist,
        "follow": follow,
        "wait": wait,
        "lead": lead,
    }[sys.argv[1]](*sys.argv[2:])
