"""Stragglers: ranks that compute more slowly than their peers. The gang waits for them at every step, and nothing else shows it.

Ranks of a gang that steps together take the same time for a step; a slow one shows only in `compute_seconds`, which leaves the
collectives out. Peers are the ranks of one pipeline stage; for ranks that report no stage, run.yaml's `pipeline` gives it.

In each window a rank's value is the least of the medians that its node reported in it, which leaves out disturbances of some
seconds. A rank is slow in a window if it is both by a ratio and by several spreads (median absolute deviation) above its peers'
median. It is a straggler once it was slow in most windows of some minutes, and no longer once it was so in few.

A doubtful rank is not named:
- Two peers have no spread. If they report their stage, the slower one is named at twice the other; if not, they may be two
  stages, and neither is.
- With few peers a spread is a guess, so the ratio is larger.
- More than a third of the peers above the rest are no stragglers: the work is uneven, or they are stages that were not reported.

Another attempt starts over and needs the whole time again. Another supervisor continues; the window that is open goes on in a
small gang, and is begun again in a large one.
"""

import heapq
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from runner.detect.detector import Detector, NodeSilence, WatchedGangs, register
from runner.errors import WireError
from runner.facts import wire
from runner.facts.faults import Finding
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat
from runner.facts.watch import WatchedAttempt, WatchList
from runner.facts.wire import Value
from runner.facts.wording import join_words

# Of a window, at least; it lasts until most ranks have reported a step in it. Chosen: three reports of each node.
WINDOW_SECONDS = 30.0
# Of the ranks that ever reported, in a window that is judged; chosen.
REPORTED_SHARE = 0.8
# The newest windows, a quarter of an hour; in how many of them a straggler was slow (twelve minutes, in which one by a fifth costs
# two); and in how few once it has recovered. All chosen.
NUM_WINDOWS, SLOW_WINDOWS, FAST_WINDOWS = 30, 24, 6
# A tenth and some spreads are what EROICA, Greyhound and NVRx go by (10 %, 5 MAD); that both must hold is our choice.
SLOW_RATIO, SPREADS = 1.10, 5.0
# Limits for fewer peers than this; chosen.
FEW_PEERS, FEW_RATIO, FEW_SPREADS = 8, 1.15, 3.0
# Of two peers that report their stage: 1.5 was seen among healthy ones on a busy machine; chosen.
PAIR_RATIO = 2.0
# Of the peers of a stage; chosen.
MOST_SLOW_SHARE = 1 / 3
# Of one attempt; chosen.
MAX_FINDINGS = 8
# Of one node, in the evidence; chosen.
MAX_RANKS_SHOWN = 8
# Slow ranks, and samples of the open window, for another supervisor; chosen: 7 KB.
MAX_KEPT = 32
# A normal distribution's standard deviation in median absolute deviations.
DEVIATION = 1.4826
_MASK = (1 << NUM_WINDOWS) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sample:
    """The least compute time of a rank in a window, and where it belongs."""

    rank: int
    seconds: float
    stage: int | None
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slow:
    """A rank that was slow in a window, and what it was compared with."""

    sample: _Sample
    median: float
    num_peers: int


@dataclass(slots=True, kw_only=True)
class _Record:
    """In which of the last windows a rank was slow, one bit each; where it is now; since when."""

    windows: int = 0
    since: float
    newest: _Slow

    @property
    def count(self) -> int:
        """Return the number of these windows."""
        return self.windows.bit_count()


@dataclass(slots=True)
class _Gang:
    watched: WatchedAttempt
    # Ranks that ever reported.
    known: dict[int, None] = field(default_factory=dict)
    window: dict[int, _Sample] = field(default_factory=dict)
    opened_at: float | None = None
    # Of ranks that were slow in the newest windows.
    records: dict[int, _Record] = field(default_factory=dict)
    # Node -> its slow ranks, until they recover.
    reported: dict[str, tuple[int, ...]] = field(default_factory=dict)
    num_findings: int = 0
    # Ranks that had reported to another supervisor.
    least_known: int = 0

    @property
    def num_known(self) -> int:
        """Return the number of ranks that ever reported."""
        return max(len(self.known), self.least_known)


class KeptRecord(Value):
    """A `_Record`, and the numbers of its newest window. Times are the controller's."""

    rank: int
    windows: int
    since: float
    seconds: float
    median: float
    num_peers: int
    node: str
    stage: int | None = None


class KeptSample(Value):
    """A `_Sample`."""

    rank: int
    seconds: float
    node: str
    stage: int | None = None


class StragglerMemory(Value, forbid_unknown_fields=True):
    """What is kept of a gang. `num_known`: of ranks that ever reported."""

    attempt: AttemptId
    num_known: int = 0
    records: tuple[KeptRecord, ...] = ()
    reported: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    num_findings: int = 0
    window: tuple[KeptSample, ...] = ()
    # Seconds that the window has been open.
    opened_seconds: float | None = None


