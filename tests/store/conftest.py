"""The stores that the contract is tested on."""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.store.memory.store import MemoryStore
from runner.store.protocol import Store
from runner.store.redis.store import RedisStore
from runner.store.sqlite.store import SqliteStore
from tests.store.redis_server import CALL_SECONDS, NoRedis, RedisServer
from tests.store.store_harness import SteppedClock, StoreHarness

_CLUSTERS = (f"c{number}" for number in itertools.count(1))


def started(folder: Path, *, tls: bool, acl: bool) -> Iterator[RedisServer]:
    """Start a server for a whole session; skip where there is none, but fail in continuous integration."""
    try:
        server = RedisServer(folder, tls=tls, acl=acl)
    except NoRedis as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    with server:
        yield server


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """Give a real Redis server, with the settings of deploy/redis.conf; a test uses a cluster name of its own."""
    yield from started(tmp_path_factory.mktemp("redis"), tls=False, acl=False)


@pytest.fixture(scope="session")
def secured_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """Give a server that accepts TLS only, asks for certificates, and has the users of deploy/users.acl."""
    yield from started(tmp_path_factory.mktemp("redis-tls"), tls=True, acl=True)


@pytest.fixture(params=["memory", "sqlite", "redis", "redis-tls-acl"])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoreHarness]:
    """Give a store of each kind, and close its handles afterwards."""
    clock = SteppedClock()
    handles: list[Store] = []

    def opened() -> Store:
        handles.append(make())
        return handles[-1]

    make = maker(request, tmp_path, clock)
    yield StoreHarness(open=opened, clock=clock)
    for handle in handles:
        handle.close()


def maker(request: pytest.FixtureRequest, folder: Path, clock: SteppedClock) -> Callable[[], Store]:
    """Return the opener of handles on one fresh store of the requested kind."""
    if request.param == "memory":
        return MemoryStore(clock=clock).another
    if request.param == "sqlite":
        return lambda: SqliteStore(folder / "store", clock=clock)
    name = "redis_server" if request.param == "redis" else "secured_server"
    server: RedisServer = request.getfixturevalue(name)
    cluster = next(_CLUSTERS)
    return lambda: RedisStore(server.spec(), cluster, clock=clock, deadline_seconds=CALL_SECONDS)


@pytest.fixture
def store(harness: StoreHarness) -> Store:
    """Give one handle on a fresh store of each kind."""
    return harness.open()
