"""Stragglers: ranks that compute more slowly than their peers. The gang waits for them at every step, and nothing else shows it.

Ranks of a gang that steps together take the same time for a step; who is slow shows only in `compute_seconds`, which leaves the
collectives out. Peers are the ranks of one pipeline stage; of ranks that say no stage run.yaml's `pipeline` is believed.

In each window a rank's value is the least of the medians that its node told in it: what disturbs a rank for some seconds is not
in it. A rank is slow in a window if it is both by a ratio and by several spreads (median absolute deviation) above its peers'
median. It is a straggler once it was slow in most windows of some minutes, and no longer once it was so in few.

Who cannot be told apart is not named:
- Two peers have no spread. If they have said their stage, the slower one is named at twice the other; if not, they may be two
  stages, and neither is.
- With few peers a spread is a guess, so the ratio is larger.
- More than a third of the peers above the rest are no stragglers: the work is uneven, or they are stages that nobody told us of.

Soft state: another supervisor, and another attempt, begin anew and need the whole time again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from runner.facts.faults import Finding
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat
from runner.facts.watch import WatchedAttempt, WatchList
from runner.facts.wording import join_words

# Of a window, at least; it lasts until most ranks have told of a step in it. Chosen: three words of each node.
WINDOW_SECONDS = 30.0
# of the ranks that ever told, in a window that is judged; chosen
REPORTED_SHARE = 0.8
# Windows that count, the newest: a quarter of an hour. A straggler was slow in so many of them, twelve minutes, in which one by a
# fifth costs two; one that is none any longer may still have been slow in so few. All chosen.
NUM_WINDOWS, SLOW_WINDOWS, FAST_WINDOWS = 30, 24, 6
# A tenth and some spreads are what EROICA, Greyhound and NVRx go by (10 %, 5 MAD); that both must hold is our choice.
SLOW_RATIO, SPREADS = 1.10, 5.0
# below so many; chosen
FEW_PEERS, FEW_RATIO, FEW_SPREADS = 8, 1.15, 3.0
# of two peers that have said their stage: 1.5 was seen among healthy ones on a busy machine; chosen
PAIR_RATIO = 2.0
# of the peers of a stage; chosen
MOST_SLOW_SHARE = 1 / 3
# findings of one attempt: more nodes tell nobody more; chosen
MAX_TOLD = 8
# of one node, in the evidence; chosen
MAX_RANKS_SHOWN = 8
# a normal distribution's standard deviation in median absolute deviations
DEVIATION = 1.4826
_MASK = (1 << NUM_WINDOWS) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    """The least that a rank computed in a window, and where it belongs."""

    rank: int
    seconds: float
    stage: int | None
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slow:
    """A rank that was slow in a window, and what it was compared with."""

    told: _Told
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


@dataclass(slots=True, kw_only=True)
class _Gang:
    attempt: AttemptId
    watched: WatchedAttempt
    # ranks that ever told
    known: dict[int, None] = field(default_factory=dict)
    window: dict[int, _Told] = field(default_factory=dict)
    opened_at: float | None = None
    # of ranks that were slow of late
    records: dict[int, _Record] = field(default_factory=dict)
    # node -> ranks, while it lasts
    found: dict[str, tuple[int, ...]] = field(default_factory=dict)
    num_told: int = 0


class StragglerDetector:
    """Compares the ranks of each watched gang. A heartbeat that tells of no seconds costs nothing."""

    def __init__(self) -> None:
        self._gangs: dict[AttemptId, _Gang] = {}
        self._followed: WatchList | None = None

    def heard(self, beat: Heartbeat, watch: WatchList, now: float) -> list[Finding]:
        """Take a heartbeat in; say who is a straggler, or that nobody is any longer, when it completes a window."""
        if not beat.computed or beat.attempt is None:
            return []
        self._follow(watch)
        gang = self._gangs.get(beat.attempt)
        if gang is None:
            return []
        if gang.opened_at is None:
            gang.opened_at = now
        for item in beat.computed:
            before = gang.window.get(item.rank)
            if 0.0 < item.seconds < math.inf and (before is None or item.seconds < before.seconds):
                gang.known[item.rank] = None
                gang.window[item.rank] = _Told(
                    rank=item.rank, seconds=item.seconds, stage=item.stage, node=beat.node
                )
        is_whole = len(gang.window) >= REPORTED_SHARE * len(gang.known)
        if now < gang.opened_at + WINDOW_SECONDS or not is_whole:
            return []
        self._close(gang, gang.opened_at)
        gang.window, gang.opened_at = {}, now
        return [*_over(gang), *_found(gang, now)]

    def shift(self, seconds: float) -> None:
        """Allow for a time in which nobody listened."""
        for gang in self._gangs.values():
            gang.window = {}
            if gang.opened_at is not None:
                gang.opened_at += seconds

    def _close(self, gang: _Gang, opened_at: float) -> None:
        stages: dict[int | None, list[_Told]] = {}
        for told in gang.window.values():
            stages.setdefault(_stage_of(told, gang.watched), []).append(told)
        slow = {each.told.rank: each for peers in stages.values() for each in slow_ranks(peers)}
        for rank, record in list(gang.records.items()):
            record.windows = (record.windows << 1) & _MASK
            if rank not in slow and record.windows == 0:
                del gang.records[rank]
        for rank, each in slow.items():
            kept = gang.records.setdefault(rank, _Record(since=opened_at, newest=each))
            kept.windows, kept.newest = kept.windows | 1, each

    def _follow(self, watch: WatchList) -> None:
        if watch is not self._followed:
            self._followed = watch
            self._gangs = {
                watched.attempt: self._gangs.get(watched.attempt)
                or _Gang(attempt=watched.attempt, watched=watched)
                for watched in watch.attempts
            }


def _stage_of(told: _Told, watched: WatchedAttempt) -> int | None:
    """Return a rank's stage: as it says, or as run.yaml does, where ranks count through stages last."""
    if told.stage is not None or watched.pipeline < 2 or watched.num_ranks % watched.pipeline:
        return told.stage
    return told.rank * watched.pipeline // watched.num_ranks


