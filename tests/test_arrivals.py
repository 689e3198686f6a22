import pytest

from runner.arrivals import (
    BEATS,
    LONGEST_SECONDS,
    MAX_BEATS,
    MAX_WAITING,
    MAX_WORDS,
    Arrivals,
    Rhythm,
)
from runner.store.store import READ_LIMIT, Batch, Item

CURSORS = {"signals": 3, "requests": 4, BEATS: 5}


def batch(**counts: int) -> Batch:
    """Make what a read of so many items found."""
    return Batch(
        items={
            name: tuple(Item(number, name.encode()) for number in range(1, count + 1))
            for name, count in counts.items()
        }
    )


def test_a_word_waits_for_one_portion_of_heartbeats_at_most_and_heartbeats_for_no_flood_of_words() -> (
    None
):
    """Each portion holds words, in their order, and then heartbeats, in theirs; nothing is lost or doubled."""
    arrivals = Arrivals()
    arrivals.add(batch(beats=1000))
    assert [stream for stream, _, _ in arrivals.portion()] == [BEATS] * MAX_BEATS
    arrivals.add(batch(signals=100, requests=1))
    portions = []
    while arrivals:
        portions.append(arrivals.portion())
    assert all(portion[0][0] != BEATS for portion in portions[:3])
    assert all(portion[-1][0] == BEATS for portion in portions[:2])
    assert all(len(portion) <= MAX_WORDS + MAX_BEATS for portion in portions)
    taken = [number for portion in portions for stream, number, _ in portion if stream == "signals"]
    assert taken == list(range(1, 101))
    beats = [number for portion in portions for stream, number, _ in portion if stream == BEATS]
    assert beats == list(range(MAX_BEATS + 1, 1001))


def test_what_waits_is_bounded() -> None:
    """Whoever is behind is told so, and stops adding."""
    arrivals, rounds = Arrivals(), 0
    while not arrivals.is_full:
        arrivals.add(batch(beats=READ_LIMIT))
        rounds += 1
    assert rounds == MAX_WAITING / READ_LIMIT
    arrivals.portion()
    assert not arrivals.is_full


def test_heartbeats_of_a_large_fleet_are_read_in_a_rhythm_and_words_at_any_time() -> None:
    """After heartbeats the next read waits for words alone, until the pause is over; a small fleet makes hardly any."""
    rhythm = Rhythm()
    assert rhythm.wanted(CURSORS, 100.0, 60.0) == (CURSORS, 60.0)
    rhythm.read(batch(signals=3), 100.0, 5000)
    assert rhythm.wanted(CURSORS, 100.0, 60.0) == (CURSORS, 60.0)
    rhythm.read(batch(beats=3), 100.0, 5000)
    words, wait_seconds = rhythm.wanted(CURSORS, 100.0, 60.0)
    assert words == {"signals": 3, "requests": 4}
    assert wait_seconds == pytest.approx(LONGEST_SECONDS)
    assert rhythm.wanted(CURSORS, 100.0 + LONGEST_SECONDS, 60.0) == (CURSORS, 60.0)
    rhythm.read(batch(beats=3), 200.0, 4)
    assert rhythm.wanted(CURSORS, 200.001, 60.0) == (CURSORS, 60.0)


def test_there_is_no_pause_while_heartbeats_wait_that_one_read_could_not_hold() -> None:
    """A backlog is read as fast as it can be."""
    rhythm = Rhythm()
    rhythm.read(batch(beats=READ_LIMIT), 100.0, 10_000)
    assert rhythm.wanted(CURSORS, 100.0, 60.0) == (CURSORS, 60.0)
