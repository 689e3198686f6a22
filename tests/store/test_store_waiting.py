"""Blocking reads, on every kind of store: what wakes them, what does not, and how they are stopped."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

import runner.store.redis.store
import runner.store.sqlite.store
from runner.store.protocol import Batch, Store
from tests.store.store_harness import StoreHarness

# No test lasts that long: a wake-up that is lost fails the test by its time-out.
LONG_SECONDS = 60.0


@pytest.fixture(autouse=True)
def _no_safety_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the safety polls far off, so that only a write can wake a reader."""
    monkeypatch.setattr(runner.store.sqlite.store, "POLL_SECONDS", 3600.0)
    monkeypatch.setattr(runner.store.redis.store, "SLICE_SECONDS", 3600.0)


def blocked(read: Callable[[], Batch]) -> tuple[Future[Batch], threading.Thread]:
    """Run a read in a thread of its own and give it time to block."""
    result: Future[Batch] = Future()
    thread = threading.Thread(target=lambda: result.set_result(read()))
    thread.start()
    time.sleep(0.1)
    assert not result.done()
    return result, thread


def reading(store: Store, timeout_seconds: float = LONG_SECONDS) -> Callable[[], Batch]:
    """Return a read of one stream and one register of each kind."""
    return lambda: store.read(
        streams={"inbox": 0, "heartbeats": 0},
        registers={"assignment": 0, "status": 0},
        timeout_seconds=timeout_seconds,
    )


@pytest.mark.parametrize("name", ["inbox", "heartbeats", "assignment", "status"])
def test_a_blocked_read_returns_what_another_handle_writes(
    harness: StoreHarness, name: str
) -> None:
    """Durable or volatile, stream or register: the write itself wakes the reader."""
    reader, writer = harness.open(), harness.open()
    result, thread = blocked(reading(reader))
    if name in ("inbox", "heartbeats"):
        writer.append(name, b"news")
    elif name == "assignment":
        writer.put_many({"other": b"first", name: b"news"})
    else:
        writer.put(name, b"news")
    thread.join(LONG_SECONDS)
    found = result.result(0)
    assert set(found.items) | set(found.registers) == {name}


def test_a_read_times_out_empty(harness: StoreHarness) -> None:
    """Nothing new within the time means an empty batch, and other names do not count as news."""
    reader, writer = harness.open(), harness.open()
    result, thread = blocked(reading(reader, 0.5))
    writer.append("outbox", b"x")
    writer.put("other", b"x")
    thread.join(LONG_SECONDS)
    assert result.result(0) == Batch()


def test_what_is_there_already_is_returned_at_once(store: Store) -> None:
    """A backlog needs no wake-up, and a time-out of 0 never blocks."""
    store.append("inbox", b"x")
    assert reading(store)().items["inbox"][0].payload == b"x"
    assert not store.read(streams={"inbox": 1}, registers={}, timeout_seconds=0)


def test_one_write_wakes_all_waiting_readers(harness: StoreHarness) -> None:
    """Readers do not take each other's news, in one handle or in several."""
    handle, writer = harness.open(), harness.open()
    readers = [blocked(reading(store)) for store in (handle, handle, harness.open())]
    writer.append("inbox", b"x")
    for result, thread in readers:
        thread.join(LONG_SECONDS)
        assert result.result(0).items["inbox"][0].payload == b"x"


def test_wake_ends_the_blocked_reads_of_its_handle_only(harness: StoreHarness) -> None:
    """`wake` makes a blocked thread look around; its read returns nothing."""
    first, second = harness.open(), harness.open()
    mine, my_thread = blocked(reading(first))
    other, other_thread = blocked(reading(second))
    first.wake()
    my_thread.join(LONG_SECONDS)
    assert mine.result(0) == Batch()
    assert not other.done()
    second.wake()
    other_thread.join(LONG_SECONDS)


def test_a_wake_just_before_the_wait_is_not_lost(store: Store) -> None:
    """A thread that was not blocked yet finds its next wait ended, once."""
    store.wake()
    assert reading(store)() == Batch()
    started = time.monotonic()
    assert reading(store, 0.2)() == Batch()
    assert time.monotonic() - started >= 0.2


def test_close_ends_a_blocked_read(store: Store) -> None:
    """A thread that blocks on a handle being closed comes back with nothing."""
    result, thread = blocked(reading(store))
    store.close()
    thread.join(LONG_SECONDS)
    assert result.result(0) == Batch()


def test_no_write_slips_between_reading_and_waiting(harness: StoreHarness) -> None:
    """Writers and a reader that go on without pause: the reader gets every item, in order, without one time-out."""
    num_writers, num_items = 3, 150
    reader = harness.open()

    def write(writer: int) -> None:
        store = harness.open()
        for number in range(num_items):
            store.append(f"s{writer}", b"%d" % number)

    seen = dict.fromkeys((f"s{writer}" for writer in range(num_writers)), 0)
    with ThreadPoolExecutor(num_writers) as pool:
        writers = [pool.submit(write, writer) for writer in range(num_writers)]
        while sum(seen.values()) < num_writers * num_items:
            batch = reader.read(streams=seen, registers={}, timeout_seconds=LONG_SECONDS)
            assert batch
            for stream, items in batch.items.items():
                for item in items:
                    seen[stream] += 1
                    assert (item.number, int(item.payload)) == (seen[stream], seen[stream] - 1)
            for each in writers:
                assert not each.done() or each.exception() is None
