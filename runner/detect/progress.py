"""Progress: gangs that live and make no step, and ranks that are stopped. Liveness is not progress."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field

from runner.detect.blocked_ranks import BlockedRanksDetector, culprit, evidence_of
from runner.detect.learned_timeout import (
    COMPILE_FACTOR,
    COMPILING,
    PHASES,
    RULES,
    LearnedTimeout,
    Limit,
)
from runner.facts.faults import Finding
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat
from runner.facts.watch import WatchedAttempt, WatchList

# A gang up for longer than this when it is first watched was watched by another supervisor: how long it has been quiet is not
# known; chosen, not measured.
FOLLOWED_SECONDS = 1.0
# Of an attempt, before ranks that only write are held to a limit; chosen.
LEAST_WRITES = 20
LEAST_WRITING_SECONDS = 10.0
ANNOUNCED = ("evaluate", "checkpoint")
LEAST_FLOOR_SECONDS = min(rule.floor_seconds for rule in RULES.values())


@dataclass(slots=True, kw_only=True)
class _Gang:
    """What is known of one attempt. Times are those at which heartbeats arrived.

    `sign_at` is the last sign of progress (step, change of phase, write), None as long as none was seen to come.
    """

    watched: WatchedAttempt
    last_step: int | None = None
    advanced_at: float = 0.0
    # its ranks do, or are known to do so in time
    speaks: bool = False
    # a rank has ended
    is_ending: bool = False
    # node -> phase of its ranks
    phases: dict[str, str] = field(default_factory=dict)
    # phase -> nodes
    num_nodes_in: dict[str, int] = field(default_factory=dict)
    phase: str = "start"
    sign_at: float | None = None
    # first step, or first write of ranks that only write
    at_work_since: float | None = None
    # node -> when
    heard: dict[str, float] = field(default_factory=dict)
    # node -> incarnation of its agent
    lives: dict[str, int] = field(default_factory=dict)
    # node -> ranks
    alive: dict[str, int] = field(default_factory=dict)
    # node -> its count
    writes: dict[str, int] = field(default_factory=dict)
    num_writes: int = 0
    blocked: BlockedRanksDetector = field(default_factory=BlockedRanksDetector)
    # it had made steps before we came
    found_stepping: bool = False
    # findings already made, by name
    found: dict[str, bool] = field(default_factory=dict)

    @property
    def run(self) -> int:
        """Number of its run."""
        return self.watched.attempt.run

    @property
    def least_limit(self) -> float:
        """The shortest quiet, in seconds, that any learned limit may be."""
        watched = self.watched
        return min(LEAST_FLOOR_SECONDS, watched.start_seconds, watched.progress_seconds)

    @property
    def is_starting(self) -> bool:
        """Whether a first step, of which nothing is known, is waited for."""
        return self.speaks and self.last_step is None

    def begin(self, since: float) -> None:
        """Take over that all ranks are started by now: what any of them did before, waiting for the others, is no pace."""
        self.advanced_at = self.sign_at = since
        self.at_work_since = None if self.at_work_since is None else since

    def shift(self, seconds: float) -> None:
        """Allow for a time in which nobody listened."""
        self.advanced_at += seconds
        self.sign_at = None if self.sign_at is None else self.sign_at + seconds
        if self.at_work_since is not None:
            self.at_work_since += seconds
        self.heard = {node: at + seconds for node, at in self.heard.items()}
        self.blocked.shift(seconds)


class GangProgress:
    """Watches launched gangs: by fixed limits since the last step, and by limits learned from the run itself (`pace`).

    A gang that never reported a step is held to its start limit only if its ranks speak at all, or those of its run did;
    ranks that report nothing, only to the pace at which they write. Limits run once all nodes have started their ranks. What
    is learned is judged by heartbeats: not hearing from a node proves nothing about its ranks, so a quiet lasts as long as
    all nodes of the gang were heard in it.
    """

    def __init__(self, silence_seconds: float = math.inf) -> None:
        """A node not heard for `silence_seconds` was not watched meanwhile."""
        self._silence_seconds = silence_seconds
        self._gangs: dict[AttemptId, _Gang] = {}
        # Of runs, by number: a few words each, kept as long as we live.
        # by run and rule
        self._paces: dict[tuple[int, str], LearnedTimeout] = {}
        self._speaking: dict[int, bool] = {}
        # was seen in an evaluation or a checkpoint
        self._announcing: dict[int, bool] = {}
        # While this is watched, no fixed limit is passed before then: many gangs are not walked in vain.
        self._calm: tuple[WatchList | None, float] = (None, 0.0)
        # when anybody was heard last
        self._latest = 0.0

    def heard(self, beat: Heartbeat, now: float) -> list[Finding]:
        """Note steps, phases, writes and stopped ranks; say who is stopped, and whether the gang is quiet for too long."""
        self._latest = now
        gang = self._gangs.get(beat.attempt) if beat.attempt is not None else None
        if gang is None:
            return []
        before = (gang.speaks, gang.last_step is None, len(gang.heard))
        self._follow_node(gang, beat, now)
        if beat.phases or beat.last_step is not None:
            gang.speaks = self._speaking[gang.run] = True
            self._follow_steps(gang, beat, now)
        elif not gang.speaks:
            self._follow_writes(gang, beat, now)
        if before != (gang.speaks, gang.last_step is None, len(gang.heard)):
            # a limit holds that did not, or another one
            self._calm = (None, 0.0)
        if not beat.ranks_stopped:
            return self._judge(gang, now)
        return [*_stopped(gang, beat), *self._judge(gang, now)]

    def tick(self, watch: WatchList, now: float) -> list[Finding]:
        """Return findings about gangs past their fixed limit."""
        if self._calm[0] is watch and now < self._calm[1]:
            return []
        self._follow(watch, now)
        found = []
        for watched in watch.attempts:
            gang = self._gangs[watched.attempt]
            since, limit, phase = _fixed_limit(watched, gang)
            if limit > 0 and now >= since + limit and not gang.found.get("no_progress"):
                evidence = (
                    f"no step of {watched.attempt} for {now - since:.1f} s in phase {phase} "
                    f"(limit {limit:g} s, set in run.yaml)"
                )
                found.append(_no_progress(gang, evidence, now - since, now))
        due = self._first_due(watch)
        self._calm = (watch, math.inf if due is None else due)
        return found

    def shift(self, seconds: float) -> None:
        """Allow for a time in which nobody listened."""
        self._calm = (None, 0.0)
        for gang in self._gangs.values():
            gang.shift(seconds)

    def due_at(self, watch: WatchList) -> float | None:
        """Return when the next gang passes its fixed limit if it makes no step, or a time before that."""
        if self._calm[0] is watch and self._calm[1] > self._latest:
            return self._calm[1] if self._calm[1] < math.inf else None
        return self._first_due(watch)

    def _first_due(self, watch: WatchList) -> float | None:
        times = []
        for watched in watch.attempts:
            gang = self._gangs.get(watched.attempt)
            if gang is not None and not gang.found.get("no_progress"):
                since, limit, _ = _fixed_limit(watched, gang)
                times += [since + limit] if limit > 0 else []
        return min(times, default=None)

    # ---- what heartbeats tell ---------------------------------------------------------------------------------------

    def _follow_node(self, gang: _Gang, beat: Heartbeat, now: float) -> None:
        is_new = gang.lives.get(beat.node, beat.incarnation) != beat.incarnation
        away_seconds = now - gang.heard.get(beat.node, now)
        if (is_new or away_seconds >= self._silence_seconds) and gang.sign_at is not None:
            # what its ranks did meanwhile is not known
            gang.sign_at = now
        gang.lives[beat.node], gang.heard[beat.node] = beat.incarnation, now
        gang.blocked.heard(beat, now)
        before = gang.alive.get(beat.node, 0)
        gang.alive[beat.node] = len(beat.ranks_alive)
        if len(beat.ranks_alive) < before:
            gang.is_ending = True
            # and teaches nothing
            gang.sign_at = None if gang.sign_at is None else now

    def _follow_steps(self, gang: _Gang, beat: Heartbeat, now: float) -> None:
        if beat.phases:
            own = _first_phase(frozenset(beat.phases.values()))
            before = gang.phases.get(beat.node)
            if before != own:
                gang.phases[beat.node] = own
                gang.num_nodes_in[own] = gang.num_nodes_in.get(own, 0) + 1
                if before is not None:
                    gang.num_nodes_in[before] -= 1
            if own in ANNOUNCED:
                self._announcing[gang.run] = True
        stepped = beat.last_step is not None and (
            gang.last_step is None or beat.last_step > gang.last_step
        )
        phase = _phase_of(gang, beat.last_step)
        if stepped or phase != gang.phase:
            self._sign(gang, now)
        gang.phase = phase
        if stepped:
            gang.last_step, gang.advanced_at = beat.last_step, now
            gang.at_work_since = now if gang.at_work_since is None else gang.at_work_since

    def _follow_writes(self, gang: _Gang, beat: Heartbeat, now: float) -> None:
        before = gang.writes.get(beat.node, 0)
        # a new life of its agent counts from 0 again
        gang.writes[beat.node] = beat.writes
        if gang.watched.since is None:
            return
        if gang.sign_at is None and beat.writes:
            self._take_over(gang, beat, now)
            return
        if beat.writes <= before:
            return
        gang.num_writes += beat.writes - before
        if gang.at_work_since is None:
            # how long it takes to begin is another matter
            gang.at_work_since = gang.sign_at = now
        else:
            self._sign(gang, now)

    def _take_over(self, gang: _Gang, beat: Heartbeat, now: float) -> None:
        """Go by what the agent saw while another supervisor watched: ranks that fell silent then write no more."""
        self._pace(gang).take_over(
            num_quiets=beat.writes - 1,
            longest_seconds=beat.longest_quiet_seconds,
            watched_seconds=beat.writing_seconds,
        )
        gang.num_writes = beat.writes
        gang.sign_at, gang.at_work_since = now, now - beat.writing_seconds

    def _sign(self, gang: _Gang, now: float) -> None:
        """Take a sign of progress: the quiet before it ended well, and teaches, if all nodes were heard in it."""
        is_whole = all(
            now - gang.heard.get(node, now) < self._silence_seconds for node in gang.watched.nodes
        )
        if gang.sign_at is not None and is_whole:
            self._pace(gang).add(max(0.0, now - gang.sign_at))
        gang.sign_at = now

    def _pace(self, gang: _Gang) -> LearnedTimeout:
        if not gang.speaks:
            rule = "writes"
        elif gang.last_step is not None and gang.run not in self._announcing:
            rule = "steps alone"
        else:
            rule = gang.phase
        return self._paces.setdefault((gang.run, rule), LearnedTimeout(rule=RULES[rule]))

    # ---- learned limits ---------------------------------------------------------------------------------------------

    def _judge(self, gang: _Gang, now: float) -> list[Finding]:
        if gang.sign_at is None or now - gang.sign_at < gang.least_limit:
            return []
        limit = self._learned_limit(gang)
        if limit is None or gang.watched.since is None or gang.found.get("no_progress"):
            return []
        if now - gang.sign_at < limit.seconds:
            return []
        # Only now, since it takes a look at every node: in a large gang every beat must be cheap.
        judged_at = min(gang.heard.get(node, -math.inf) for node in gang.watched.nodes)
        quiet_seconds = judged_at - gang.sign_at
        if quiet_seconds < limit.seconds:
            return []
        if not gang.is_ending:
            self._pace(gang).doubt()
        what = (
            f"no step of {gang.watched.attempt}"
            if gang.speaks
            else f"nothing written by the ranks of {gang.watched.attempt}"
        )
        where = f" in phase {gang.phase}" if gang.speaks else ""
        evidence = (
            f"{what} for {quiet_seconds:.1f} s{where} (limit {limit.seconds:.0f} s, {limit.source})"
        )
        return [_no_progress(gang, evidence, quiet_seconds, now)]

    def _learned_limit(self, gang: _Gang) -> Limit | None:
        pace, watched = self._pace(gang), gang.watched
        # how long that takes was never seen
        if gang.speaks and gang.is_ending:
            return None
        cap_seconds = watched.start_seconds if gang.is_starting else watched.progress_seconds
        if gang.is_starting or (gang.speaks and gang.run in self._announcing):
            return pace.limit(cap_seconds, least_seconds=self._compiling_seconds(gang))
        if gang.at_work_since is None or gang.sign_at is None:
            return None
        at_work_seconds = gang.sign_at - gang.at_work_since
        is_regular = gang.num_writes >= LEAST_WRITES and at_work_seconds >= LEAST_WRITING_SECONDS
        if not gang.speaks and not is_regular:
            return None
        limit = pace.limit_unannounced(cap_seconds, at_work_seconds=at_work_seconds)
        if limit is None or not gang.is_ending:
            return limit
        # No other limit will ever find them, so they are held to the longest there is.
        return Limit(seconds=cap_seconds, source="set in run.yaml, since a rank has ended")

    def _compiling_seconds(self, gang: _Gang) -> float:
        """Return how long a step or an evaluation may take to compile; infinity while no start was seen."""
        if gang.is_starting or gang.phase not in COMPILING:
            return 0.0
        start = self._paces.get((gang.run, "start"))
        return COMPILE_FACTOR * start.longest_seconds if start is not None else math.inf

    def _follow(self, watch: WatchList, now: float) -> None:
        gangs = {}
        for watched in watch.attempts:
            gang = self._gangs.get(watched.attempt) or _join(watched, now)
            if gang.watched.since is None and watched.since is not None:
                gang.begin(watched.since)
            gang.watched = watched
            gang.speaks = gang.speaks or watched.speaks or gang.run in self._speaking
            gang.is_ending = gang.is_ending or watched.is_ending
            gangs[watched.attempt] = gang
        self._gangs = gangs


def _join(watched: WatchedAttempt, now: float) -> _Gang:
    """Begin to watch a gang, which another supervisor may have watched for long."""
    gang = _Gang(watched=watched)
    if watched.since is None:
        return gang
    if now - watched.since <= FOLLOWED_SECONDS:
        gang.begin(watched.since)
    else:
        gang.found_stepping = watched.has_stepped
        gang.advanced_at = now if watched.has_stepped else watched.since
    return gang


def _phase_of(gang: _Gang, last_step: int | None) -> str:
    """Return what the gang as a whole is doing: before its first step it starts, whatever its ranks say."""
    if gang.last_step is None and last_step is None:
        return "start"
    for phase in PHASES:
        if gang.num_nodes_in.get(phase):
            return phase
    return "step"


def _first_phase(named: Collection[str]) -> str:
    for phase in PHASES:
        if phase in named:
            return phase
    return "step"


def _fixed_limit(watched: WatchedAttempt, gang: _Gang) -> tuple[float, float, str]:
    """Return (since, limit, phase): no limit for ranks that have never said a word, and before all of them are started."""
    if watched.since is None:
        return 0.0, 0.0, gang.phase
    if gang.last_step is not None:
        return gang.advanced_at, watched.progress_seconds, gang.phase
    if gang.found_stepping:
        return gang.advanced_at, watched.progress_seconds, "step"
    # Each node tells how far its own ranks are: before all have spoken to us, they may be at work for long.
    is_known = len(gang.heard) >= len(watched.nodes)
    limit = watched.start_seconds if gang.speaks and is_known else 0.0
    return gang.advanced_at, limit, "start"


def _no_progress(gang: _Gang, evidence: str, quiet_seconds: float, now: float) -> Finding:
    gang.found["no_progress"] = True
    blocked = gang.blocked.ranks(now)
    alone = culprit(blocked, quiet_seconds)
    return Finding(
        fault="no_progress",
        evidence=evidence + evidence_of(blocked),
        attempt=gang.watched.attempt,
        node=alone.node if alone is not None else None,
        rank=alone.rank if alone is not None else None,
        silent_seconds=quiet_seconds,
    )


def _stopped(gang: _Gang, beat: Heartbeat) -> list[Finding]:
    found = []
    for rank in beat.ranks_stopped:
        if not gang.found.get(f"stopped {rank}"):
            gang.found[f"stopped {rank}"] = True
            evidence = f"rank {rank} on {beat.node} is stopped (state T)"
            found.append(
                Finding(
                    fault="rank_stopped",
                    evidence=evidence,
                    attempt=beat.attempt,
                    node=beat.node,
                    rank=rank,
                )
            )
    return found
