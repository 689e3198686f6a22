"""Random histories: a store of each kind behaves as lists and dicts in plain Python do."""

import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from runner.errors import Fenced, StoreCorrupt
from runner.store.memory.store import MemoryStore
from runner.store.protocol import Item, Lease, LeaseHeld, Store, is_volatile_register
from runner.store.redis.store import RedisStore
from runner.store.sqlite.store import SqliteStore
from tests.store.redis_server import CALL_SECONDS, RedisServer
from tests.store.store_harness import SteppedClock

ALL_STREAMS = ("inbox", "journal", "heartbeats.n1", "heartbeats")
STREAMS = st.sampled_from(ALL_STREAMS)
REGISTER_NAMES = ("assignment.n1", "assignment.n2", "status", "status.x")
REGISTERS = st.sampled_from(REGISTER_NAMES)
PAYLOADS = st.binary(max_size=40)
HOLDERS = st.sampled_from(["a", "b", "c"])
TTL_SECONDS = 5.0


class StoreMachine(RuleBasedStateMachine):
    """Does the same to a store, through two handles in turn, and to a model of it."""

    make: Callable[[SteppedClock], tuple[Store, Store, Callable[[], None]]]

    @initialize()
    def begin(self) -> None:
        """Start with nothing."""
        self.clock = SteppedClock()
        self.store, self.other, self.clean_up = type(self).make(self.clock)
        self.items: dict[str, list[Item]] = {}
        self.ends: dict[str, int] = {}
        self.values: dict[str, bytes] = {}
        self.versions: dict[str, int] = {}
        self.leases: list[Lease] = []
        self.holder: str | None = None
        self.token = 0
        self.expires_seconds = 0.0

    def swap(self) -> Store:
        """Use the two handles in turn."""
        self.store, self.other = self.other, self.store
        return self.store

    def fence(self, data: st.DataObject) -> tuple[Lease | None, bool]:
        """Choose a lease, current, stale or none, and return it with whether it holds."""
        lease = data.draw(st.sampled_from([None, *self.leases]))
        holds = lease is None or (lease.holder, lease.token) == (self.holder, self.token)
        return lease, holds

    @rule(data=st.data(), stream=STREAMS, payloads=st.lists(PAYLOADS, max_size=4))
    def append_many(self, data: st.DataObject, stream: str, payloads: list[bytes]) -> None:
        """Append several."""
        lease, holds = self.fence(data)
        if not holds:
            with pytest.raises(Fenced):
                self.swap().append_many(stream, payloads, fence=lease)
            return
        end = self.swap().append_many(stream, payloads, fence=lease)
        self.extend(stream, payloads)
        assert end == self.ends.get(stream, 0)

    @rule(stream=STREAMS, payload=PAYLOADS, offset=st.integers(-3, 3))
    def append_at(self, stream: str, payload: bytes, offset: int) -> None:
        """Append at a number around the next one."""
        at = max(self.ends.get(stream, 0) + offset, 1)
        there = {item.number: item.payload for item in self.items.get(stream, [])}
        if at == self.ends.get(stream, 0) + 1:
            assert self.swap().append(stream, payload, at=at) == at
            self.extend(stream, [payload])
        elif there.get(at) == payload:
            assert self.swap().append(stream, payload, at=at) == at
        else:
            with pytest.raises(StoreCorrupt):
                self.swap().append(stream, payload, at=at)

    @rule(
        stream=STREAMS,
        payloads=st.lists(PAYLOADS, min_size=1, max_size=3),
        offset=st.integers(-3, 3),
    )
    def append_many_at(self, stream: str, payloads: list[bytes], offset: int) -> None:
        """Append several at a number around the next one: all of them new, or all of them there."""
        at = max(self.ends.get(stream, 0) + offset, 1)
        end = at + len(payloads) - 1
        there = {item.number: item.payload for item in self.items.get(stream, [])}
        if at == self.ends.get(stream, 0) + 1:
            assert self.swap().append_many(stream, payloads, at=at) == end
            self.extend(stream, payloads)
        elif [there.get(at + place) for place in range(len(payloads))] == payloads:
            assert self.swap().append_many(stream, payloads, at=at) == end
        else:
            with pytest.raises(StoreCorrupt):
                self.swap().append_many(stream, payloads, at=at)

    def extend(self, stream: str, payloads: list[bytes]) -> None:
        """Append in the model."""
        for payload in payloads:
            self.ends[stream] = self.ends.get(stream, 0) + 1
            self.items.setdefault(stream, []).append(Item(self.ends[stream], payload))

    @rule(stream=STREAMS, through=st.integers(0, 30))
    def trim(self, stream: str, through: int) -> None:
        """Trim old items."""
        self.swap().trim(stream, through)
        kept = [item for item in self.items.get(stream, []) if item.number > through]
        self.items[stream] = kept

    @rule(data=st.data(), name=REGISTERS, payload=PAYLOADS)
    def put(self, data: st.DataObject, name: str, payload: bytes) -> None:
        """Set a register."""
        lease, holds = self.fence(data)
        if not holds:
            with pytest.raises(Fenced):
                self.swap().put(name, payload, fence=lease)
            return
        version = self.swap().put(name, payload, fence=lease)
        assert version > self.versions.get(name, 0)
        self.values[name], self.versions[name] = payload, version

    @rule(data=st.data(), payloads=st.lists(PAYLOADS, min_size=2, max_size=2))
    def put_many(self, data: st.DataObject, payloads: list[bytes]) -> None:
        """Set all durable registers, or all volatile ones, in one step."""
        volatile = data.draw(st.booleans())
        names = [name for name in REGISTER_NAMES if is_volatile_register(name) == volatile]
        values = dict(zip(names, payloads, strict=False))
        lease, holds = self.fence(data)
        if not holds:
            with pytest.raises(Fenced):
                self.swap().put_many(values, fence=lease)
            return
        newest = self.swap().put_many(values, fence=lease)
        for name, payload in values.items():
            register = self.swap().get(name)
            assert register is not None
            version = register.version
            assert self.versions.get(name, 0) < version <= newest
            self.values[name], self.versions[name] = payload, version

    @rule(name=REGISTERS)
    def delete(self, name: str) -> None:
        """Remove a register; the highest version it had stays in the model."""
        self.swap().delete(name)
        self.values.pop(name, None)

    @rule(holder=HOLDERS)
    def acquire(self, holder: str) -> None:
        """Ask for the lease."""
        is_free = self.holder in (None, holder) or self.clock.seconds >= self.expires_seconds
        if not is_free:
            with pytest.raises(LeaseHeld):
                self.swap().acquire_lease("lead", holder, ttl_seconds=TTL_SECONDS)
            return
        lease = self.swap().acquire_lease("lead", holder, ttl_seconds=TTL_SECONDS)
        self.token += 1
        assert lease.token == self.token
        self.leases.append(lease)
        self.holder, self.expires_seconds = holder, self.clock.seconds + TTL_SECONDS

    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        """Renew some lease there once was."""
        lease, holds = self.fence(data)
        if lease is None:
            return
        if not holds:
            with pytest.raises(Fenced):
                self.swap().renew(lease)
            return
        self.swap().renew(lease)
        self.expires_seconds = self.clock.seconds + TTL_SECONDS

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """Give some lease back."""
        lease, holds = self.fence(data)
        if lease is None:
            return
        self.swap().release(lease)
        if holds:
            self.holder = None

    @rule(holder=HOLDERS)
    def break_lease(self, holder: str) -> None:
        """Take the lease away from one holder."""
        assert self.swap().break_lease("lead", holder) == (self.holder == holder)
        if self.holder == holder:
            self.holder = None

    @rule(seconds=st.sampled_from([1.0, 2.5, 5.0]))
    def pass_time(self, seconds: float) -> None:
        """Let the lease grow older."""
        self.clock.seconds += seconds

    @rule(after=st.integers(0, 30), limit=st.integers(1, 5))
    def read(self, after: int, limit: int) -> None:
        """Read all streams from somewhere on."""
        cursors = {name: min(after, self.ends.get(name, 0)) for name in ALL_STREAMS}
        batch = self.swap().read(streams=cursors, registers={}, timeout_seconds=0, limit=limit)
        expected = {
            name: tuple(item for item in self.items.get(name, []) if item.number > cursor)[:limit]
            for name, cursor in cursors.items()
        }
        assert batch.items == {name: items for name, items in expected.items() if items}

    @invariant()
    def looks_like_the_model(self) -> None:
        """Ends, registers and the lease's holder agree."""
        if not hasattr(self, "clock"):
            return
        for stream in ALL_STREAMS:
            assert self.store.last(stream) == self.ends.get(stream, 0)
        found = {name: each.payload for name, each in self.store.registers("").items()}
        assert found == self.values
        held = self.store.lease_holder("lead")
        assert (held.holder if held else None) == self.holder

    def teardown(self) -> None:
        """Close and remove the store."""
        if hasattr(self, "clean_up"):
            self.clean_up()


