from collections.abc import Iterator
from itertools import chain

import pytest

from runner.facts.store_names import HEARTBEATS
from runner.store.protocol import READ_LIMIT, Batch, Item
from runner.supervisor.inbound_queue import (
    LONGEST_SECONDS,
    MAX_GROUP,
    MAX_HEARTBEATS,
    QUEUED_SECONDS,
    ROOM_POLL_SECONDS,
    InboundQueue,
    Message,
)
from tests.store.store_harness import SteppedClock

CURSORS = {"signals": 3, "requests": 4, HEARTBEATS: 5}
MESSAGES = {"signals": 3, "requests": 4}
LONG = 60.0


def batch(**counts: int) -> Batch:
    """Make the batch of a read of so many items."""
    return Batch(
        items={
            name: tuple(Item(number, name.encode()) for number in range(1, count + 1))
            for name, count in counts.items()
            if count
        }
    )


def test_all_waiting_heartbeats_follow_a_moment_of_messages_even_if_messages_are_slow() -> None:
    """A hundred messages of 20 ms each: each batch has a few of them, then every heartbeat, and none is lost or repeated."""
    clock = SteppedClock()
    arrivals = InboundQueue(clock)
    arrivals.add(batch(signals=100, heartbeats=300), 4)
    numbers, num_batches = [], 0
    while arrivals:
        taken = []
        for stream, number, _ in chain.from_iterable(arrivals.batches()):
            taken.append(stream)
            if stream == "signals":
                numbers.append(number)
                clock.seconds += 0.02
        num_batches += 1
        assert 1 <= taken.count("signals") <= MAX_GROUP
        assert taken[-300:] == [HEARTBEATS] * 300
        if numbers[-1] < 100:
            arrivals.add(batch(heartbeats=300), 4)
    assert numbers == list(range(1, 101))
    assert num_batches == 7


def test_a_batch_has_a_group_of_messages_even_if_handling_takes_long() -> None:
    """So any queue comes to an end."""
    clock = SteppedClock()
    arrivals = InboundQueue(clock)
    arrivals.add(batch(requests=3 * MAX_GROUP), 4)
    for left in (2, 1, 0):
        (group,) = [list(group) for group in _slowly(arrivals, clock)]
        assert len(group) == MAX_GROUP
        assert bool(arrivals) == (left > 0)


def test_messages_that_arrive_between_heartbeats_come_first() -> None:
    """A decision does not wait for the heartbeats of the whole fleet."""
    arrivals = InboundQueue(SteppedClock())
    arrivals.add(batch(heartbeats=3 * MAX_GROUP), 4)
    batches = arrivals.batches()
    assert {stream for stream, _, _ in next(batches)} == {HEARTBEATS}
    arrivals.add(batch(signals=2), 4)
    assert [(stream, number) for stream, number, _ in next(batches)] == [
        ("signals", 1),
        ("signals", 2),
    ]
    assert [len(group) for group in batches] == [MAX_GROUP, MAX_GROUP]


def test_messages_and_heartbeats_share_the_time_after_the_moment_of_messages() -> None:
    """A message waits for a few heartbeats, never for all; heartbeats always get half of the time."""
    clock = SteppedClock()
    arrivals = InboundQueue(clock)
    arrivals.add(batch(signals=10 * MAX_GROUP, heartbeats=10 * MAX_GROUP), 4)
    order = []
    for group in arrivals.batches():
        order.append(group[0][0])
        clock.seconds += 1.0
    assert order == ["signals", *[HEARTBEATS, "signals"] * 9, HEARTBEATS]


def _slowly(arrivals: InboundQueue, clock: SteppedClock) -> Iterator[list[Message]]:
    for group in arrivals.batches():
        clock.seconds += 10.0
        yield group


def test_heartbeats_of_a_large_fleet_are_read_at_intervals_and_messages_at_any_time() -> None:
    """After heartbeats the next read waits only for messages, until the pause is over; a small fleet has hardly a pause."""
    clock = SteppedClock()
    arrivals = InboundQueue(clock)
    assert arrivals.next_read(CURSORS, LONG) == (CURSORS, LONG)
    arrivals.add(batch(signals=3), 5000)
    assert arrivals.next_read(CURSORS, LONG) == (CURSORS, LONG)
    arrivals.add(batch(heartbeats=3), 5000)
    wanted, wait_seconds = arrivals.next_read(CURSORS, LONG)
    assert wanted == MESSAGES
    assert wait_seconds == pytest.approx(LONGEST_SECONDS)
    clock.seconds += LONGEST_SECONDS
    assert arrivals.next_read(CURSORS, LONG) == (CURSORS, LONG)
    arrivals.add(batch(heartbeats=3), 4)
    clock.seconds += 0.001
    assert arrivals.next_read(CURSORS, LONG) == (CURSORS, LONG)


