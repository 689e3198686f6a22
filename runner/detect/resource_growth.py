"""Resource growth: memory and descriptors of ranks that grow for hours, and will reach the limit of a node or a rank in days.

A rank's history is the least it used in each half hour, which leaves out what comes and goes (evaluations, checkpoints, garbage
that is collected). Its last hours, in several lengths, are split into six parts. Growth is steady if each part rises above the one
before by a fair share of the mean rise, the last rises are not much less than the first, and the whole rise stands out of the
residuals of the line. A cache that fills and stays, a step, or a sawtooth is not; nor is a rank that has been as high before.

A finding is made if the limit is reached within the time in `AHEAD_SECONDS`: the longer a growth was seen, the further it is
extrapolated, so a leak that ends a run tonight is found within hours, and one that ends it in a month after two days. Memory is
counted by node, over all its ranks that grow; descriptors by process. A leak and a very large cache look alike.

Another attempt starts over and needs hours again. Another supervisor continues with the nodes that have grown most, as many as
fit into its summary; the ranks of the others start over.
"""

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from runner.detect.detector import Detector, NodeSilence, WatchedGangs, register
from runner.errors import WireError
from runner.facts import wire
from runner.facts.faults import Fault, Finding
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat
from runner.facts.watch import WatchedAttempt, WatchList
from runner.facts.wire import Value

# Of a rank's run time, in which growth is normal; chosen.
START_SECONDS = 3600.0
# Of which the least value is kept; chosen.
BUCKET_SECONDS = 1800.0
# Offsets at which the nodes of a gang complete their buckets; chosen.
NUM_TURNS = 30
# Chosen.
NUM_PARTS = 6
# Buckets that are judged together -> how far ahead their growth is extrapolated. Chosen: 3 and 6 hours for half as long, 12 hours
# for two days, a day for eight, two days for thirty. So a rise is at least 6 % of what was left, and 67 % in hours.
AHEAD_SECONDS = {6: 1.5 * 3600, 12: 3 * 3600, 24: 2 * 86400, 48: 8 * 86400, 96: 30 * 86400}
MAX_BUCKETS = max(AHEAD_SECONDS)
# Of the mean rise, in each part; chosen.
LEAST_SHARE = 0.4
# Of the first two rises, in the last two; chosen.
LEAST_LAST_SHARE = 0.7
# Of the line's residuals, in the whole rise; chosen.
LEAST_SPREADS = 8.0
# Share of the earlier buckets that the rise must end above; chosen.
HIGH_SHARE = 0.9
# The least growth that is judged; chosen.
LEAST_BYTES, LEAST_DESCRIPTORS = 64e6, 24.0
# Of one node; chosen.
MAX_RANKS = 64
# Whose series another supervisor continues with, the steepest nodes; chosen: they take 20 KB.
MAX_KEPT_RANKS = 16
# Of one attempt and fault: all ranks of a program leak alike; chosen.
MAX_FINDINGS = 4
# Bytes or descriptors; more is a reporting error.
MAX_VALUE = 1 << 60
GB = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """A steady growth: units a second, over how many seconds it was seen, and how far ahead it is extrapolated."""

    rate: float
    seconds: float
    ahead_seconds: float


class Series:
    """One rank's use of one resource: the least of each bucket. Four bytes a bucket; `MAX_BUCKETS` at most."""

    __slots__ = ("_begins_at", "_closes_at", "_floors", "_lowest", "newest")

    def __init__(self, now: float, start_seconds: float = START_SECONDS) -> None:
        self._begins_at = now + start_seconds
        self._closes_at = self._begins_at + BUCKET_SECONDS
        self._lowest = math.inf
        self._floors = array("f")
        self.newest = 0.0

    def add(self, value: int, now: float) -> bool:
        """Add a sample; return whether a bucket is complete. A bucket without samples gets its neighbour's value."""
        self.newest = float(min(max(value, 0), MAX_VALUE))
        if now < self._begins_at:
            return False
        is_complete = now >= self._closes_at
        while now >= self._closes_at:
            self._floors.append(self._lowest if self._lowest < math.inf else self.newest)
            self._closes_at += BUCKET_SECONDS
        if is_complete:
            del self._floors[:-MAX_BUCKETS]
            self._lowest = math.inf
        self._lowest = min(self._lowest, self.newest)
        return is_complete

    @property
    def rise(self) -> float:
        """By how much its newest bucket lies above its first one; 0 before there are two."""
        return self._floors[-1] - self._floors[0] if len(self._floors) > 1 else 0.0

    def dump(self) -> "SeriesMemory":
        """Return all of it: 560 bytes as JSON at most."""
        return SeriesMemory(
            begins_at=self._begins_at,
            closes_at=self._closes_at,
            floors=self._floors.tobytes(),
            lowest=self._lowest if self._lowest < math.inf else None,
            newest=self.newest,
        )

    @staticmethod
    def load(memory: "SeriesMemory", now: float) -> "Series":
        """Return the series of a dump; raise WireError if its times or values are impossible."""
        series = Series(memory.begins_at, 0.0)
        if len(memory.floors) % 4 == 0:
            series._floors.frombytes(memory.floors)
        series._closes_at, series.newest = memory.closes_at, memory.newest
        series._lowest = math.inf if memory.lowest is None else memory.lowest
        numbers = [*series._floors, memory.newest, memory.lowest or 0.0]
        is_near = abs(memory.closes_at - now) < MAX_BUCKETS * BUCKET_SECONDS
        if (
            len(series._floors) > MAX_BUCKETS
            or len(memory.floors) % 4
            or not all(0.0 <= number <= MAX_VALUE for number in numbers)
            or not (is_near and memory.begins_at < memory.closes_at)
        ):
            raise WireError(
                f"{len(memory.floors)} bytes of buckets until {memory.closes_at:.0f} are no series at {now:.0f}"
            )
        return series

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


