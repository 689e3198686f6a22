"""What results say: each is good or bad beside its peers and a floor, or says nothing; counted by node and by pair."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from runner.decide.isolate.fleet import Fleet, Pair
from runner.decide.isolate.peers import LEAST_RATIO, MIN_PEERS, PeerLimit, peer_limit
from runner.facts.messages.isolation import AloneResult, PairResult

Results = Sequence[AloneResult | PairResult]
Sign = Literal["good", "bad", "incomparable"]
# Hardware class; of pairs the classes of both ends, and their distance.
PairClass = tuple[str, str, int]
PeerClass = tuple[str] | PairClass


@dataclass(slots=True)
class AloneTally:
    """What a node's results alone were, counted."""

    good: int = 0
    bad: int = 0
    wrong: int = 0
    failed: int = 0
    incomparable: int = 0
    unmeasured: int = 0
    # The least of the bad rates.
    worst: float = math.inf

    @property
    def num_results(self) -> int:
        """All of them; `failed` and slow ones are the bad ones."""
        return self.good + self.bad + self.wrong + self.incomparable + self.unmeasured

    @property
    def lead(self) -> int:
        """How many more were bad than good."""
        return self.bad - self.good


@dataclass(slots=True)
class PairTally:
    """What a pair's results were, counted. `bad` ones do not show which end; `failed_at` does."""

    good: int = 0
    bad: int = 0
    failed: int = 0
    failed_at: dict[str, int] = field(default_factory=dict)
    incomparable: int = 0
    unmeasured: int = 0
    worst: float = math.inf

    @property
    def num_results(self) -> int:
        """All of them."""
        named = sum(self.failed_at.values())
        return self.good + self.bad + named + self.incomparable + self.unmeasured

    @property
    def lead(self) -> int:
        """How many more were bad than good, of those that do not show which end."""
        return self.bad - self.good

    @property
    def is_good(self) -> bool:
        """Whether some were good, and no more were bad."""
        return 0 < self.good >= self.bad

    @property
    def least_rate(self) -> float:
        """The least of the bad rates; 0 if it failed."""
        return self.worst if math.isfinite(self.worst) else 0.0

    def lead_against(self, node: str) -> int:
        """How many more speak against this end than for it."""
        return self.bad + self.failed_at.get(node, 0) - self.good


@dataclass(slots=True)
class Readings:
    """All results of a question, counted."""

    alone: dict[str, AloneTally]
    pairs: dict[Pair, PairTally] = field(default_factory=dict)
    partners: dict[str, dict[str, PairTally]] = field(default_factory=dict)
    # Of the rates by which they were judged.
    limits: dict[PeerClass, PeerLimit] = field(default_factory=dict)
    # Classes of which every rate is beyond the floor: the floor is wrong, or the whole class is bad.
    suspect_floors: dict[PeerClass, float] = field(default_factory=dict)


def read(fleet: Fleet, results: Results) -> Readings:
    """Judge each result, and count. What names unknown nodes, and what is reported twice, counts for nothing."""
    readings = Readings(
        alone={node: AloneTally() for node in fleet.nodes},
        partners={node: {} for node in fleet.nodes},
    )
    alone: dict[PeerClass, list[tuple[Pair, AloneResult]]] = {}
    pairs: dict[PairClass, list[tuple[Pair, PairResult]]] = {}
    for result in dict.fromkeys(results):
        if isinstance(result, AloneResult):
            if result.node in fleet.index:
                ends = (result.node, result.node)
                alone.setdefault((fleet.classes[result.node],), []).append((ends, result))
        elif all(node in fleet.index for node in result.nodes) and len({*result.nodes}) > 1:
            pair = fleet.pair(*result.nodes)
            pairs.setdefault(pair_class(fleet, pair), []).append((pair, result))
    for peer_class, each in alone.items():
        signs = _Signs(readings, peer_class, each, floor=fleet.floor(each[0][0][0]).alone)
        for (node, _), result in each:
            _count_alone(readings.alone[node], result, signs)
    # The nearest first: what they say of nodes calibrates those farther apart.
    for peer_class, of_pairs in sorted(pairs.items(), key=lambda item: (item[0][2], item[0])):
        _read_pairs(fleet, readings, peer_class, of_pairs)
    in_order = sorted(readings.pairs, key=lambda pair: [fleet.index[node] for node in pair])
    readings.pairs = {pair: readings.pairs[pair] for pair in in_order}
    for (a, b), tally in readings.pairs.items():
        readings.partners[a][b] = readings.partners[b][a] = tally
    return readings


