"""Growth: leaks of memory and descriptors are reported long before the limit; use that returns, or fills and stays, is not."""

import math
import random
from collections.abc import Callable

import pytest

from runner.detect.registry import DetectorRegistry
from runner.detect.resource_growth import MAX_FINDINGS, ResourceGrowth, Series
from runner.facts.faults import Finding
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat, RankResources
from runner.facts.watch import WatchedAttempt, WatchList

ATTEMPT = AttemptId(1, 1, 0)
GB = 1e9
NODE_BYTES = 512 * GB
HOUR, DAY = 3600.0, 86400.0
# a fifth as often as agents do, for speed
SAMPLE = 300.0

# seconds since the start -> bytes, or descriptors
Held = Callable[[float], float]
Made = Callable[[random.Random], Held]


def watch(attempt: AttemptId = ATTEMPT, nodes: tuple[str, ...] = ("n1",)) -> WatchList:
    """Watch one gang."""
    watched = WatchedAttempt(
        attempt=attempt, nodes=nodes, since=0.0, start_seconds=600.0, progress_seconds=600.0
    )
    return WatchList(nodes=nodes, attempts=(watched,))


def follow(
    days: float,
    memory: dict[int, Held],
    descriptors: dict[int, Held] | None = None,
    *,
    limit: int = 1024,
) -> list[tuple[float, Finding]]:
    """Let the ranks of one node hold this much; return what was found, and after how many seconds."""
    growth, seen, found = ResourceGrowth(), watch(), []
    opened = descriptors or {}
    for number in range(int(days * DAY / SAMPLE)):
        now = number * SAMPLE
        held = {rank: int(of(now)) for rank, of in memory.items()}
        rank_resources = tuple(
            RankResources(
                rank=rank,
                memory_bytes=size,
                descriptors=int(opened[rank](now)) if rank in opened else None,
                descriptors_limit=limit if rank in opened else None,
            )
            for rank, size in held.items()
        )
        free = max(0, int(NODE_BYTES) - sum(held.values()))
        heartbeat = Heartbeat(
            node="n1",
            incarnation=1,
            attempt=ATTEMPT,
            rank_resources=rank_resources,
            memory_free_bytes=free,
        )
        found += [(now, each) for each in growth.on_heartbeat(heartbeat, seen, now)]
    return found


# What healthy ranks hold, in shares of the whole; each has a start of some minutes, and noise of its own.


def flat(dice: random.Random) -> Held:
    """Always about the same."""
    return lambda now: 0.05 + 0.001 * dice.gauss(0, 1)


def cache(dice: random.Random) -> Held:
    """A cache that fills, ever more slowly, and stays."""
    tau, size = dice.uniform(0.5, 8) * HOUR, dice.uniform(0.02, 0.3)
    return lambda now: 0.05 + size * (1 - math.exp(-now / tau)) + 0.0005 * dice.gauss(0, 1)


def even_cache(dice: random.Random) -> Held:
    """A cache that fills evenly for some hours, and stays."""
    begins, takes = dice.uniform(0, 10 * DAY), dice.uniform(1, 6) * HOUR
    return lambda now: 0.05 + 0.2 * min(1.0, max(0.0, now - begins) / takes)


def steps(dice: random.Random) -> Held:
    """Rises at once, some times, and stays."""
    times = [dice.uniform(0, 30 * DAY) for _ in range(6)]
    return lambda now: 0.05 + 0.05 * sum(now > at for at in times) + 0.0005 * dice.gauss(0, 1)


def saw(dice: random.Random) -> Held:
    """Rises and is collected."""
    period, size = dice.choice([600.0, HOUR, 3 * HOUR, 8 * HOUR]), dice.uniform(0.02, 0.2)
    return lambda now: 0.05 + size * ((now % period) / period) + 0.0005 * dice.gauss(0, 1)


def bumps(dice: random.Random) -> Held:
    """Holds more in evaluations and checkpoints, for minutes up to an hour."""
    every, takes = dice.uniform(1, 6) * HOUR, dice.uniform(300, 3600)
    return lambda now: 0.05 + (0.1 if now % every < takes else 0.0) + 0.0005 * dice.gauss(0, 1)


def wander(dice: random.Random) -> Held:
    """Wanders, and comes back in hours."""
    at, keep = 0.0, math.exp(-SAMPLE / (3 * HOUR))

    def held(now: float) -> float:
        nonlocal at
        at = keep * at + math.sqrt(1 - keep * keep) * dice.gauss(0, 0.01)
        return 0.06 + at

    return held


HEALTHY: tuple[Made, ...] = (flat, cache, even_cache, steps, saw, bumps, wander)


def scaled(of: Held, most: float, least: float = 0.0) -> Held:
    """Make it bytes, or descriptors."""
    return lambda now: max(0.0, least + most * of(now))


@pytest.mark.parametrize("made", HEALTHY)
def test_thirty_days_of_health_are_silent(made: Made) -> None:
    """Caches, steps, saws, bumps and straying of both memory and descriptors are no growth, in 30 days of two ranks each."""
    dice = random.Random(made.__name__)
    memory = {rank: scaled(made(dice), NODE_BYTES) for rank in range(2)}
    descriptors = {rank: scaled(made(dice), 2000.0, 50.0) for rank in range(2)}
    found = follow(30, memory, descriptors)
    print(f"{made.__name__}: {len(found)} false alarms in 30 days of 2 ranks")
    assert found == []


