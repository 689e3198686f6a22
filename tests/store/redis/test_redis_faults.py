"""A Redis store under fire: servers that are killed, paused, emptied, put back, full; writers that are killed; clocks that jump."""

import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import runner.store.redis.store
from runner.errors import Fenced, StoreCorrupt, StoreRolledBack, StoreUnavailable
from runner.store.protocol import LeaseHeld, LeaseHolder
from runner.store.redis.connection import ConnectionLost, ErrorReply, HostResolver, connected
from runner.store.redis.keys import keys_of
from runner.store.redis.scripts import APPEND
from runner.store.redis.store import RedisStore
from runner.store.redis.thread_connection import evaluate
from tests.small_disk import small_disk
from tests.store.redis_server import CALL_SECONDS, RedisServer
from tests.store.store_harness import payloads, start_player

# No test lasts that long.
LONG_SECONDS = 60.0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    """Give a server that the test may do to as it likes."""
    with RedisServer(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def store(server: RedisServer) -> Iterator[RedisStore]:
    """Give a handle on a fresh store."""
    store = RedisStore(server.spec(), "fire", deadline_seconds=CALL_SECONDS)
    yield store
    store.close()


@pytest.fixture
def impatient(server: RedisServer) -> Iterator[RedisStore]:
    """Give one with a deadline that a test can wait for, and a loaded machine keep."""
    store = RedisStore(server.spec(), "fire", deadline_seconds=5.0)
    yield store
    store.close()


def where(server: RedisServer, cluster: str = "fire") -> str:
    """Name the store for a player."""
    return f"redis://{server.address}/{cluster}"


def wait_until_blocked(server: RedisServer) -> None:
    """Wait until a client blocks at the server."""
    until = time.monotonic() + LONG_SECONDS
    while not any("b" in client["flags"] for client in server.client().client_list()):
        assert time.monotonic() < until
        time.sleep(0.02)


# ---- processes


def test_two_processes_answer_each_other(server: RedisServer, store: RedisStore) -> None:
    """200 rounds, in which only the other's write can wake a reader."""
    num_rounds = 200
    with start_player("echo", where(server), str(num_rounds)) as player:
        assert player.stdout is not None
        assert player.stdout.readline() == "ready\n"
        for number in range(num_rounds):
            store.append("ping", b"%d" % number)
            batch = store.read(streams={"pong": number}, registers={}, timeout_seconds=30)
            assert [item.payload for item in batch.items["pong"]] == [b"%d" % number]
        assert player.wait(30) == 0


@pytest.mark.costly
def test_tokens_never_fall_while_processes_fight_for_a_lease(
    server: RedisServer, store: RedisStore
) -> None:
    """Holders whose lease runs out while they sleep are fenced: the appended tokens never go back."""
    players = [start_player("lead", where(server), "300") for _ in range(4)]
    reply = [player.communicate(timeout=100)[0] for player in players]
    assert [player.returncode for player in players] == [0] * 4
    tokens = [int(token) for token in payloads(store, "tokens")]
    assert len(tokens) >= 300
    assert tokens == sorted(tokens)
    assert len(set(tokens)) > 10
    assert sum(text.count("fenced") for text in reply) > 0


# ---- a server that dies


@pytest.mark.costly
def test_nothing_acknowledged_is_lost_when_the_server_is_killed(
    server: RedisServer, store: RedisStore
) -> None:
    """Ten kills at random moments: each acknowledged entry is there once, in order, and a blocked reader missed nothing."""
    dice = random.Random(11)
    with (
        start_player("insist", where(server), "journal") as writer,
        start_player("follow", where(server), "journal") as reader,
    ):
        assert writer.stdout is not None
        assert reader.stdout is not None
        for _ in range(10):
            assert writer.stdout.readline()
            time.sleep(dice.random() * 0.3)
            server.kill()
            server.start()
        assert writer.stdout.readline()
        writer.kill()
        rest = writer.stdout.read().rpartition("\n")[0].splitlines()
        acknowledged = int(rest[-1]) if rest else 1
        found = payloads(store, "journal")
        assert found == [b"%d" % number for number in range(1, len(found) + 1)]
        assert acknowledged <= len(found) <= acknowledged + 1
        for number in range(1, len(found) + 1):
            assert reader.stdout.readline() == f"{number} {number}\n"
        reader.kill()
    assert acknowledged > 100


def test_a_blocked_read_ends_with_the_server(server: RedisServer, store: RedisStore) -> None:
    """A blocked reader learns at once that the server is gone, and reads what came meanwhile when it is back."""
    store.append("inbox", b"a")
    failure: list[Exception] = []

    def wait() -> None:
        try:
            store.read(streams={"inbox": 1}, registers={}, timeout_seconds=LONG_SECONDS)
        except StoreUnavailable as error:
            failure.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    wait_until_blocked(server)
    server.kill()
    thread.join(LONG_SECONDS)
    assert len(failure) == 1
    server.start()
    other = RedisStore(server.spec(), "fire")
    other.append("inbox", b"b")
    assert payloads(store, "inbox", after=1) == [b"b"]
    other.close()


def test_a_call_after_a_restart_is_not_lost(server: RedisServer, store: RedisStore) -> None:
    """A connection that the server closed meanwhile is noticed before something is sent into the void."""
    store.append("inbox", b"a")
    server.stop()
    server.start()
    assert store.append("inbox", b"b") == 2


# ---- a server that is stopped


@pytest.mark.costly
def test_a_paused_server_blocks_no_caller(
    server: RedisServer, impatient: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls and blocked reads, of threads that are connected and of new ones, end as unavailable; then all is as before."""
    monkeypatch.setattr(runner.store.redis.store, "SLICE_SECONDS", 0.5)
    store = impatient
    lease = store.acquire_lease("lead", "a", ttl_seconds=60)
    store.append("inbox", b"a", fence=lease)
    server.pause()
    calls: list[Callable[[], object]] = [
        lambda: store.append("inbox", b"b", fence=lease),
        lambda: store.renew(lease),
        lambda: store.put("status", b"x"),
        lambda: store.get("assignment/n1"),
        lambda: store.read(streams={"inbox": 1}, registers={}, timeout_seconds=LONG_SECONDS),
        lambda: RedisStore(server.spec(), "fire").last("inbox"),
    ]
    ended: list[Exception | None] = [None] * len(calls)

    def run(number: int) -> None:
        try:
            calls[number]()
        except StoreUnavailable as error:
            ended[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_SECONDS)
        assert not thread.is_alive()
    assert None not in ended
    server.resume()
    # What was sent before the pause may have been done after it: not acknowledged is not "not done".
    assert payloads(store, "inbox") in ([b"a"], [b"a", b"b"])
    store.renew(lease)


@pytest.mark.costly
def test_a_read_that_is_paused_while_it_waits_ends(
    server: RedisServer, impatient: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that stops under a blocked reader is detected when the slice is over; `wake` and `close` need no server at all."""
    monkeypatch.setattr(runner.store.redis.store, "SLICE_SECONDS", 2.0)

    def wait(handle: RedisStore, found: list[object]) -> None:
        try:
            found.append(
                handle.read(streams={"inbox": 0}, registers={}, timeout_seconds=LONG_SECONDS)
            )
        except StoreUnavailable as error:
            found.append(error)

    first: list[object] = []
    thread = threading.Thread(target=wait, args=(impatient, first))
    thread.start()
    wait_until_blocked(server)
    server.pause()
    thread.join(LONG_SECONDS)
    assert isinstance(first[0], StoreUnavailable)
    server.resume()
    monkeypatch.setattr(runner.store.redis.store, "SLICE_SECONDS", 3600.0)
    for end in ("wake", "close"):
        found: list[object] = []
        handle = RedisStore(server.spec(), "fire", deadline_seconds=CALL_SECONDS)
        thread = threading.Thread(target=wait, args=(handle, found))
        thread.start()
        wait_until_blocked(server)
        server.pause()
        handle.wake() if end == "wake" else handle.close()
        thread.join(LONG_SECONDS)
        assert [bool(batch) for batch in found] == [False]
        server.resume()
        handle.close()


# ---- a server that lost data


@pytest.mark.parametrize("what", ["append", "read", "last", "put", "get", "renew"])
def test_a_server_that_comes_back_empty_is_not_believed(
    server: RedisServer, store: RedisStore, what: str
) -> None:
    """For any first operation of the handle: no second history is begun."""
    lease = store.acquire_lease("lead", "a", ttl_seconds=60)
    store.append("journal", b"acknowledged", fence=lease)
    server.kill()
    server.drop_data()
    server.start()
    uses: dict[str, Callable[[], object]] = {
        "append": lambda: store.append("journal", b"x", fence=lease),
        "read": lambda: payloads(store, "journal", after=1),
        "last": lambda: store.last("journal"),
        "put": lambda: store.put("assignment", b"x"),
        "get": lambda: store.get("assignment"),
        "renew": lambda: store.renew(lease),
    }
    for _ in range(2):
        with pytest.raises(StoreRolledBack, match="came back with less than it acknowledged"):
            uses[what]()
    assert server.client().keys("*") == []


def test_a_handle_accepts_a_rolled_back_store_on_request(
    server: RedisServer, store: RedisStore
) -> None:
    """An agent, which other numbers protect, goes on with a server that came back empty."""
    store.append_many("inbox", [b"a", b"b"])
    server.kill()
    server.drop_data()
    server.start()
    with pytest.raises(StoreRolledBack):
        store.append("inbox", b"c")
    store.accept_rollback()
    assert store.append("inbox", b"c") == 1
    assert payloads(store, "inbox") == [b"c"]


def test_an_emptied_server_is_noticed_by_connections_that_stay(
    server: RedisServer, store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After FLUSHALL under an open handle the next write, the next read and a blocked read all raise."""
    monkeypatch.setattr(runner.store.redis.store, "SLICE_SECONDS", 0.5)
    store.append("journal", b"acknowledged")
    store.put("assignment", b"acknowledged")
    server.client().flushall()
    with pytest.raises(StoreRolledBack):
        store.append("journal", b"x")
    with pytest.raises(StoreRolledBack):
        store.put("assignment", b"x")
    with pytest.raises(StoreRolledBack):
        store.get("assignment")
    with pytest.raises(StoreRolledBack):
        store.read(streams={"journal": 1}, registers={}, timeout_seconds=LONG_SECONDS)


def test_an_old_copy_put_in_place_is_noticed(server: RedisServer, store: RedisStore) -> None:
    """The same store, a few entries younger: what was seen must be there."""
    store.append("journal", b"a")
    server.stop()
    shutil.copytree(server.folder / "appendonlydir", server.folder / "copy")
    server.start()
    store.append("journal", b"b")
    server.kill()
    server.drop_data()
    shutil.copytree(server.folder / "copy", server.folder / "appendonlydir")
    server.start()
    with pytest.raises(StoreRolledBack, match="came back with less"):
        store.append("journal", b"c")


def test_missing_and_changed_entries_are_named(server: RedisServer, store: RedisStore) -> None:
    """Removed or altered past the store, at the front, in the middle or at the end: never read over in silence."""
    admin = server.client()
    for stream, number in (("front", 1), ("middle", 3), ("end", 5)):
        store.append_many(stream, [b"x"] * 5)
        admin.xdel(f"stoker:fire:s:{stream}", f"{number}-0")
        with pytest.raises(StoreCorrupt, match=rf"'{stream}'.*{number}.* missing"):
            list(payloads(store, stream, after=4 if stream == "end" else 0))
    store.append_many("cut", [b"x"] * 5)
    admin.xtrim("stoker:fire:s:cut", maxlen=2, approximate=False)
    with pytest.raises(StoreCorrupt, match="'cut': item 1 is missing, 4 follows"):
        payloads(store, "cut")
    store.append("flipped", b"x")
    admin.xadd("stoker:fire:s:flipped", {"crc:00000000": b"y"}, id="2-0")
    with pytest.raises(StoreCorrupt, match="'flipped': item 2 is not what was written"):
        payloads(store, "flipped")
    admin.xadd("stoker:fire:r:assignment", {"crc:00000000": b"y"}, id="9-0")
    with pytest.raises(StoreCorrupt, match="'assignment' is not what was written"):
        store.get("assignment")
    admin.set("stoker:fire:s:other", "no stream")
    with pytest.raises(StoreCorrupt, match="another program wrote to a key of the store"):
        store.append("other", b"x")


# ---- other programs' entries


def test_foreign_entries_are_returned_and_push_nothing_aside(
    server: RedisServer, store: RedisStore
) -> None:
    """Entries of every shape in a stream: readers get bytes that are no message, and all that was written by the store."""
    admin = server.client()
    key = "stoker:fire:s:signals"
    store.append("signals", b"first")
    admin.xadd(key, {"noise": "a", "more": "b"})
    admin.xadd(key, {"": ""})
    for number in range(500):
        admin.xadd(key, {f"f{number}": os.urandom(50)})
    store.append("signals", b"second")
    admin.xadd(key, {"crc:zzzzzzzz": "x"})
    store.append("signals", b"third")
    items = store.read(streams={"signals": 0}, registers={}, timeout_seconds=0).items["signals"]
    found = [item.payload for item in items]
    assert [each for each in found if each in (b"first", b"second", b"third")] == [
        b"first",
        b"second",
        b"third",
    ]
    assert b"noise a more b" in found
    numbers = [item.number for item in items]
    assert numbers == sorted(set(numbers))
    # And again in pieces, as a blocked reader gets them.
    seen, again = 0, []
    while batch := store.read(
        streams={"signals": seen}, registers={}, timeout_seconds=0.05, limit=7
    ):
        again += [item.payload for item in batch.items["signals"]]
        seen = batch.items["signals"][-1].number
    assert again == found


def test_a_foreign_value_in_a_register_does_not_keep_it_from_being_put(
    server: RedisServer, store: RedisStore
) -> None:
    """Any value that a client left there is replaced by the next put, and readers see it."""
    version = store.put("assignment/n1", b"a")
    admin = server.client()
    for shape in ("stream", "text"):
        if shape == "stream":
            admin.xadd("stoker:fire:r:assignment/n1", {"malformed": "x"})
        else:
            admin.set("stoker:fire:r:assignment/n1", "x")
        newer = store.put("assignment/n1", b"b")
        assert newer > version
        register = store.get("assignment/n1")
        assert register is not None
        assert (register.version, register.payload) == (newer, b"b")
        version = newer


def test_a_stream_filled_to_the_last_number_is_named(
    server: RedisServer, store: RedisStore
) -> None:
    """Numbers beyond what can be counted exactly are refused instead of miscounted."""
    server.client().xadd("stoker:fire:s:signals", {"malformed": "x"}, id=f"{2**53}-0")
    with pytest.raises(StoreCorrupt, match="no number is left"):
        store.append("signals", b"x")


def test_a_large_payload_is_refused_by_the_server_itself(server: RedisServer) -> None:
    """100 MB never get in, and 65 KB are refused by the script where a client does not check."""
    keys = keys_of("fire")
    head = ("signals", 0, 0, 65536, "", "", "", 1, 1, 1, keys.trims, keys.meta, "crc:00000000")
    address = ("127.0.0.1", server.port)
    client = connected(address, resolver=HostResolver(), tls=None, timeout_seconds=5.0)
    reply = evaluate(client, APPEND, (keys.stream("signals"),), *head, b"x" * 65537)
    assert reply == [b"large", 65537]
    with pytest.raises((ErrorReply, ConnectionLost)):
        evaluate(client, APPEND, (keys.stream("signals"),), *head, b"x" * 10**8)
    client.close()
    assert server.client().exists("stoker:fire:s:signals") == 0
    assert server.client().info("memory")["used_memory_peak"] < 64e6


# ---- what is volatile


def test_volatile_writes_leave_no_trace_on_the_disk(server: RedisServer, store: RedisStore) -> None:
    """The append-only file does not grow by them, fenced or not, and it does by a durable one."""
    lease = store.acquire_lease("lead", "a", ttl_seconds=60)
    store.append("inbox", b"x")

    def size() -> int:
        return sum(path.stat().st_size for path in (server.folder / "appendonlydir").iterdir())

    store.put("status", b"x", fence=lease)
    before = size()
    for _ in range(20):
        store.append("heartbeats", b"x" * 100)
        store.append("heartbeats", b"x" * 100, fence=lease)
        store.put("status", b"x" * 100, fence=lease)
    store.delete("status")
    store.trim("heartbeats", 5)
    assert size() == before
    store.append("inbox", b"x")
    assert size() > before
    for name in ("s:heartbeats", "r:status"):
        store.put("status", b"x")
        (key,) = server.client().keys(f"stoker:fire:~*:{name}")
        assert server.client().pttl(key) > 0


@pytest.mark.parametrize("rewritten", [False, True])
def test_what_is_volatile_restarts_with_the_server(
    server: RedisServer, store: RedisStore, rewritten: bool
) -> None:
    """Old heartbeats and status do not come back, not even by a rewritten file; a reader blocked for new ones gets them all."""
    for number in range(5):
        store.append("heartbeats", b"old %d" % number)
        store.put("status", b"old")
    view = store.get("status")
    assert view is not None
    if rewritten:
        server.client().bgrewriteaof()
        while server.client().info("persistence")["aof_rewrite_in_progress"]:
            time.sleep(0.02)
        store.append("heartbeats", b"old 5")
        store.put("status", b"older")
    server.restart()
    assert store.get("status") is None
    assert store.last("heartbeats") == 0
    store.append_many("heartbeats", [b"new 0", b"new 1"])
    store.put("status", b"new")
    batch = store.read(
        streams={"heartbeats": 5}, registers={"status": view.version}, timeout_seconds=LONG_SECONDS
    )
    assert [item.payload for item in batch.items["heartbeats"]] == [b"new 0", b"new 1"]
    assert batch.registers["status"].payload == b"new"


# ---- clocks


def set_expiry(server: RedisServer, seconds_from_now: float) -> None:
    """Move the lease's end, as a jump of the server's clock does in the other direction.

    The clock itself cannot be moved: libfaketime does not bear the server's allocator.
    """
    end = int((time.time() + seconds_from_now) * 1e6)
    server.client().hset("stoker:fire:l:lead", "expires", end)


def test_a_clock_put_back_does_not_hold_a_lease_for_ever(
    server: RedisServer, store: RedisStore
) -> None:
    """A lease never lasts longer than it could have: an hour's jump costs its time to live, once."""
    store.acquire_lease("lead", "a", ttl_seconds=0.5)
    set_expiry(server, 3600)
    holder = store.lease_holder("lead")
    assert holder is not None
    assert holder.expires_in_seconds <= 0.5
    with pytest.raises(LeaseHeld) as held:
        store.acquire_lease("lead", "b", ttl_seconds=5)
    assert held.value.expires_in_seconds <= 0.5
    time.sleep(0.6)
    assert store.acquire_lease("lead", "b", ttl_seconds=5).token == 2


def test_a_clock_put_forward_costs_a_lease_and_nothing_else(
    server: RedisServer, store: RedisStore
) -> None:
    """The holder may renew in spite of it; a quicker holder fences it."""
    lease = store.acquire_lease("lead", "a", ttl_seconds=60)
    set_expiry(server, -3600)
    store.renew(lease)
    with pytest.raises(LeaseHeld):
        store.acquire_lease("lead", "b", ttl_seconds=60)
    set_expiry(server, -3600)
    assert store.acquire_lease("lead", "b", ttl_seconds=60).token == 2
    with pytest.raises(Fenced):
        store.append("inbox", b"x", fence=lease)


def test_a_restarted_server_gives_the_holder_time_to_come_back(
    server: RedisServer, store: RedisStore
) -> None:
    """No holder takes over because the store was away: a lease lasts one time to live from the restart."""
    lease = store.acquire_lease("lead", "a", ttl_seconds=0.3)
    server.kill()
    time.sleep(0.4)
    server.start()
    with pytest.raises(LeaseHeld):
        store.acquire_lease("lead", "b", ttl_seconds=5)
    store.renew(lease)
    time.sleep(0.4)
    assert store.acquire_lease("lead", "b", ttl_seconds=5).token == 2


def test_a_mere_reader_of_a_lease_sees_it_run_out_after_a_restart(
    server: RedisServer, store: RedisStore
) -> None:
    """A standby takes the lease when it sees that it has run out: a holder that died with the server gets one time to live."""
    store.acquire_lease("lead", "a", ttl_seconds=0.3)
    server.kill()
    server.start()
    ends = await_end(store, "lead")
    assert ends.holder == "a"
    assert store.acquire_lease("lead", "b", ttl_seconds=5).token == 2


def test_a_mere_reader_of_a_lease_sees_it_run_out_after_a_clock_was_put_back(
    server: RedisServer, store: RedisStore
) -> None:
    """Reading again and again does not restart the time to live."""
    store.acquire_lease("lead", "a", ttl_seconds=0.3)
    set_expiry(server, 3600)
    assert await_end(store, "lead").holder == "a"


def await_end(store: RedisStore, name: str) -> LeaseHolder:
    """Read a lease, and nothing else, until it has run out."""
    until = time.monotonic() + LONG_SECONDS
    while time.monotonic() < until:
        found = store.lease_holder(name)
        assert found is not None
        if found.expires_in_seconds == 0:
            return found
        time.sleep(0.05)
    raise AssertionError(f"lease {name!r} never runs out for one who only looks")


# ---- memory, disk, forks


def test_a_server_without_memory_names_the_way_out(server: RedisServer, store: RedisStore) -> None:
    """Nothing is evicted; with more memory it goes on."""
    store.append("inbox", b"x")
    server.client().config_set("maxmemory", 1)
    with pytest.raises(StoreUnavailable, match=r"OOM.*give it more"):
        store.append("inbox", b"y")
    assert payloads(store, "inbox") == [b"x"]
    server.client().config_set("maxmemory", 0)
    assert store.append("inbox", b"y") == 2


def filled(store: RedisStore) -> int:
    """Append until the store refuses; return how far it was acknowledged."""
    acknowledged = 0
    while True:
        try:
            acknowledged = store.append("inbox", b"x" * 3000)
        except StoreUnavailable:
            return acknowledged


def test_a_disk_that_fills_ends_the_server_and_loses_nothing(tmp_path: Path) -> None:
    """With appendfsync always it cannot go on; after room was made it starts with all that it acknowledged."""
    with small_disk(tmp_path / "disk", size_bytes=4 << 20) as disk:
        (disk / "ballast").write_bytes(b"x" * 2_000_000)
        server = RedisServer(disk / "redis")
        server.start()
        store = RedisStore(server.spec(), "fire")
        acknowledged = filled(store)
        assert acknowledged > 100
        assert server.wait(LONG_SECONDS) == 1
        assert "AOF write error" in (server.folder / "redis.log").read_text()
        (disk / "ballast").unlink()
        server.start()
        assert acknowledged <= store.last("inbox") <= acknowledged + 1
        assert len(payloads(store, "inbox")) == store.last("inbox")
        store.append("inbox", b"x")
        store.close()
        server.stop()


def test_a_forked_child_has_connections_of_its_own(server: RedisServer, store: RedisStore) -> None:
    """A handle survives a fork on both sides: the child neither uses nor closes what the parent has open."""
    store.append("inbox", b"parent")
    child = os.fork()
    if child == 0:
        try:
            number = store.append("inbox", b"child")
            store.close()
            os._exit(0 if number == 2 else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    clients = len(server.client().client_list())
    assert store.append("inbox", b"parent") == 3
    assert len(server.client().client_list()) <= clients


def test_ended_threads_leave_no_connection(server: RedisServer, store: RedisStore) -> None:
    """A hundred short threads: their connections, and what rings them, go with them."""
    store.append("inbox", b"x")
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(100):
        thread = threading.Thread(target=store.last, args=("inbox",))
        thread.start()
        thread.join()
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 2
    until = time.monotonic() + LONG_SECONDS
    while len(server.client().client_list()) > 5:
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.costly
def test_writers_killed_in_the_middle_leave_whole_entries(
    server: RedisServer, store: RedisStore
) -> None:
    """A writer is killed at 10 moments: each acknowledged entry is there, whole and in order."""
    acknowledged = 0
    for round_number in range(10):
        with start_player("append", where(server), "journal") as player:
            assert player.stdout is not None
            reply = [player.stdout.readline()]
            time.sleep(0.003 * round_number)
            os.kill(player.pid, signal.SIGKILL)
            reply += player.stdout.read().rpartition("\n")[0].splitlines()
        acknowledged = max(acknowledged, *map(int, reply))
        found = payloads(store, "journal")
        assert found == [b"%d" % number for number in range(1, len(found) + 1)]
        assert acknowledged <= len(found) <= acknowledged + 1