@register
class StragglerDetector(Detector):
    """Compares the ranks of each watched gang. A heartbeat that reports no compute times costs nothing."""

    order = 50
    is_advisory = True

    def __init__(self, silence: NodeSilence | None = None) -> None:
        super().__init__(silence)
        self._gangs = WatchedGangs(self._begin)
        # By run, until its first heartbeat.
        self._loaded: dict[int, _Gang] = {}

    def on_heartbeat(self, heartbeat: Heartbeat, watch: WatchList, now: float) -> list[Finding]:
        """Report stragglers, and nodes that have recovered, when the heartbeat completes a window."""
        gang = self._gangs.of(heartbeat, watch) if heartbeat.rank_computes else None
        if gang is None:
            return []
        if gang.opened_at is None:
            gang.opened_at = now
        for item in heartbeat.rank_computes:
            before = gang.window.get(item.rank)
            if 0.0 < item.seconds < math.inf and (before is None or item.seconds < before.seconds):
                gang.known[item.rank] = None
                gang.window[item.rank] = _Sample(
                    rank=item.rank, seconds=item.seconds, stage=item.stage, node=heartbeat.node
                )
        is_whole = len(gang.window) >= REPORTED_SHARE * gang.num_known
        if now < gang.opened_at + WINDOW_SECONDS or not is_whole:
            return []
        self._close(gang, gang.opened_at)
        gang.window, gang.opened_at = {}, now
        return [*_recovered(gang), *_new(gang, now)]

    def shift(self, seconds: float) -> None:
        for gang in self._gangs.known.values():
            gang.window = {}
            if gang.opened_at is not None:
                gang.opened_at += seconds

    def _begin(self, watched: WatchedAttempt) -> _Gang:
        gang = self._loaded.pop(watched.attempt.run, None)
        if gang is None or gang.watched.attempt != watched.attempt:
            return _Gang(watched)
        gang.watched = watched
        return gang

    def dump(self, run: int, now: float) -> object | None:
        for gang in (*self._gangs.known.values(), *self._loaded.values()):
            if gang.watched.attempt.run == run and gang.num_known:
                return _dump(gang, now)
        return None

    def load(self, run: int, dumped: object, now: float) -> None:
        memory: StragglerMemory = wire.from_plain(StragglerMemory, dumped)
        self._loaded[run] = _load(memory, now)

    def _close(self, gang: _Gang, opened_at: float) -> None:
        stages: dict[int | None, list[_Sample]] = {}
        for sample in gang.window.values():
            stages.setdefault(_stage_of(sample, gang.watched), []).append(sample)
        slow = {each.sample.rank: each for peers in stages.values() for each in slow_ranks(peers)}
        for rank, record in list(gang.records.items()):
            record.windows = (record.windows << 1) & _MASK
            if rank not in slow and record.windows == 0:
                del gang.records[rank]
        for rank, each in slow.items():
            record = gang.records.setdefault(rank, _Record(since=opened_at, newest=each))
            record.windows, record.newest = record.windows | 1, each


def _dump(gang: _Gang, now: float) -> StragglerMemory:
    """Return what is kept of a gang: of many slow ranks, those that were slow most often."""
    reported = {rank: None for ranks in gang.reported.values() for rank in ranks}
    often = heapq.nlargest(
        MAX_KEPT, gang.records.items(), key=lambda item: (item[0] in reported, item[1].count)
    )
    is_small = len(gang.window) <= MAX_KEPT and gang.opened_at is not None
    return StragglerMemory(
        attempt=gang.watched.attempt,
        num_known=gang.num_known,
        records=tuple(
            KeptRecord(
                rank=rank,
                windows=record.windows,
                since=record.since,
                seconds=record.newest.sample.seconds,
                median=record.newest.median,
                num_peers=record.newest.num_peers,
                node=record.newest.sample.node,
                stage=record.newest.sample.stage,
            )
            for rank, record in sorted(often)
        ),
        reported={node: ranks[:MAX_RANKS_SHOWN] for node, ranks in gang.reported.items()},
        num_findings=gang.num_findings,
        window=tuple(
            KeptSample(rank=one.rank, seconds=one.seconds, node=one.node, stage=one.stage)
            for one in (gang.window.values() if is_small else ())
        ),
        opened_seconds=now - gang.opened_at if is_small and gang.opened_at is not None else None,
    )