class SeriesMemory(Value, forbid_unknown_fields=True):
    """A `Series`. Times are the controller's, `floors` four bytes a bucket."""

    begins_at: float
    closes_at: float
    floors: bytes = b""
    lowest: float | None = None
    newest: float = 0.0


def steady_rise(floors: "array[float]") -> float:
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


def _high(floors: "array[float]") -> float:
    """Return what most of the earlier buckets lie below; minus infinity for too few."""
    if len(floors) < NUM_PARTS:
        return -math.inf
    return sorted(floors)[int(HIGH_SHARE * (len(floors) - 1))]


@dataclass(slots=True)
class _Rank:
    memory: Series
    descriptors: Series
    # Of its memory, at its last complete bucket.
    trends: tuple[Trend, ...] = ()
    reported: dict[Fault, None] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class _Node:
    start_seconds: float
    ranks: dict[int, _Rank] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class _Gang:
    attempt: AttemptId
    nodes: dict[str, _Node]
    num_findings: dict[Fault, int] = field(default_factory=dict)
    # Of the nodes that another supervisor would continue with: by how much their memory rose.
    steepest: dict[str, float] = field(default_factory=dict)


class KeptRank(Value):
    """A rank of a node, and which of its faults were reported."""

    rank: int
    memory: SeriesMemory
    descriptors: SeriesMemory
    reported: tuple[Fault, ...] = ()


class GrowthMemory(Value, forbid_unknown_fields=True):
    """What is kept of a gang: some of its nodes."""

    attempt: AttemptId
    nodes: Mapping[str, tuple[KeptRank, ...]] = field(default_factory=dict)
    num_findings: Mapping[Fault, int] = field(default_factory=dict)


