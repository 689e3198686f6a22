"""Progress: gangs that are alive and make no step, and ranks that are stopped."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field

from runner.detect.blocked_ranks import BlockedRanks, culprit, evidence_of
from runner.detect.detector import Detector, NodeSilence, register
from runner.detect.learned_timeout import (
    COMPILE_FACTOR,
    COMPILING,
    PHASES,
    RULES,
    GapLimit,
    LearnedTimeout,
)
from runner.facts.faults import Finding
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat
from runner.facts.watch import WatchedAttempt, WatchList

# A gang up for longer than this when it is first watched was watched by another supervisor, so its last progress is unknown;
# chosen, not measured.
FOLLOWED_SECONDS = 1.0
# Writes of an attempt, and their seconds, before ranks that only write are held to a limit; chosen.
LEAST_WRITES = 20
LEAST_WRITING_SECONDS = 10.0
ANNOUNCED = ("evaluate", "checkpoint")
LEAST_FLOOR_SECONDS = min(rule.floor_seconds for rule in RULES.values())


@dataclass(slots=True, kw_only=True)
class _Gang:
    """What is known of one attempt. Times are those at which heartbeats arrived.

    `progress_at` is the last sign of progress (step, change of phase, write), None as long as none arrived.
    """

    watched: WatchedAttempt
    last_step: int | None = None
    advanced_at: float = 0.0
    reports_steps: bool = False
    # A rank has ended.
    is_ending: bool = False
    # Node -> phase of its ranks.
    phases: dict[str, str] = field(default_factory=dict)
    # Phase -> number of nodes in it.
    num_nodes_in: dict[str, int] = field(default_factory=dict)
    phase: str = "start"
    progress_at: float | None = None
    # First step, or first write of ranks that only write.
    at_work_since: float | None = None
    # By node, as are the next three.
    last_heartbeat: dict[str, float] = field(default_factory=dict)
    incarnations: dict[str, int] = field(default_factory=dict)
    num_alive: dict[str, int] = field(default_factory=dict)
    writes: dict[str, int] = field(default_factory=dict)
    num_writes: int = 0
    blocked: BlockedRanks = field(default_factory=BlockedRanks)
    # It had made steps before this supervisor.
    was_stepping: bool = False
    # Findings already made, by name.
    reported: dict[str, bool] = field(default_factory=dict)

    @property
    def run(self) -> int:
        """Number of its run."""
        return self.watched.attempt.run

    @property
    def least_limit(self) -> float:
        """The least that any learned limit may be, in seconds."""
        watched = self.watched
        return min(LEAST_FLOOR_SECONDS, watched.start_seconds, watched.progress_seconds)

    @property
    def is_starting(self) -> bool:
        """Whether ranks that report steps have yet to report the first one."""
        return self.reports_steps and self.last_step is None

    def begin(self, since: float) -> None:
        """All ranks are started by now: what some did before, waiting for the others, teaches nothing."""
        self.advanced_at = self.progress_at = since
        self.at_work_since = None if self.at_work_since is None else since

    def shift(self, seconds: float) -> None:
        """Allow for a time in which the supervisor received no heartbeats."""
        self.advanced_at += seconds
        self.progress_at = None if self.progress_at is None else self.progress_at + seconds
        if self.at_work_since is not None:
            self.at_work_since += seconds
        self.last_heartbeat = {node: at + seconds for node, at in self.last_heartbeat.items()}
        self.blocked.shift(seconds)


@register
class GangProgress(Detector):
    """Watches launched gangs: by fixed limits since the last step, and by limits learned from the run (`learned_timeout`).

    A gang that never reported a step is held to its start limit only if its ranks, or those of its run, ever reported steps;
    ranks that report nothing, only to their learned gaps between writes. Limits run once all nodes have started their ranks.
    Learned limits are judged by heartbeats: a silent node proves nothing about its ranks, so a gap ends with the last time at
    which all nodes of the gang had sent heartbeats. A node silent for longer than its limit was not watched meanwhile.
    """

    order = 20

    def __init__(self, silence: NodeSilence | None = None) -> None:
        super().__init__(silence)
        self._gangs: dict[AttemptId, _Gang] = {}
        # By run and rule. These three are small, and kept as long as this supervisor runs.
        self._timeouts: dict[tuple[int, str], LearnedTimeout] = {}
        self._reporting_runs: dict[int, bool] = {}
        # Runs that were seen in an evaluation or a checkpoint.
        self._announcing: dict[int, bool] = {}
        # While this is watched, no fixed limit is passed before then: `tick` skips a large number of gangs.
        self._idle: tuple[WatchList | None, float] = (None, 0.0)
        self._newest_heartbeat = 0.0

    def on_heartbeat(self, heartbeat: Heartbeat, watch: WatchList, now: float) -> list[Finding]:
        """Record steps, phases and writes; report stopped ranks, and a gang past its learned limit."""
        self._newest_heartbeat = now
        gang = self._gangs.get(heartbeat.attempt) if heartbeat.attempt is not None else None
        if gang is None:
            return []
        before = (gang.reports_steps, gang.last_step is None, len(gang.last_heartbeat))
        self._follow_node(gang, heartbeat, now)
        if heartbeat.phases or heartbeat.last_step is not None:
            gang.reports_steps = self._reporting_runs[gang.run] = True
            self._follow_steps(gang, heartbeat, now)
        elif not gang.reports_steps:
            self._follow_writes(gang, heartbeat, now)
        if before != (gang.reports_steps, gang.last_step is None, len(gang.last_heartbeat)):
            # Another fixed limit may hold now.
            self._idle = (None, 0.0)
        if not heartbeat.ranks_stopped:
            return self._judge(gang, now)
        return [*_stopped(gang, heartbeat), *self._judge(gang, now)]

    def tick(self, watch: WatchList, now: float) -> list[Finding]:
        """Return findings about gangs past their fixed limit."""
        if self._idle[0] is watch and now < self._idle[1]:
            return []
        self._follow(watch, now)
        findings = []
        for watched in watch.attempts:
            gang = self._gangs[watched.attempt]
            limit, since = _fixed_limit(watched, gang), gang.advanced_at
            if limit > 0 and now >= since + limit and not gang.reported.get("no_progress"):
                evidence = (
                    f"no step of {watched.attempt} for {now - since:.1f} s in phase "
                    f"{_phase_in_words(gang)} (limit {limit:g} s, set in run.yaml)"
                )
                findings.append(_no_progress(gang, evidence, now - since, now))
        due = self._first_due(watch)
        self._idle = (watch, math.inf if due is None else due)
        return findings

    def shift(self, seconds: float) -> None:
        """Allow for a time in which the supervisor received no heartbeats."""
        self._idle = (None, 0.0)
        for gang in self._gangs.values():
            gang.shift(seconds)

    def due_at(self, watch: WatchList) -> float | None:
        """Return when the next gang passes its fixed limit if it makes no step, or a time before that."""
        if self._idle[0] is watch and self._idle[1] > self._newest_heartbeat:
            return self._idle[1] if self._idle[1] < math.inf else None
        return self._first_due(watch)

    def _first_due(self, watch: WatchList) -> float | None:
        times = []
        for watched in watch.attempts:
            gang = self._gangs.get(watched.attempt)
            if gang is not None and not gang.reported.get("no_progress"):
                limit = _fixed_limit(watched, gang)
                times += [gang.advanced_at + limit] if limit > 0 else []
        return min(times, default=None)

    def _follow_node(self, gang: _Gang, heartbeat: Heartbeat, now: float) -> None:
        is_new = (
            gang.incarnations.get(heartbeat.node, heartbeat.incarnation) != heartbeat.incarnation
        )
        away_seconds = now - gang.last_heartbeat.get(heartbeat.node, now)
        if (is_new or away_seconds >= self.silence.limit_seconds) and gang.progress_at is not None:
            # What its ranks did meanwhile is unknown.
            gang.progress_at = now
        gang.incarnations[heartbeat.node], gang.last_heartbeat[heartbeat.node] = (
            heartbeat.incarnation,
            now,
        )
        gang.blocked.on_heartbeat(heartbeat, now)
        before = gang.num_alive.get(heartbeat.node, 0)
        gang.num_alive[heartbeat.node] = len(heartbeat.ranks_alive)
        if len(heartbeat.ranks_alive) < before:
            # How the others follow teaches nothing.
            gang.is_ending = True
            gang.progress_at = None if gang.progress_at is None else now

    def _follow_steps(self, gang: _Gang, heartbeat: Heartbeat, now: float) -> None:
        if heartbeat.phases:
            own = _first_phase(frozenset(heartbeat.phases.values()))
            before = gang.phases.get(heartbeat.node)
            if before != own:
                gang.phases[heartbeat.node] = own
                gang.num_nodes_in[own] = gang.num_nodes_in.get(own, 0) + 1
                if before is not None:
                    gang.num_nodes_in[before] -= 1
            if own in ANNOUNCED:
                self._announcing[gang.run] = True
        stepped = heartbeat.last_step is not None and (
            gang.last_step is None or heartbeat.last_step > gang.last_step
        )
        phase = _phase_of(gang, heartbeat.last_step)
        if stepped or phase != gang.phase:
            self._on_progress(gang, now)
        gang.phase = phase
        if stepped:
            gang.last_step, gang.advanced_at = heartbeat.last_step, now
            gang.at_work_since = now if gang.at_work_since is None else gang.at_work_since

    def _follow_writes(self, gang: _Gang, heartbeat: Heartbeat, now: float) -> None:
        before = gang.writes.get(heartbeat.node, 0)
        # A restarted agent counts from 0 again.
        gang.writes[heartbeat.node] = heartbeat.num_writes
        if gang.watched.since is None:
            return
        if gang.progress_at is None and heartbeat.num_writes:
            self._adopt(gang, heartbeat, now)
            return
        if heartbeat.num_writes <= before:
            return
        gang.num_writes += heartbeat.num_writes - before
        if gang.at_work_since is None:
            # The start itself is not a gap between writes.
            gang.at_work_since = gang.progress_at = now
        else:
            self._on_progress(gang, now)

    def _adopt(self, gang: _Gang, heartbeat: Heartbeat, now: float) -> None:
        """Learn what the agent saw while another supervisor watched: ranks that hung meanwhile write no more."""
        self._timeout(gang).merge(
            num_gaps=heartbeat.num_writes - 1,
            longest_seconds=heartbeat.longest_gap_seconds,
            watched_seconds=heartbeat.writing_seconds,
        )
        gang.num_writes = heartbeat.num_writes
        gang.progress_at, gang.at_work_since = now, now - heartbeat.writing_seconds

    def _on_progress(self, gang: _Gang, now: float) -> None:
        """Record progress: the gap before it ended well, and is learned from if all nodes sent heartbeats in it."""
        is_whole = all(
            now - gang.last_heartbeat.get(node, now) < self.silence.limit_seconds
            for node in gang.watched.nodes
        )
        if gang.progress_at is not None and is_whole:
            self._timeout(gang).add(max(0.0, now - gang.progress_at))
        gang.progress_at = now

    def _timeout(self, gang: _Gang) -> LearnedTimeout:
        if not gang.reports_steps:
            rule = "writes"
        elif gang.last_step is not None and gang.run not in self._announcing:
            rule = "steps alone"
        else:
            rule = gang.phase
        return self._timeouts.setdefault((gang.run, rule), LearnedTimeout(rule=RULES[rule]))

    def _judge(self, gang: _Gang, now: float) -> list[Finding]:
        if gang.progress_at is None or now - gang.progress_at < gang.least_limit:
            return []
        limit = self._learned_limit(gang)
        if limit is None or gang.watched.since is None or gang.reported.get("no_progress"):
            return []
        if now - gang.progress_at < limit.seconds:
            return []
        # Last, since it goes through all nodes: in a large gang every heartbeat must be cheap.
        judged_at = min(gang.last_heartbeat.get(node, -math.inf) for node in gang.watched.nodes)
        gap_seconds = judged_at - gang.progress_at
        if gap_seconds < limit.seconds:
            return []
        if not gang.is_ending:
            self._timeout(gang).doubt()
        what = (
            f"no step of {gang.watched.attempt}"
            if gang.reports_steps
            else f"nothing written by the ranks of {gang.watched.attempt}"
        )
        where = f" in phase {gang.phase}" if gang.reports_steps else ""
        evidence = (
            f"{what} for {gap_seconds:.1f} s{where} (limit {limit.seconds:.0f} s, {limit.source})"
        )
        return [_no_progress(gang, evidence, gap_seconds, now)]

    def _learned_limit(self, gang: _Gang) -> GapLimit | None:
        learned, watched = self._timeout(gang), gang.watched
        # How long the other ranks take to end was never seen.
        if gang.reports_steps and gang.is_ending:
            return None
        cap_seconds = watched.start_seconds if gang.is_starting else watched.progress_seconds
        if gang.is_starting or (gang.reports_steps and gang.run in self._announcing):
            return learned.limit(cap_seconds, least_seconds=self._compiling_seconds(gang))
        if gang.at_work_since is None or gang.progress_at is None:
            return None
        at_work_seconds = gang.progress_at - gang.at_work_since
        is_regular = gang.num_writes >= LEAST_WRITES and at_work_seconds >= LEAST_WRITING_SECONDS
        if not gang.reports_steps and not is_regular:
            return None
        limit = learned.limit_unannounced(cap_seconds, at_work_seconds=at_work_seconds)
        if limit is None or not gang.is_ending:
            return limit
        # No other limit would ever hold, so it is the longest one.
        return GapLimit(seconds=cap_seconds, source="set in run.yaml, since a rank has ended")

    def _compiling_seconds(self, gang: _Gang) -> float:
        """Return how long a step or an evaluation may take to compile; infinity while no start was seen."""
        if gang.is_starting or gang.phase not in COMPILING:
            return 0.0
        start = self._timeouts.get((gang.run, "start"))
        return COMPILE_FACTOR * start.longest_seconds if start is not None else math.inf

    def _follow(self, watch: WatchList, now: float) -> None:
        gangs = {}
        for watched in watch.attempts:
            gang = self._gangs.get(watched.attempt) or _begin(watched, now)
            if gang.watched.since is None and watched.since is not None:
                gang.begin(watched.since)
            gang.watched = watched
            gang.reports_steps = (
                gang.reports_steps or watched.reports_steps or gang.run in self._reporting_runs
            )
            gang.is_ending = gang.is_ending or watched.is_ending
            gangs[watched.attempt] = gang
        self._gangs = gangs


def _begin(watched: WatchedAttempt, now: float) -> _Gang:
    """Begin to watch a gang, which another supervisor may have watched before."""
    gang = _Gang(watched=watched)
    if watched.since is None:
        return gang
    if now - watched.since <= FOLLOWED_SECONDS:
        gang.begin(watched.since)
    else:
        gang.was_stepping = watched.has_stepped
        gang.advanced_at = now if watched.has_stepped else watched.since
    return gang


def _phase_of(gang: _Gang, last_step: int | None) -> str:
    """Return the phase of the whole gang: before its first step it starts, whatever its ranks report."""
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


def _fixed_limit(watched: WatchedAttempt, gang: _Gang) -> float:
    """Return the seconds since `advanced_at` that a step may take; 0: no limit.

    There is none for ranks that report nothing, and before all of them are started.
    """
    if watched.since is None:
        return 0.0
    if gang.last_step is not None or gang.was_stepping:
        return watched.progress_seconds
    # Each node reports its own ranks only: until all have, the gang may be at work for long.
    is_known = len(gang.last_heartbeat) >= len(watched.nodes)
    return watched.start_seconds if gang.reports_steps and is_known else 0.0


def _phase_in_words(gang: _Gang) -> str:
    """Name the phase in which a fixed limit passed; a gang that another supervisor saw stepping does not start."""
    if gang.last_step is not None:
        return gang.phase
    return "step" if gang.was_stepping else "start"


def _no_progress(gang: _Gang, evidence: str, gap_seconds: float, now: float) -> Finding:
    gang.reported["no_progress"] = True
    blocked = gang.blocked.ranks(now)
    alone = culprit(blocked, gap_seconds)
    return Finding(
        fault="no_progress",
        evidence=evidence + evidence_of(blocked),
        attempt=gang.watched.attempt,
        node=alone.node if alone is not None else None,
        rank=alone.rank if alone is not None else None,
        silent_seconds=gap_seconds,
    )


def _stopped(gang: _Gang, heartbeat: Heartbeat) -> list[Finding]:
    new = [rank for rank in heartbeat.ranks_stopped if not gang.reported.get(f"stopped {rank}")]
    gang.reported |= {f"stopped {rank}": True for rank in new}
    return [
        Finding(
            fault="rank_stopped",
            evidence=f"rank {rank} on {heartbeat.node} is stopped (state T)",
            attempt=heartbeat.attempt,
            node=heartbeat.node,
            rank=rank,
            silent_seconds=0.0,
        )
        for rank in new
    ]
