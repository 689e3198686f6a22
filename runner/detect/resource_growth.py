"""Growth: memory and descriptors of ranks that grow for hours and go on, so that a node or a rank comes to its limit in days.

A rank's history is the least it held in each half hour: what comes and goes (evaluations, checkpoints, garbage that is collected)
is not in it. Its last hours, in several lengths, are looked at in six parts. It grows steadily if each part rises above the one
before by a fair share of the mean rise, the last rises are not much less than the first, and the whole rise stands out of what is
left once the line is taken away. A cache that fills and stays, a step, or a tooth of a saw is none of these; and who has been as
high before has only come back.

Told is what reaches its limit within the time in `AHEAD_SECONDS`: the longer a growth was seen, the further it is followed, so a
leak that ends a run tonight is told within hours, and one that ends it in a month after two days. Memory is the node's: what all
ranks of it that grow take together. Descriptors are a process's.

What grows by itself in a straight line for that long and takes most of what is left is told, be it a leak or a very large cache.

Soft state: another supervisor, and another attempt, begin anew and need hours again.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from runner.facts.faults import Fault, Finding
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat
from runner.facts.watch import WatchList

# of a rank, in which it may grow as it likes; chosen
START_SECONDS = 3600.0
# of which the least is kept; chosen
BUCKET_SECONDS = 1800.0
# in which the nodes of a gang complete their buckets; chosen
NUM_TURNS = 30
# chosen
NUM_PARTS = 6
# Buckets that are looked at together -> how long what is left may last then. Chosen: 3 and 6 hours are followed for half as long,
# 12 hours for two days, a day for eight, two days for thirty. So a rise is at least 6 % of what was left, and 67 % in hours.
AHEAD_SECONDS = {6: 1.5 * 3600, 12: 3 * 3600, 24: 2 * 86400, 48: 8 * 86400, 96: 30 * 86400}
MOST_BUCKETS = max(AHEAD_SECONDS)
# of the mean rise, in each part; chosen
LEAST_SHARE = 0.4
# of the first two rises, in the last two; chosen
LEAST_LAST_SHARE = 0.7
# of what the line leaves over, in the whole rise; chosen
LEAST_SPREADS = 8.0
# of the buckets before; the rise must end above so many of them; chosen
HIGH_SHARE = 0.9
# of growth that is looked at; chosen
LEAST_BYTES, LEAST_DESCRIPTORS = 64e6, 24.0
# of one node that are followed; chosen
MAX_RANKS = 64
# findings of one attempt and fault: all ranks of a program leak alike; chosen
MAX_TOLD = 4
# bytes or descriptors that are believed
MOST = 1 << 60
GB = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """A steady growth: units a second, over how many seconds it was seen, and how far ahead it is followed."""

    rate: float
    seconds: float
    ahead_seconds: float


class Series:
    """What one rank held of one thing: the least of each bucket. Four bytes a bucket; `MOST_BUCKETS` at most."""

    __slots__ = ("_begins_at", "_closes_at", "_floors", "_lowest", "newest")

    def __init__(self, now: float, start_seconds: float = START_SECONDS) -> None:
        self._begins_at = now + start_seconds
        self._closes_at = self._begins_at + BUCKET_SECONDS
        self._lowest = math.inf
        self._floors = array("f")
        self.newest = 0.0

    def add(self, value: int, now: float) -> bool:
        """Take a sample in; whether a bucket is complete. Buckets without a sample of their own are as high as their neighbours."""
        self.newest = float(min(max(value, 0), MOST))
        if now < self._begins_at:
            return False
        is_complete = now >= self._closes_at
        while now >= self._closes_at:
            self._floors.append(self._lowest if self._lowest < math.inf else self.newest)
            self._closes_at += BUCKET_SECONDS
        if is_complete:
            del self._floors[:-MOST_BUCKETS]
            self._lowest = math.inf
        self._lowest = min(self._lowest, self.newest)
        return is_complete

    def trends(self, least: float) -> Iterator[Trend]:
        """Yield the steady growths by more than `least` units, over the shortest time first."""
        for length, ahead_seconds in AHEAD_SECONDS.items():
            if length > len(self._floors):
                return
            floors = self._floors[-length:]
            if floors[-1] - floors[0] > least:
                rise = steady_rise(floors)
                high = _high(self._floors[:-length])
                if rise > least and floors[-1] > high + rise / 2:
                    seconds = length * BUCKET_SECONDS
                    rate = rise / (seconds * (NUM_PARTS - 1) / NUM_PARTS)
                    yield Trend(rate=rate, seconds=seconds, ahead_seconds=ahead_seconds)


def steady_rise(floors: array[float]) -> float:
    """Return by how much the last sixth lies above the first one, or 0 if that is no steady growth."""
    size = len(floors) // NUM_PARTS
    parts = [median(floors[at : at + size]) for at in range(0, NUM_PARTS * size, size)]
    rises = [after - before for before, after in pairwise(parts)]
    mean = (parts[-1] - parts[0]) / len(rises)
    is_even = mean > 0 and min(rises) >= LEAST_SHARE * mean
    if not is_even or rises[-1] + rises[-2] < LEAST_LAST_SHARE * (rises[0] + rises[1]):
        return 0.0
    slope, middle = mean / size, (len(floors) - 1) / 2
    level = median(floors)
    left = sorted(abs(floor - level - slope * (at - middle)) for at, floor in enumerate(floors))
    rise = parts[-1] - parts[0]
    return rise if rise >= LEAST_SPREADS * 1.4826 * left[len(left) // 2] else 0.0


def _high(floors: array[float]) -> float:
    """Return what most of the buckets before lie below; too few say nothing."""
    if len(floors) < NUM_PARTS:
        return -math.inf
    return sorted(floors)[int(HIGH_SHARE * (len(floors) - 1))]


@dataclass(slots=True, kw_only=True)
class _Rank:
    memory: Series
    descriptors: Series
    # of its memory, when its last bucket was complete
    trends: tuple[Trend, ...] = ()
    told: dict[Fault, None] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class _Node:
    start_seconds: float
    ranks: dict[int, _Rank] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class _Gang:
    attempt: AttemptId
    nodes: dict[str, _Node]
    num_told: dict[Fault, int] = field(default_factory=dict)


class ResourceGrowth:
    """Follows what the ranks of watched gangs hold. A heartbeat that tells of no holdings costs nothing."""

    def __init__(self) -> None:
        self._gangs: dict[AttemptId, _Gang] = {}
        self._followed: WatchList | None = None

    def heard(self, beat: Heartbeat, watch: WatchList, now: float) -> list[Finding]:
        """Take a heartbeat in; say which ranks of its node grow towards a limit, once of each rank and fault."""
        if not beat.holdings or beat.attempt is None:
            return []
        self._follow(watch)
        gang = self._gangs.get(beat.attempt)
        if gang is None or beat.node not in gang.nodes:
            return []
        node = gang.nodes[beat.node]
        ranks, start_seconds = node.ranks, node.start_seconds
        found, grows = list[Finding](), False
        for item in beat.holdings[:MAX_RANKS]:
            if item.rank not in ranks and len(ranks) >= MAX_RANKS:
                continue
            rank = ranks.setdefault(
                item.rank,
                _Rank(memory=Series(now, start_seconds), descriptors=Series(now, start_seconds)),
            )
            if rank.memory.add(item.memory_bytes, now):
                rank.trends = tuple(rank.memory.trends(LEAST_BYTES))
                grows = grows or bool(rank.trends)
            limit = item.descriptors_limit
            if item.descriptors is None or limit is None:
                continue
            if rank.descriptors.add(item.descriptors, now):
                found += self._judge_descriptors(gang, beat.node, item.rank, limit)
        if grows and beat.memory_free_bytes > 0:
            found += self._judge_memory(gang, beat.node, beat.memory_free_bytes)
        return found

    def _judge_memory(self, gang: _Gang, node: str, free_bytes: int) -> Iterator[Finding]:
        ranks = {number: rank for number, rank in gang.nodes[node].ranks.items() if rank.trends}
        for number, rank in ranks.items():
            for trend in rank.trends:
                others = sum(other.trends[0].rate for other in ranks.values() if other is not rank)
                left_seconds = free_bytes / (trend.rate + others)
                if left_seconds > trend.ahead_seconds:
                    continue
                with_others = f", with {len(ranks) - 1} more there that grow" if others else ""
                evidence = (
                    f"memory of rank {number} on {node} has grown by {trend.rate * 3600 / GB:.3g} GB an hour "
                    f"for {_time(trend.seconds)} ({rank.memory.newest / GB:.3g} GB now{with_others}); the "
                    f"{free_bytes / GB:.3g} GB that the node has left last for {_time(left_seconds)}"
                )
                yield from self._told(gang, "host_memory_growth", node, number, evidence)
                break

    def _judge_descriptors(
        self, gang: _Gang, node: str, number: int, limit: int
    ) -> Iterator[Finding]:
        series = gang.nodes[node].ranks[number].descriptors
        for trend in series.trends(LEAST_DESCRIPTORS):
            left_seconds = max(0.0, limit - series.newest) / trend.rate
            if left_seconds <= trend.ahead_seconds:
                evidence = (
                    f"rank {number} on {node} has opened {trend.rate * 3600:.3g} files an hour more than it closed "
                    f"for {_time(trend.seconds)} ({series.newest:.0f} open now); its limit of {limit} is "
                    f"reached in {_time(left_seconds)}"
                )
                yield from self._told(gang, "descriptor_growth", node, number, evidence)
                break

    def _told(
        self, gang: _Gang, fault: Fault, node: str, number: int, evidence: str
    ) -> Iterator[Finding]:
        rank = gang.nodes[node].ranks[number]
        if fault in rank.told or gang.num_told.get(fault, 0) >= MAX_TOLD:
            return
        rank.told[fault] = None
        gang.num_told[fault] = gang.num_told.get(fault, 0) + 1
        yield Finding(fault=fault, evidence=evidence, attempt=gang.attempt, node=node, rank=number)

    def _follow(self, watch: WatchList) -> None:
        if watch is not self._followed:
            self._followed = watch
            self._gangs = {
                watched.attempt: self._gangs.get(watched.attempt)
                or _Gang(attempt=watched.attempt, nodes=_nodes(watched.nodes))
                for watched in watch.attempts
            }


def _nodes(names: Iterable[str]) -> dict[str, _Node]:
    """Begin with nodes one after the other, so that those of a large gang do not complete their buckets all at once."""
    return {
        name: _Node(start_seconds=START_SECONDS + index % NUM_TURNS * BUCKET_SECONDS / NUM_TURNS)
        for index, name in enumerate(names)
    }


def _time(seconds: float) -> str:
    return f"{seconds / 3600:.3g} h" if seconds < 2 * 86400 else f"{seconds / 86400:.3g} days"