def in_memory(clock: SteppedClock) -> tuple[Store, Store, Callable[[], None]]:
    """Make two handles on a store in memory."""
    store = MemoryStore(clock=clock)
    return store, store.another(), store.close


def on_disk(clock: SteppedClock) -> tuple[Store, Store, Callable[[], None]]:
    """Make two handles on a SQLite store in a folder of its own."""
    folder = tempfile.TemporaryDirectory()
    handles = SqliteStore(Path(folder.name), clock=clock), SqliteStore(folder.name, clock=clock)

    def clean_up() -> None:
        for handle in handles:
            handle.close()
        folder.cleanup()

    return *handles, clean_up


_CLUSTERS = itertools.count(1)


def on_servers(
    server: RedisServer,
) -> Callable[[SteppedClock], tuple[Store, Store, Callable[[], None]]]:
    """Return a maker of two handles on a cluster of its own on a Redis server."""

    def make(clock: SteppedClock) -> tuple[Store, Store, Callable[[], None]]:
        cluster = f"model-{next(_CLUSTERS)}"
        handles = [
            RedisStore(server.spec(), cluster, clock=clock, deadline_seconds=CALL_SECONDS)
            for _ in range(2)
        ]

        def clean_up() -> None:
            for handle in handles:
                handle.close()

        return handles[0], handles[1], clean_up

    return make


@pytest.mark.costly
@pytest.mark.parametrize("kind", ["memory", "sqlite", "redis", "redis-tls-acl"])
def test_random_histories_agree_with_the_model(kind: str, request: pytest.FixtureRequest) -> None:
    """Any order of appends, trims, puts, deletes, lease moves and reads gives what plain Python gives."""
    if kind.startswith("redis"):
        name = "redis_server" if kind == "redis" else "secured_server"
        make = on_servers(request.getfixturevalue(name))
    else:
        make = in_memory if kind == "memory" else on_disk

    class Machine(StoreMachine):
        pass

    Machine.make = staticmethod(make)
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=100 if kind != "redis-tls-acl" else 20,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        ),
    )