def slow_ranks(peers: Sequence[_Told]) -> list[_Slow]:
    """Return those of one stage that are slow in a window, or nobody where they cannot be told apart."""
    if len(peers) < 2:
        return []
    ordered = sorted(told.seconds for told in peers)
    # the lower one of two: who is slow is above it
    middle = (len(ordered) - 1) // 2
    median = ordered[middle]
    if len(peers) == 2:
        limit = PAIR_RATIO * median if peers[0].stage is not None else math.inf
    else:
        spread = DEVIATION * sorted(abs(seconds - median) for seconds in ordered)[middle]
        is_few = len(peers) < FEW_PEERS
        ratio, spreads = (FEW_RATIO, FEW_SPREADS) if is_few else (SLOW_RATIO, SPREADS)
        limit = max(ratio * median, median + spreads * spread)
    slow = [told for told in peers if told.seconds > limit]
    if len(slow) > max(1, MOST_SLOW_SHARE * len(peers)):
        return []
    return [_Slow(told=told, median=median, num_peers=len(peers) - 1) for told in slow]


def _found(gang: _Gang, now: float) -> Iterator[Finding]:
    """Name stragglers, one finding for all ranks of a node."""
    nodes: dict[str, list[int]] = {}
    for rank, record in sorted(gang.records.items()):
        if record.count >= SLOW_WINDOWS and record.newest.told.node not in gang.found:
            nodes.setdefault(record.newest.told.node, []).append(rank)
    for node, ranks in nodes.items():
        if gang.num_told >= MAX_TOLD:
            return
        # Those beside them that are on the way are of the same cause.
        near = [
            rank
            for rank, record in sorted(gang.records.items())
            if record.newest.told.node == node and record.count >= SLOW_WINDOWS / 2
        ]
        gang.found[node] = tuple(near)
        gang.num_told += 1
        worst = max((gang.records[rank] for rank in ranks), key=_excess)
        yield Finding(
            fault="straggler",
            evidence=_evidence(worst, near, now),
            attempt=gang.attempt,
            node=node,
            rank=_only(near),
        )


def _over(gang: _Gang) -> Iterator[Finding]:
    """Say of which nodes no rank that was found is slow any longer."""
    for node, ranks in list(gang.found.items()):
        records = [gang.records[rank] for rank in ranks if rank in gang.records]
        if all(record.count <= FAST_WINDOWS for record in records):
            del gang.found[node]
            yield Finding(
                fault="straggler",
                evidence=f"{node} computes as fast as its peers again",
                attempt=gang.attempt,
                node=node,
                rank=_only(ranks),
                is_over=True,
            )


def _only(ranks: Sequence[int]) -> int | None:
    return ranks[0] if len(ranks) == 1 else None


def _excess(record: _Record) -> float:
    return record.newest.told.seconds / record.newest.median


def _evidence(record: _Record, ranks: Sequence[int], now: float) -> str:
    newest, told = record.newest, record.newest.told
    stage = "" if told.stage is None else f" of stage {told.stage}"
    peers = f"the median of {newest.num_peers + 1} ranks{stage}"
    if newest.num_peers == 1:
        peers = f"its only peer{stage}"
    more = f"{(_excess(record) - 1) * 100:.0f} % more"
    where = f"rank {told.rank} on {told.node}"
    shown = join_words(ranks, most=MAX_RANKS_SHOWN)
    others = f"; slow there: ranks {shown}" if len(ranks) > 1 else ""
    return (
        f"{where} computes {told.seconds:.4g} s a step, {peers} {newest.median:.4g} s ({more}), "
        f"slow in {record.count} of {NUM_WINDOWS} windows, for {(now - record.since) / 60:.1f} min{others}"
    )
