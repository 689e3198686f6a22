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
WORDS = {"signals": 3, "requests": 4}
LONG = 60.0


def batch(**counts: int) -> Batch:
    """Make what a read of so many items found."""
    return Batch(
        items={
            name: tuple(Item(number, name.encode()) for number in range(1, count + 1))
            for name, count in counts.items()
            if count
        }
    )


def test_all_heartbeats_that_wait_are_taken_after_a_moment_of_words_however_slow_words_are() -> (
    None
):
    """A hundred words of 20 ms each: each portion has a few of them and then every heartbeat; nothing is lost or doubled."""
    clock = SteppedClock()
    arrivals = InboundQueue(clock)
    arrivals.add(batch(signals=100, heartbeats=300), 4)
    words, portions = [], 0
    while arrivals:
        taken = []
        for stream, number, _ in chain.from_iterable(arrivals.batches()):
            taken.append(stream)
            if stream == "signals":
                words.append(number)
                clock.seconds += 0.02
        portions += 1
        assert 1 <= taken.count("signals") <= MAX_GROUP
        assert taken[-300:] == [HEARTBEATS] * 300
        if words[-1] < 100:
            arrivals.add(batch(heartbeats=300), 4)
    assert words == list(range(1, 101))
    assert portions == 7


def test_one_word_is_taken_even_if_it_takes_long() -> None:
    """So that there is an end to any queue."""
    clock = SteppedClock()
    arrivals = InboundQueue(clock)
    arrivals.add(batch(requests=3 * MAX_GROUP), 4)
    for left in (2, 1, 0):
        (group,) = [list(group) for group in _slowly(arrivals, clock)]
        assert len(group) == MAX_GROUP
        assert bool(arrivals) == (left > 0)


def test_words_that_come_while_heartbeats_are_taken_go_before_the_next_of_them() -> None:
    """A decision does not wait for the heartbeats of the whole fleet."""
    arrivals = InboundQueue(SteppedClock())
    arrivals.add(batch(heartbeats=3 * MAX_GROUP), 4)
    portion = arrivals.batches()
    assert {stream for stream, _, _ in next(portion)} == {HEARTBEATS}
    arrivals.add(batch(signals=2), 4)
    assert [(stream, number) for stream, number, _ in next(portion)] == [
        ("signals", 1),
        ("signals", 2),
    ]
    assert [len(group) for group in portion] == [MAX_GROUP, MAX_GROUP]


def test_words_and_heartbeats_share_the_time_once_the_moment_of_words_is_over() -> None:
    """A word waits for a few heartbeats, never for all of them; and heartbeats get half of the time in any case."""
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


def test_heartbeats_of_a_large_fleet_are_read_in_a_rhythm_and_words_at_any_time() -> None:
    """After heartbeats the next read waits for words alone, until the pause is over; a small fleet makes hardly any."""
    clock = SteppedClock()
    arrivals = InboundQueue(clock)
    assert arrivals.next_read(CURSORS, LONG) == (CURSORS, LONG)
    arrivals.add(batch(signals=3), 5000)
    assert arrivals.next_read(CURSORS, LONG) == (CURSORS, LONG)
    arrivals.add(batch(heartbeats=3), 5000)
    wanted, wait_seconds = arrivals.next_read(CURSORS, LONG)
    assert wanted == WORDS
    assert wait_seconds == pytest.approx(LONGEST_SECONDS)
    clock.seconds += LONGEST_SECONDS
    assert arrivals.next_read(CURSORS, LONG) == (CURSORS, LONG)
    arrivals.add(batch(heartbeats=3), 4)
    clock.seconds += 0.001
    assert arrivals.next_read(CURSORS, LONG) == (CURSORS, LONG)


def test_a_backlog_of_heartbeats_is_read_at_once_and_until_then_silence_proves_nothing() -> None:
    """Nobody can tell how long ago anything was said until a read could hold all there was."""
    arrivals, lags = InboundQueue(SteppedClock()), list[float | None]()
    for more in (0, READ_LIMIT, 7):
        assert arrivals.next_read(CURSORS, LONG) == (CURSORS, 0.0 if more == 7 else LONG)
        arrivals.add(batch(heartbeats=more), 10_000)
        lags.append(arrivals.lag_seconds())
        list(arrivals.batches())
        lags.append(arrivals.lag_seconds())
    assert lags == [0.0, 0.0, None, None, 0.0, 0.0]


def test_heartbeats_that_always_wait_keep_nobody_from_being_found_silent() -> None:
    """New ones are there before the last are taken: what was said before the read that brought those is heard all the same."""
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


def test_a_backlog_that_turns_out_to_be_none_is_over() -> None:
    """A read held exactly as many as it could, and the next one finds no more: the fleet fell silent then."""
    arrivals = InboundQueue(SteppedClock())
    arrivals.next_read(CURSORS, LONG)
    arrivals.add(batch(heartbeats=READ_LIMIT), 10_000)
    list(arrivals.batches())
    assert arrivals.next_read(CURSORS, LONG) == (CURSORS, 0.0)
    arrivals.add(Batch(), 10_000)
    assert arrivals.lag_seconds() == 0.0
    assert arrivals.next_read(CURSORS, LONG) == (CURSORS, LONG)


def test_what_waits_is_bounded_and_a_queue_of_the_one_keeps_nobody_from_reading_the_other() -> None:
    """Words that wait do not keep heartbeats in the store, nor the other way round; with both there is nothing to read."""
    arrivals = InboundQueue(SteppedClock())
    arrivals.add(batch(signals=READ_LIMIT), 4)
    assert arrivals.next_read(CURSORS, LONG) == ({HEARTBEATS: 5}, ROOM_POLL_SECONDS)
    for _ in range(MAX_HEARTBEATS // READ_LIMIT):
        arrivals.add(batch(heartbeats=READ_LIMIT), 4)
    assert arrivals.next_read(CURSORS, LONG) == ({}, ROOM_POLL_SECONDS)
    other = InboundQueue(SteppedClock())
    for _ in range(MAX_HEARTBEATS // READ_LIMIT):
        other.add(batch(heartbeats=READ_LIMIT), 4)
    assert other.next_read(CURSORS, LONG) == (WORDS, ROOM_POLL_SECONDS)


def test_a_queue_of_words_is_told_of_in_full_second_by_second_and_a_short_one_is_not() -> None:
    """What was told adds up to how long it lasted; a queue that ends and begins anew counts anew."""
    clock = SteppedClock()
    arrivals = InboundQueue(clock)
    assert arrivals.queued_seconds() == 0.0
    arrivals.add(batch(signals=1000), 4)
    told = []
    for _ in range(40):
        told.append(arrivals.queued_seconds())
        clock.seconds += 0.3
    assert sum(told) == pytest.approx(0.3 * 36)
    assert all(seconds == 0.0 or seconds >= QUEUED_SECONDS for seconds in told)
    while arrivals:
        list(arrivals.batches())
    assert arrivals.queued_seconds() == 0.0
    clock.seconds += 100.0
    arrivals.add(batch(signals=1), 4)
    assert arrivals.queued_seconds() == 0.0
