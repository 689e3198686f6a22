"""What the detector of progress knows of one gang, and what it reports of it.

Blocked ranks are those that the kernel holds in state D. By itself that is no finding: it is normal while files are written. It
is evidence in the finding of a gang without progress, because SIGKILL does not end it, so an operator who answers a hang needs
to know which ranks are blocked, and for how long.
"""

import math
from collections import Counter
from collections.abc import Container
from dataclasses import dataclass, field

from runner.detect.learned_timeout import PHASES
from runner.facts.faults import Finding
from runner.facts.messages.signals import Heartbeat, HungFolder, RankBlocked
from runner.facts.watch import WatchedAttempt

# A gang up for longer than this when it is first watched was watched by another supervisor, so its last progress is unknown;
# chosen, not measured.
FOLLOWED_SECONDS = 1.0
# Share of the time without progress that a rank was blocked, from which on it counts as the one that all wait for; chosen.
CULPRIT_SHARE = 0.5
# Times the longest gap between two printed steps, or the longest start, that ranks which only print may take; chosen.
PRINTED_FACTOR = 3.0
# Times its limit that a gang may take which prints no step and writes all the while, as one that evaluates does; chosen.
WRITING_FACTOR = 3.0
# Blocked ranks listed in the evidence; chosen.
MAX_SHOWN = 8
# Mounts listed there, and characters of a mount's path and of other names; chosen.
MAX_MOUNTS_SHOWN = 3
MAX_PATH, MAX_NAME = 200, 100


@dataclass(slots=True)
class ObservedNode:
    """What a node of a gang reported last, and when that arrived."""

    incarnation: int
    last_heartbeat: float
    num_alive: int = 0
    num_writes: int = 0
    num_printed: int = 0
    # The first of its ranks' phases; "" while they report none.
    phase: str = ""
    blocked: tuple[RankBlocked, ...] = ()
    hung: tuple[HungFolder, ...] = ()