@pytest.mark.parametrize(
    ("gb_per_hour", "begins_days", "period_seconds", "within_hours"),
    [
        (80.0, 0.0, 900.0, 5.0),
        (40.0, 0.0, 900.0, 9.0),
        (10.0, 0.0, 900.0, 14.0),
        (1.0, 0.0, 900.0, 50.0),
        (0.8, 4.0, 900.0, 50.0),
        (4.0, 0.0, 3 * HOUR, 50.0),
    ],
)
def test_a_leak_of_memory_is_reported(
    gb_per_hour: float, begins_days: float, period_seconds: float, within_hours: float
) -> None:
    """A rank that leaks, and collects 20 GB of garbage over and over as its neighbour does, is named in time, with its rate."""
    dice, begins = random.Random(1), begins_days * DAY

    def healthy(now: float) -> float:
        return (25 + 20 * (now % period_seconds) / period_seconds + dice.gauss(0, 0.2)) * GB

    def leaks(now: float) -> float:
        return healthy(now) + gb_per_hour * GB * max(0.0, now - begins) / HOUR

    memory: dict[int, Held] = {0: healthy, 1: leaks}
    ((at, found),) = follow(begins_days + 3.0, memory)
    after_hours = (at - begins) / HOUR
    left_hours = (NODE_BYTES - sum(of(at) for of in memory.values())) / GB / gb_per_hour
    print(
        f"{gb_per_hour:g} GB an hour, from day {begins_days:g} on: reported after {after_hours:.1f} h, "
        f"{left_hours:.0f} h before the end; {found.evidence}"
    )
    assert (found.fault, found.node, found.rank) == ("host_memory_growth", "n1", 1)
    assert after_hours <= within_hours
    assert reported_rate(found.evidence) == pytest.approx(gb_per_hour, rel=0.25)


def reported_rate(evidence: str) -> float:
    """Read the rate out of the evidence."""
    return float(evidence.partition(" by ")[2].split()[0])


def test_a_leak_of_descriptors_is_reported() -> None:
    """Two descriptors an hour, of 1024, are reported within fifty hours, with when there are none left."""
    dice = random.Random(1)
    ((at, found),) = follow(
        3.0,
        {0: lambda now: 5 * GB},
        {0: lambda now: 60 + 2 * now / HOUR + dice.randrange(3)},
    )
    print(f"2 descriptors an hour: reported after {at / HOUR:.1f} h; {found.evidence}")
    assert (found.fault, found.rank) == ("descriptor_growth", 0)
    assert at <= 50 * HOUR
    assert float(found.evidence.partition(" opened ")[2].split()[0]) == pytest.approx(2, rel=0.05)
    # 19 days
    assert "its limit of 1024 is reached in 1" in found.evidence


def test_a_leak_that_outlasts_any_run_is_not_reported() -> None:
    """Ten MB an hour on a node with 500 GB to spare fill it in years."""
    assert follow(6.0, {0: lambda now: 5 * GB + 10e6 * now / HOUR}) == []


def test_ranks_that_leak_together_are_reckoned_together() -> None:
    """Eight ranks that leak 2 GB an hour each fill the node in a day, not in a week; the report is bounded."""
    memory: dict[int, Held] = {
        rank: lambda now, rank=rank: (5 + rank) * GB + 2 * GB * now / HOUR  # type: ignore[misc]
        for rank in range(8)
    }
    found = follow(1.0, memory)
    assert [each.rank for _, each in found] == list(range(MAX_FINDINGS))
    assert "with 7 more there that grow" in found[0][1].evidence
    assert found[0][0] < 16 * HOUR


def test_what_was_as_high_before_has_only_come_back() -> None:
    """A tooth of a day: the first may be reported, the ones after it are not."""
    found = follow(10.0, {0: lambda now: 5 * GB + 100 * GB * ((now % DAY) / DAY)})
    assert len(found) <= 1


def test_a_series_is_bounded_and_takes_anything() -> None:
    """Two days of half hours are kept, numbers no machine can hold are cut, and hours without a report are no change."""
    series = Series(0.0)
    for number in range(5000):
        series.add(10**400 if number % 7 == 0 else -5, number * 600.0)
    assert len(series._floors) == 96
    assert list(series.trends(1.0)) == []
    quiet = Series(0.0)
    for hour in (0, 1, 2, 3, 30, 31):
        quiet.add(10**9, hour * HOUR)
    assert set(quiet._floors) == {1e9}


def test_another_attempt_starts_without_history() -> None:
    """Ten hours of a leak before a restart count for nothing after it; the registry of detectors passes the restart on."""
    detectors, found = DetectorRegistry(heartbeat_timeout_seconds=1e9), list[object]()
    start = 0.0
    for attempt in (ATTEMPT, ATTEMPT.restarted()):
        detectors.watch(watch(attempt))
        for number in range(int(10 * HOUR / SAMPLE)):
            held = RankResources(rank=0, memory_bytes=int(5 * GB + 2 * GB * number * SAMPLE / HOUR))
            heartbeat = Heartbeat(
                node="n1",
                incarnation=1,
                attempt=attempt,
                last_step=number,
                rank_resources=(held,),
                memory_free_bytes=int(400 * GB),
            )
            found += detectors.on_heartbeat(heartbeat, start + number * SAMPLE)
        start += 10 * HOUR
    assert found == []