def _read_pairs(
    fleet: Fleet,
    readings: Readings,
    peer_class: PairClass,
    results: Sequence[tuple[Pair, PairResult]],
) -> None:
    """Count the results of one class of pairs.

    Where the class is compared with nearer pairs, only pairs of nodes that those found good are peers: else a class with no good
    pair, such as suspects with references elsewhere, would make a bad one the measure.
    """
    distance = peer_class[2]
    nearer = [each for each in readings.pairs if fleet.distance(*each) < distance]
    good = {node for each in nearer if readings.pairs[each].is_good for node in each}
    peers = results
    if good:
        peers = [(pair, result) for pair, result in results if good.issuperset(pair)]
    ratios = [limit.ratio for each, limit in readings.limits.items() if len(each) > 1]
    signs = _Signs(
        readings,
        peer_class,
        peers,
        floor=fleet.pair_floor(results[0][0]),
        least_ratio=max(ratios, default=LEAST_RATIO) if good else LEAST_RATIO,
    )
    for pair, result in results:
        tally = readings.pairs.get(pair)
        if tally is None:
            tally = readings.pairs[pair] = PairTally()
        _count_pair(tally, pair, result, signs)


def pair_class(fleet: Fleet, pair: Pair) -> PairClass:
    """Return the class of pairs that a pair is compared with."""
    first, second = sorted(fleet.classes[node] for node in pair)
    return first, second, fleet.distance(*pair)


class _Signs:
    """Says of one class's rates whether they are good."""

    def __init__(
        self,
        readings: Readings,
        peer_class: PeerClass,
        results: Sequence[tuple[Pair, AloneResult | PairResult]],
        *,
        floor: float | None,
        least_ratio: float = LEAST_RATIO,
    ) -> None:
        rates = [(ends, result.rate) for ends, result in results if is_rate(result.rate)]
        values = [rate for _, rate in rates if rate is not None]
        self._nodes = {node: True for ends, _ in rates for node in ends}
        self._has_failed = any(
            isinstance(result, PairResult) and bool(result.failed) for _, result in results
        )
        self._limit = peer_limit(values, least_ratio=least_ratio) if values else None
        if self._limit is not None:
            readings.limits[peer_class] = self._limit
        self._floor = floor
        subjects = {ends: True for ends, _ in rates}
        if floor is not None and len(subjects) > 1 and all(value < floor for value in values):
            readings.suspect_floors[peer_class] = floor
            self._floor = None

    def sign(self, ends: Pair, rate: float) -> Sign:
        """Return what a rate says beside its peers and the floor.

        Without either it says nothing, unless other pairs have failed: beside these a pair that works is good.
        """
        a, b = ends
        num_peers = len(self._nodes) - (a in self._nodes) - (b != a and b in self._nodes)
        limit = self._limit if num_peers >= MIN_PEERS else None
        if limit is None and self._floor is None:
            return "good" if self._has_failed else "incomparable"
        is_slow = limit is not None and rate < limit.least
        is_below = self._floor is not None and rate < self._floor
        return "bad" if is_slow or is_below else "good"


def is_rate(rate: float | None) -> bool:
    """Whether a rate is one: finite and above 0."""
    return rate is not None and math.isfinite(rate) and rate > 0


def _count_alone(tally: AloneTally, result: AloneResult, signs: _Signs) -> None:
    if result.is_wrong:
        tally.wrong += 1
    elif result.is_failed:
        tally.bad += 1
        tally.failed += 1
    elif result.rate is None or not is_rate(result.rate):
        tally.unmeasured += 1
    else:
        sign = signs.sign((result.node, result.node), result.rate)
        setattr(tally, sign, getattr(tally, sign) + 1)
        if sign == "bad":
            tally.worst = min(tally.worst, result.rate)


def _count_pair(tally: PairTally, pair: Pair, result: PairResult, signs: _Signs) -> None:
    failed = [node for node in pair if node in result.failed]
    if len(failed) == 1:
        tally.failed_at[failed[0]] = tally.failed_at.get(failed[0], 0) + 1
    elif failed:
        tally.bad += 1
        tally.failed += 1
    elif result.rate is None or not is_rate(result.rate):
        tally.unmeasured += 1
    else:
        sign = signs.sign(pair, result.rate)
        setattr(tally, sign, getattr(tally, sign) + 1)
        if sign == "bad":
            tally.worst = min(tally.worst, result.rate)