@dataclass(slots=True, kw_only=True)
class ObservedGang:
    """What is known of one attempt. Times are those at which heartbeats arrived.

    `progress_at` is the last sign of progress (step, change of phase, write), infinity as long as none arrived.
    """

    watched: WatchedAttempt
    # No learned limit is shorter.
    least_limit_seconds: float = 0.0
    nodes: dict[str, ObservedNode] = field(default_factory=dict)
    last_step: int | None = None
    advanced_at: float = 0.0
    reports_steps: bool = False
    # Its steps are known by what its ranks print: when they last wrote anything, and the longest that the run took for a step.
    prints_steps: bool = False
    wrote_at: float = 0.0
    longest_start_seconds: float = 0.0
    longest_gap_seconds: float = 0.0
    # A rank has ended.
    is_ending: bool = False
    num_nodes_in_phase: Counter[str] = field(default_factory=Counter)
    phase: str = "start"
    progress_at: float = math.inf
    # First step, or first write of ranks that only write.
    at_work_since: float = math.inf
    num_writes: int = 0
    # It had made steps before this supervisor.
    was_stepping: bool = False
    is_reported: bool = False
    reported_stopped: dict[int, None] = field(default_factory=dict)

    @property
    def run(self) -> int:
        """Number of its run."""
        return self.watched.attempt.run

    @property
    def have_all_nodes_reported(self) -> bool:
        """Each node reports its own ranks only: until all have, the gang may be at work for long."""
        return len(self.nodes) >= len(self.watched.nodes)

    @property
    def is_starting(self) -> bool:
        """Whether ranks that report or print steps have yet to make the first one."""
        return (self.reports_steps or self.prints_steps) and self.last_step is None

    def begin(self, since: float) -> None:
        """All ranks are started by now: what some did before, waiting for the others, teaches nothing."""
        self.advanced_at = self.progress_at = since
        self.at_work_since = since if self.at_work_since < math.inf else math.inf

    def restart_gap(self, now: float) -> None:
        """Learn nothing from the present gap: something that is no progress ended it."""
        self.progress_at = now if self.progress_at < math.inf else math.inf

    def hold(self, now: float) -> None:
        """Leave out the time since the last progress: no agent could see any."""
        if self.progress_at < math.inf:
            self.at_work_since += now - self.progress_at
            self.progress_at = now

    def shift(self, seconds: float) -> None:
        """Allow for a time in which the supervisor received no heartbeats."""
        self.advanced_at += seconds
        self.progress_at += seconds
        self.wrote_at += seconds
        self.at_work_since += seconds
        for node in self.nodes.values():
            node.last_heartbeat += seconds

    def phase_after(self, last_step: int | None) -> str:
        """Return the phase of the whole gang: before its first step it starts, whatever its ranks report."""
        if self.last_step is None and last_step is None:
            return "start"
        return first_phase(+self.num_nodes_in_phase)

    def fixed_limit(self, watched: WatchedAttempt) -> float:
        """Return the seconds since `advanced_at` that a step may take; infinity: no limit.

        There is none for ranks that neither report nor print steps, and before all of them are started. Of ranks that print
        steps, some print one in an hour: no limit is shorter than a multiple of what the run has taken.
        """
        if watched.since is None:
            return math.inf
        if self.last_step is not None or self.was_stepping:
            longest_seconds = self.longest_gap_seconds
            limit_seconds = watched.progress_seconds
        else:
            longest_seconds = self.longest_start_seconds
            is_held = self.reports_steps or self.prints_steps
            is_held = is_held and self.have_all_nodes_reported
            limit_seconds = watched.start_seconds if is_held else 0.0
        if not limit_seconds:
            return math.inf
        learned_seconds = PRINTED_FACTOR * longest_seconds if self.prints_steps else 0.0
        return max(limit_seconds, learned_seconds)

    def limit_source(self, watched: WatchedAttempt) -> str:
        """Say where the fixed limit comes from."""
        configured = (watched.start_seconds, watched.progress_seconds)
        if self.fixed_limit(watched) in configured:
            return "set in run.yaml"
        return f"{PRINTED_FACTOR:g} times the longest that this run took to print one"

    def fixed_due(self, watched: WatchedAttempt) -> float:
        """Return when the gang passes its fixed limit if it makes no step; infinity: never, or that is reported."""
        if self.is_reported:
            return math.inf
        limit_seconds = self.fixed_limit(watched)
        due = self.advanced_at + limit_seconds
        if not self.prints_steps or self.wrote_at <= self.advanced_at:
            return due
        latest = self.advanced_at + WRITING_FACTOR * limit_seconds
        return max(due, min(self.wrote_at + limit_seconds, latest))

    def overdue_phase(self) -> str:
        """Name the phase in which a fixed limit passed; a gang that another supervisor saw stepping does not start."""
        if self.last_step is not None:
            return self.phase
        return "step" if self.was_stepping else "start"

    def no_progress(self, evidence: str, gap_seconds: float, now: float) -> Finding:
        """Report the gang once, and its blocked ranks; the only one, blocked for most of the time, is the culprit."""
        self.is_reported = True
        blocked = sorted(
            (item.rank, name, item.seconds + now - node.last_heartbeat)
            for name, node in self.nodes.items()
            for item in node.blocked
        )
        for rank, name, seconds in blocked[:MAX_SHOWN]:
            evidence += f"; rank {rank} on {name} has been in state D for {seconds:.0f} s"
        if len(blocked) > MAX_SHOWN:
            evidence += f"; so have {len(blocked) - MAX_SHOWN} more"
        # Many nodes have the same one.
        hung = {
            named_mount(folder): (name, folder.seconds + now - node.last_heartbeat)
            for name, node in self.nodes.items()
            for folder in node.hung
        }
        for mount, (name, seconds) in list(hung.items())[:MAX_MOUNTS_SHOWN]:
            evidence += f"; {mount} has not answered on {name} for {seconds:.0f} s"
        is_alone = len(blocked) == 1 and blocked[0][2] >= CULPRIT_SHARE * gap_seconds
        return Finding(
            fault="no_progress",
            evidence=evidence,
            attempt=self.watched.attempt,
            node=blocked[0][1] if is_alone else None,
            rank=blocked[0][0] if is_alone else None,
            silent_seconds=gap_seconds,
        )

    def stopped(self, heartbeat: Heartbeat) -> list[Finding]:
        """Report each stopped rank of a heartbeat once."""
        new = [rank for rank in heartbeat.ranks_stopped if rank not in self.reported_stopped]
        self.reported_stopped |= dict.fromkeys(new)
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


def named_mount(folder: HungFolder) -> str:
    """Name a mount that hangs."""
    kind, source = folder.file_system[:MAX_NAME], folder.source[:MAX_NAME]
    return f"{folder.mount[:MAX_PATH]} ({kind} of {source})"


def observe(watched: WatchedAttempt, now: float) -> ObservedGang:
    """Begin to watch a gang, which another supervisor may have watched before."""
    gang = ObservedGang(watched=watched)
    if watched.since is None:
        return gang
    if now - watched.since <= FOLLOWED_SECONDS:
        gang.begin(watched.since)
    else:
        gang.was_stepping = watched.has_stepped
        gang.advanced_at = now if watched.has_stepped else watched.since
    return gang


def first_phase(named: Container[str]) -> str:
    """Return the phase that counts where ranks are in several."""
    for phase in PHASES:
        if phase in named:
            return phase
    return "step"