def test_a_backlog_of_heartbeats_is_read_at_once_and_proves_no_silence() -> None:
    """The age of a message is unknown until one read holds the whole backlog."""
    arrivals, lags = InboundQueue(SteppedClock()), list[float | None]()
    for more in (0, READ_LIMIT, 7):
        assert arrivals.next_read(CURSORS, LONG) == (CURSORS, 0.0 if more == 7 else LONG)
        arrivals.add(batch(heartbeats=more), 10_000)
        lags.append(arrivals.lag_seconds())
        list(arrivals.batches())
        lags.append(arrivals.lag_seconds())
    assert lags == [0.0, 0.0, None, None, 0.0, 0.0]


def test_heartbeats_that_always_wait_do_not_prevent_the_detection_of_a_silent_node() -> None:
    """New heartbeats arrive before the last are handled: those sent before that read still count."""
    clock = SteppedClock()
    arrivals = InboundQueue(clock)
    lags = []
    for _ in range(50):
        arrivals.next_read(CURSORS, LONG)
        # the read
        clock.seconds += 0.1
        arrivals.add(batch(heartbeats=3 * MAX_GROUP), 1000)
        for number, _ in enumerate(arrivals.batches()):
            clock.seconds += 0.2
            if number == 1:
                arrivals.next_read(CURSORS, LONG)
                arrivals.add(batch(heartbeats=2), 1000)
        assert arrivals
        lag_seconds = arrivals.lag_seconds()
        assert lag_seconds is not None
        lags.append(lag_seconds)
    # the read and four groups
    assert max(lags) == pytest.approx(0.9)
    list(arrivals.batches())
    assert arrivals.lag_seconds() == 0.0
    assert not arrivals._complete_reads


def test_a_backlog_ends_with_a_read_that_is_not_full() -> None:
    """One read is exactly full, and the next one is empty: the fleet fell silent then."""
    arrivals = InboundQueue(SteppedClock())
    arrivals.next_read(CURSORS, LONG)
    arrivals.add(batch(heartbeats=READ_LIMIT), 10_000)
    list(arrivals.batches())
    assert arrivals.next_read(CURSORS, LONG) == (CURSORS, 0.0)
    arrivals.add(Batch(), 10_000)
    assert arrivals.lag_seconds() == 0.0
    assert arrivals.next_read(CURSORS, LONG) == (CURSORS, LONG)


def test_each_queue_is_bounded_and_does_not_block_the_other() -> None:
    """Waiting messages do not keep heartbeats in the store, nor the reverse; with both queues full nothing is read."""
    arrivals = InboundQueue(SteppedClock())
    arrivals.add(batch(signals=READ_LIMIT), 4)
    assert arrivals.next_read(CURSORS, LONG) == ({HEARTBEATS: 5}, ROOM_POLL_SECONDS)
    for _ in range(MAX_HEARTBEATS // READ_LIMIT):
        arrivals.add(batch(heartbeats=READ_LIMIT), 4)
    assert arrivals.next_read(CURSORS, LONG) == ({}, ROOM_POLL_SECONDS)
    other = InboundQueue(SteppedClock())
    for _ in range(MAX_HEARTBEATS // READ_LIMIT):
        other.add(batch(heartbeats=READ_LIMIT), 4)
    assert other.next_read(CURSORS, LONG) == (MESSAGES, ROOM_POLL_SECONDS)


def test_a_long_queue_of_messages_is_reported_in_full_and_a_short_one_is_not() -> None:
    """The reported seconds add up to its duration; a queue that ends and starts again counts from zero."""
    clock = SteppedClock()
    arrivals = InboundQueue(clock)
    assert arrivals.queued_seconds() == 0.0
    arrivals.add(batch(signals=1000), 4)
    reported = []
    for _ in range(40):
        reported.append(arrivals.queued_seconds())
        clock.seconds += 0.3
    assert sum(reported) == pytest.approx(0.3 * 36)
    assert all(seconds == 0.0 or seconds >= QUEUED_SECONDS for seconds in reported)
    while arrivals:
        list(arrivals.batches())
    assert arrivals.queued_seconds() == 0.0
    clock.seconds += 100.0
    arrivals.add(batch(signals=1), 4)
    assert arrivals.queued_seconds() == 0.0