@register
class ResourceGrowth(Detector):
    """Follows the resources of ranks of watched gangs. A heartbeat that reports none costs nothing."""

    order = 60
    is_advisory = True

    def __init__(self, silence: NodeSilence | None = None) -> None:
        super().__init__(silence)
        self._gangs = WatchedGangs(self._begin)
        # By run, until its first heartbeat.
        self._loaded: dict[int, _Gang] = {}

    def _begin(self, watched: WatchedAttempt) -> _Gang:
        gang = _Gang(attempt=watched.attempt, nodes=_nodes(watched.nodes))
        loaded = self._loaded.pop(watched.attempt.run, None)
        if loaded is not None and loaded.attempt == watched.attempt:
            for name, node in loaded.nodes.items():
                if name in gang.nodes:
                    gang.nodes[name].ranks = node.ranks
                    gang.steepest[name] = _rise(node)
            gang.num_findings = loaded.num_findings
        return gang

    def dump(self, run: int, now: float) -> object | None:
        """Return the series of the steepest nodes: 20 KB at most."""
        for gang in (*self._gangs.known.values(), *self._loaded.values()):
            if gang.attempt.run == run and gang.steepest:
                return _dump(gang)
        return None

    def load(self, run: int, dumped: object, now: float) -> None:
        """Continue from a dump, as plain JSON; raise WireError if it does not fit."""
        memory: GrowthMemory = wire.from_plain(GrowthMemory, dumped)
        nodes = {}
        for name, ranks in memory.nodes.items():
            node = nodes[name] = _Node(start_seconds=START_SECONDS)
            for one in ranks:
                rank = node.ranks[one.rank] = _Rank(
                    Series.load(one.memory, now), Series.load(one.descriptors, now)
                )
                rank.trends = tuple(rank.memory.trends(LEAST_BYTES))
                rank.reported = dict.fromkeys(one.reported)
        self._loaded[run] = _Gang(
            attempt=memory.attempt,
            nodes=nodes,
            num_findings=dict(memory.num_findings),
            steepest={name: _rise(node) for name, node in nodes.items()},
        )

    def on_heartbeat(self, heartbeat: Heartbeat, watch: WatchList, now: float) -> list[Finding]:
        """Report ranks of the node that grow towards a limit, once for each rank and fault."""
        gang = self._gangs.of(heartbeat, watch) if heartbeat.rank_resources else None
        if gang is None or heartbeat.node not in gang.nodes:
            return []
        node = gang.nodes[heartbeat.node]
        findings, grows, has_new = list[Finding](), False, False
        for item in heartbeat.rank_resources[:MAX_RANKS]:
            rank = node.ranks.get(item.rank)
            if rank is None:
                if len(node.ranks) >= MAX_RANKS:
                    continue
                rank = _Rank(Series(now, node.start_seconds), Series(now, node.start_seconds))
                node.ranks[item.rank] = rank
                _keep(gang, heartbeat.node)
            if rank.memory.add(item.memory_bytes, now):
                has_new = True
                rank.trends = tuple(rank.memory.trends(LEAST_BYTES))
                grows = grows or bool(rank.trends)
            limit = item.descriptors_limit
            if item.descriptors is None or limit is None:
                continue
            if rank.descriptors.add(item.descriptors, now):
                findings += self._judge_descriptors(gang, heartbeat.node, item.rank, limit)
        if has_new:
            _keep(gang, heartbeat.node)
        if grows and heartbeat.memory_free_bytes > 0:
            findings += self._judge_memory(gang, heartbeat.node, heartbeat.memory_free_bytes)
        return findings

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
                yield from self._report(gang, "host_memory_growth", node, number, evidence)
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
                yield from self._report(gang, "descriptor_growth", node, number, evidence)
                break

    def _report(
        self, gang: _Gang, fault: Fault, node: str, number: int, evidence: str
    ) -> Iterator[Finding]:
        rank = gang.nodes[node].ranks[number]
        if fault in rank.reported or gang.num_findings.get(fault, 0) >= MAX_FINDINGS:
            return
        rank.reported[fault] = None
        gang.num_findings[fault] = gang.num_findings.get(fault, 0) + 1
        yield Finding(fault=fault, evidence=evidence, attempt=gang.attempt, node=node, rank=number)


def _rise(node: _Node) -> float:
    return sum(rank.memory.rise for rank in node.ranks.values())


def _keep(gang: _Gang, name: str) -> None:
    """Keep a node for another supervisor if it has risen more than those that are kept."""
    gang.steepest[name] = _rise(gang.nodes[name])
    num_ranks = sum(len(gang.nodes[each].ranks) for each in gang.steepest)
    while num_ranks > MAX_KEPT_RANKS and len(gang.steepest) > 1:
        least = min(gang.steepest, key=lambda each: gang.steepest[each])
        del gang.steepest[least]
        num_ranks -= len(gang.nodes[least].ranks)


def _steepest(node: _Node) -> list[tuple[int, _Rank]]:
    ranks = sorted(node.ranks.items(), key=lambda item: item[1].memory.rise, reverse=True)
    return ranks[:MAX_KEPT_RANKS]


def _dump(gang: _Gang) -> GrowthMemory:
    nodes = {
        name: tuple(
            KeptRank(
                rank=number,
                memory=rank.memory.dump(),
                descriptors=rank.descriptors.dump(),
                reported=tuple(rank.reported),
            )
            for number, rank in _steepest(gang.nodes[name])
        )
        for name in gang.steepest
    }
    return GrowthMemory(attempt=gang.attempt, nodes=nodes, num_findings=gang.num_findings)


def _nodes(names: Iterable[str]) -> dict[str, _Node]:
    """Stagger the nodes, so that those of a large gang do not complete their buckets all at once."""
    return {
        name: _Node(start_seconds=START_SECONDS + index % NUM_TURNS * BUCKET_SECONDS / NUM_TURNS)
        for index, name in enumerate(names)
    }


def _time(seconds: float) -> str:
    return f"{seconds / 3600:.3g} h" if seconds < 2 * 86400 else f"{seconds / 86400:.3g} days"