def _load(memory: StragglerMemory, now: float) -> _Gang:
    """Return the gang of a dump, whose ranks and nodes are not known yet; raise WireError for impossible numbers."""
    numbers = [one.seconds for one in memory.window]
    numbers += [number for one in memory.records for number in (one.seconds, one.median)]
    if not all(0.0 < number < math.inf for number in numbers):
        raise WireError(f"seconds of a step in {memory.attempt} are not positive numbers")
    watched = WatchedAttempt(
        attempt=memory.attempt, nodes=(), since=None, start_seconds=0.0, progress_seconds=0.0
    )
    gang = _Gang(watched, num_findings=memory.num_findings, reported=dict(memory.reported))
    gang.least_known = memory.num_known
    for one in memory.records:
        sample = _Sample(rank=one.rank, seconds=one.seconds, stage=one.stage, node=one.node)
        newest = _Slow(sample=sample, median=one.median, num_peers=one.num_peers)
        gang.records[one.rank] = _Record(
            windows=one.windows & _MASK, since=one.since, newest=newest
        )
    for item in memory.window:
        gang.window[item.rank] = _Sample(
            rank=item.rank, seconds=item.seconds, stage=item.stage, node=item.node
        )
    if memory.opened_seconds is not None:
        gang.opened_at = now - memory.opened_seconds
    return gang


def _stage_of(sample: _Sample, watched: WatchedAttempt) -> int | None:
    """Return a rank's stage as it reports it, or by run.yaml, where ranks count through stages last."""
    if sample.stage is not None or watched.pipeline < 2 or watched.num_ranks % watched.pipeline:
        return sample.stage
    return sample.rank * watched.pipeline // watched.num_ranks


def slow_ranks(peers: Sequence[_Sample]) -> list[_Slow]:
    """Return the ranks of one stage that are slow in a window; empty where that is not clear."""
    if len(peers) < 2:
        return []
    ordered = sorted(sample.seconds for sample in peers)
    # The lower one of two, so that the slow one is above it.
    middle = (len(ordered) - 1) // 2
    median = ordered[middle]
    if len(peers) == 2:
        limit = PAIR_RATIO * median if peers[0].stage is not None else math.inf
    else:
        spread = DEVIATION * sorted(abs(seconds - median) for seconds in ordered)[middle]
        is_few = len(peers) < FEW_PEERS
        ratio, spreads = (FEW_RATIO, FEW_SPREADS) if is_few else (SLOW_RATIO, SPREADS)
        limit = max(ratio * median, median + spreads * spread)
    slow = [sample for sample in peers if sample.seconds > limit]
    if len(slow) > max(1, MOST_SLOW_SHARE * len(peers)):
        return []
    return [_Slow(sample=sample, median=median, num_peers=len(peers) - 1) for sample in slow]


def _new(gang: _Gang, now: float) -> Iterator[Finding]:
    """Report new stragglers, one finding for all ranks of a node."""
    nodes: dict[str, list[int]] = {}
    for rank, record in sorted(gang.records.items()):
        if record.count >= SLOW_WINDOWS and record.newest.sample.node not in gang.reported:
            nodes.setdefault(record.newest.sample.node, []).append(rank)
    for node, ranks in nodes.items():
        if gang.num_findings >= MAX_FINDINGS:
            return
        # Ranks of the node that are becoming slow share the cause.
        near = [
            rank
            for rank, record in sorted(gang.records.items())
            if record.newest.sample.node == node and record.count >= SLOW_WINDOWS / 2
        ]
        gang.reported[node] = tuple(near)
        gang.num_findings += 1
        worst = max((gang.records[rank] for rank in ranks), key=_excess)
        yield Finding(
            fault="straggler",
            evidence=_evidence(worst, near, now),
            attempt=gang.watched.attempt,
            node=node,
            rank=_only(near),
        )


def _recovered(gang: _Gang) -> Iterator[Finding]:
    """Report nodes none of whose stragglers is slow any longer."""
    for node, ranks in list(gang.reported.items()):
        records = [gang.records[rank] for rank in ranks if rank in gang.records]
        if all(record.count <= FAST_WINDOWS for record in records):
            del gang.reported[node]
            yield Finding(
                fault="straggler",
                evidence=f"{node} computes as fast as its peers again",
                attempt=gang.watched.attempt,
                node=node,
                rank=_only(ranks),
                recovered=True,
            )


def _only(ranks: Sequence[int]) -> int | None:
    return ranks[0] if len(ranks) == 1 else None


def _excess(record: _Record) -> float:
    return record.newest.sample.seconds / record.newest.median


def _evidence(record: _Record, ranks: Sequence[int], now: float) -> str:
    newest, sample = record.newest, record.newest.sample
    stage = "" if sample.stage is None else f" of stage {sample.stage}"
    peers = f"the median of {newest.num_peers + 1} ranks{stage}"
    if newest.num_peers == 1:
        peers = f"its only peer{stage}"
    more = f"{(_excess(record) - 1) * 100:.0f} % more"
    where = f"rank {sample.rank} on {sample.node}"
    shown = join_words(ranks, most=MAX_RANKS_SHOWN)
    others = f"; slow there: ranks {shown}" if len(ranks) > 1 else ""
    return (
        f"{where} computes {sample.seconds:.4g} s a step, {peers} {newest.median:.4g} s ({more}), "
        f"slow in {record.count} of {NUM_WINDOWS} windows, for {(now - record.since) / 60:.1f} min{others}"
    )
