"""Progress: gangs that are alive and make no step, and ranks that are stopped."""

import math
from collections.abc import Mapping

from msgspec import field

from runner.detect.detector import Detector, NodeSilence, register
from runner.detect.learned_timeout import COMPILE_FACTOR, COMPILING, RULES, GapLimit, LearnedTimeout
from runner.detect.observed_gang import ObservedGang, ObservedNode, first_phase, observe
from runner.errors import WireError
from runner.facts import wire
from runner.facts.faults import Finding
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat
from runner.facts.watch import WatchList
from runner.facts.wire import Value

# Writes of an attempt, and their seconds, before ranks that only write are held to a limit; chosen.
LEAST_WRITES = 20
LEAST_WRITING_SECONDS = 10.0
ANNOUNCED = ("evaluate", "checkpoint")
LEAST_FLOOR_SECONDS = min(rule.floor_seconds for rule in RULES.values())


class LearnedGaps(Value, forbid_unknown_fields=True):
    """A `LearnedTimeout`, without its rule."""

    num_gaps: int = 0
    longest_seconds: float = 0.0
    watched_seconds: float = 0.0
    needed_seconds: float = 0.0

    def is_sensible(self) -> bool:
        """Whether nothing is negative or infinite."""
        seconds = (self.longest_seconds, self.watched_seconds, self.needed_seconds)
        return self.num_gaps >= 0 and all(0 <= each < math.inf for each in seconds)


class PaceMemory(Value, forbid_unknown_fields=True):
    """What is kept of a run: its gaps by rule, and what its ranks have ever reported."""

    gaps: Mapping[str, LearnedGaps] = field(default_factory=dict)
    reports_steps: bool = False
    announces: bool = False
    prints_steps: bool = False


@register
class GangProgress(Detector):
    """Watches launched gangs: by fixed limits since the last step, and by limits learned from the run (`learned_timeout`).

    A gang that never reported a step is held to its start limit only if its ranks, or those of its run, ever reported steps;
    ranks that report nothing, only to their learned gaps between writes. Limits run once all nodes have started their ranks.
    Learned limits are judged by heartbeats: a silent node proves nothing about its ranks, so a gap ends with the last time at
    which all nodes of the gang had sent heartbeats. A node silent for longer than its limit was not watched meanwhile, nor are
    ranks that only write while a folder of theirs hangs.
    """

    order = 20

    def __init__(self, silence: NodeSilence | None = None) -> None:
        super().__init__(silence)
        self._gangs: dict[AttemptId, ObservedGang] = {}
        # By run and rule. These three are small; they outlive attempts and supervisors.
        self._timeouts: dict[tuple[int, str], LearnedTimeout] = {}
        self._reporting_runs: dict[int, bool] = {}
        # Runs that were seen in an evaluation or a checkpoint.
        self._announcing: dict[int, bool] = {}
        # Runs whose steps are known by what their ranks print.
        self._printing: dict[int, bool] = {}
        # While this is watched, no fixed limit is passed before then: `tick` skips a large number of gangs.
        self._idle: tuple[WatchList | None, float] = (None, 0.0)
        self._newest_heartbeat = 0.0

    def on_heartbeat(self, heartbeat: Heartbeat, watch: WatchList, now: float) -> list[Finding]:
        """Record steps, phases and writes; report stopped ranks, and a gang past its learned limit."""
        self._newest_heartbeat = now
        gang = self._gangs.get(heartbeat.attempt) if heartbeat.attempt is not None else None
        if gang is None:
            return []
        node = self._follow_node(gang, heartbeat, now)
        if heartbeat.phases or heartbeat.last_step is not None:
            self._follow_steps(gang, node, heartbeat, now)
        elif heartbeat.num_printed or gang.prints_steps:
            self._follow_printed(gang, node, heartbeat, now)
        elif not gang.reports_steps:
            self._follow_writes(gang, node, heartbeat, now)
        findings = gang.stopped(heartbeat) if heartbeat.ranks_stopped else []
        if now - gang.progress_at >= gang.least_limit_seconds:
            findings += self._judge(gang, now)
        return findings

    def tick(self, watch: WatchList, now: float) -> list[Finding]:
        """Return findings about gangs past their fixed limit."""
        if self._idle[0] is watch and now < self._idle[1]:
            return []
        self._follow(watch, now)
        findings = []
        for watched in watch.attempts:
            gang = self._gangs[watched.attempt]
            if now >= gang.fixed_due(watched):
                gap_seconds = now - gang.advanced_at
                evidence = (
                    f"no step of {watched.attempt} for {gap_seconds:.1f} s in phase {gang.overdue_phase()} "
                    f"(limit {gang.fixed_limit(watched):g} s, {gang.limit_source(watched)})"
                )
                findings.append(gang.no_progress(evidence, gap_seconds, now))
        self._idle = (watch, self._first_due(watch))
        return findings

    def shift(self, seconds: float) -> None:
        self._idle = (None, 0.0)
        for gang in self._gangs.values():
            gang.shift(seconds)

    def dump(self, run: int, now: float) -> object | None:
        gaps = {
            rule: LearnedGaps(
                num_gaps=learned.num_gaps,
                longest_seconds=learned.longest_seconds,
                watched_seconds=learned.watched_seconds,
                needed_seconds=learned.needed_seconds,
            )
            for rule in RULES
            if (learned := self._timeouts.get((run, rule))) is not None
        }
        reports_steps, prints_steps = run in self._reporting_runs, run in self._printing
        if not gaps and not (reports_steps or prints_steps):
            return None
        return PaceMemory(
            gaps=gaps,
            reports_steps=reports_steps,
            announces=run in self._announcing,
            prints_steps=prints_steps,
        )

    def load(self, run: int, dumped: object, now: float) -> None:
        memory: PaceMemory = wire.from_plain(PaceMemory, dumped)
        unknown = [rule for rule in memory.gaps if rule not in RULES]
        bad = [rule for rule, gaps in memory.gaps.items() if not gaps.is_sensible()]
        if unknown or bad:
            raise WireError(f"gaps of unknown phases {unknown}, or no numbers of seconds: {bad}")
        for rule, gaps in memory.gaps.items():
            learned = self._timeouts[run, rule] = LearnedTimeout(rule=RULES[rule])
            learned.num_gaps, learned.longest_seconds = gaps.num_gaps, gaps.longest_seconds
            learned.watched_seconds = gaps.watched_seconds
            learned.needed_seconds = gaps.needed_seconds
        self._reporting_runs |= {run: True} if memory.reports_steps else {}
        self._announcing |= {run: True} if memory.announces else {}
        self._printing |= {run: True} if memory.prints_steps else {}

    def due_at(self, watch: WatchList) -> float | None:
        """Return when the next gang passes its fixed limit if it makes no step, or a time before that."""
        is_idle = self._idle[0] is watch and self._idle[1] > self._newest_heartbeat
        due = self._idle[1] if is_idle else self._first_due(watch)
        return due if due < math.inf else None

    def _first_due(self, watch: WatchList) -> float:
        known = [watched for watched in watch.attempts if watched.attempt in self._gangs]
        times = (self._gangs[watched.attempt].fixed_due(watched) for watched in known)
        return min(times, default=math.inf)

    def _follow_node(self, gang: ObservedGang, heartbeat: Heartbeat, now: float) -> ObservedNode:
        node = gang.nodes.get(heartbeat.node)
        if node is None:
            node = gang.nodes[heartbeat.node] = ObservedNode(heartbeat.incarnation, now)
            # Another fixed limit may hold now.
            self._idle = (None, 0.0)
        elif (
            heartbeat.incarnation != node.incarnation
            or now - node.last_heartbeat >= self.silence.limit_seconds
        ):
            # What its ranks did meanwhile is unknown.
            gang.restart_gap(now)
        num_alive = len(heartbeat.ranks_alive)
        if num_alive < node.num_alive:
            # How the others follow teaches nothing.
            gang.is_ending = True
            gang.restart_gap(now)
        node.incarnation, node.last_heartbeat = heartbeat.incarnation, now
        node.num_alive, node.blocked = num_alive, heartbeat.ranks_blocked
        if (heartbeat.hung_folders or node.hung) and not gang.reports_steps:
            # No agent can see whether its ranks write.
            gang.hold(now)
        node.hung = heartbeat.hung_folders
        return node

    def _follow_steps(
        self, gang: ObservedGang, node: ObservedNode, heartbeat: Heartbeat, now: float
    ) -> None:
        if gang.prints_steps:
            # What ranks report counts, whatever they printed before.
            gang.prints_steps, gang.last_step = False, None
            self._printing.pop(gang.run, None)
        phase, step = node.phase, heartbeat.last_step
        if heartbeat.phases:
            phase = first_phase(frozenset(heartbeat.phases.values()))
        has_stepped = step is not None and (gang.last_step is None or step > gang.last_step)
        if phase == node.phase and not has_stepped:
            return
        if gang.last_step is None:
            # Another fixed limit may hold now.
            self._idle = (None, 0.0)
        gang.reports_steps = self._reporting_runs[gang.run] = True
        if phase in ANNOUNCED:
            self._announcing[gang.run] = True
        gang.num_nodes_in_phase[node.phase] -= 1
        gang.num_nodes_in_phase[phase] += 1
        node.phase = phase
        phase = gang.phase_after(step)
        if has_stepped or phase != gang.phase:
            self._on_progress(gang, now)
        gang.phase = phase
        if has_stepped:
            gang.last_step, gang.advanced_at = step, now
            self._end_hang(gang)
            gang.at_work_since = now if gang.at_work_since == math.inf else gang.at_work_since

    def _follow_printed(
        self, gang: ObservedGang, node: ObservedNode, heartbeat: Heartbeat, now: float
    ) -> None:
        """Record a printed step; what ranks write besides gives them more time, and teaches nothing."""
        before, node.num_printed = node.num_printed, heartbeat.num_printed
        if heartbeat.num_writes > node.num_writes:
            gang.wrote_at = now
        node.num_writes = heartbeat.num_writes
        if not gang.prints_steps:
            gang.prints_steps = self._printing[gang.run] = True
            gang.reports_steps = False
            self._idle = (None, 0.0)
        if heartbeat.num_printed <= before or gang.watched.since is None:
            return
        if gang.last_step is None and not gang.was_stepping:
            # From the start, whatever was written meanwhile.
            self._timeout(gang).add(max(0.0, now - gang.advanced_at))
            gang.progress_at, self._idle = now, (None, 0.0)
        else:
            self._on_progress(gang, now)
        gang.last_step, gang.phase = max(gang.last_step or 0, heartbeat.printed_step or 0), "step"
        gang.advanced_at = now
        self._end_hang(gang)
        gang.at_work_since = now if gang.at_work_since == math.inf else gang.at_work_since
        self._note_longest(gang)

    def _end_hang(self, gang: ObservedGang) -> None:
        """Hold a gang that was reported, and was left alone, to its limits again: it makes steps."""
        if gang.is_reported:
            gang.is_reported, self._idle = False, (None, 0.0)

    def _note_longest(self, gang: ObservedGang) -> None:
        gaps = (self._timeouts.get((gang.run, rule)) for rule in ("start", "steps alone"))
        longest = [0.0 if learned is None else learned.longest_seconds for learned in gaps]
        gang.longest_start_seconds, gang.longest_gap_seconds = longest

    def _follow_writes(
        self, gang: ObservedGang, node: ObservedNode, heartbeat: Heartbeat, now: float
    ) -> None:
        # A restarted agent counts from 0 again.
        before, node.num_writes = node.num_writes, heartbeat.num_writes
        if gang.watched.since is None:
            return
        if gang.progress_at == math.inf and heartbeat.num_writes:
            self._adopt(gang, heartbeat, now)
            return
        if heartbeat.num_writes <= before:
            return
        gang.num_writes += heartbeat.num_writes - before
        if gang.at_work_since == math.inf:
            # The start itself is not a gap between writes.
            gang.at_work_since = gang.progress_at = now
        else:
            self._on_progress(gang, now)

    def _adopt(self, gang: ObservedGang, heartbeat: Heartbeat, now: float) -> None:
        """Learn what the agent saw while another supervisor watched: ranks that hung meanwhile write no more."""
        self._timeout(gang).merge(
            num_gaps=heartbeat.num_writes - 1,
            longest_seconds=heartbeat.longest_gap_seconds,
            watched_seconds=heartbeat.writing_seconds,
        )
        gang.num_writes = heartbeat.num_writes
        gang.progress_at, gang.at_work_since = now, now - heartbeat.writing_seconds

    def _on_progress(self, gang: ObservedGang, now: float) -> None:
        """Record progress: the gap before it ended well, and is learned from if all nodes sent heartbeats in it."""
        limit_seconds = self.silence.limit_seconds
        is_whole = all(now - node.last_heartbeat < limit_seconds for node in gang.nodes.values())
        if gang.progress_at < math.inf and is_whole:
            self._timeout(gang).add(max(0.0, now - gang.progress_at))
        gang.progress_at = now

    def _timeout(self, gang: ObservedGang) -> LearnedTimeout:
        if not (gang.reports_steps or gang.prints_steps):
            rule = "writes"
        elif gang.last_step is not None and gang.run not in self._announcing:
            rule = "steps alone"
        else:
            rule = gang.phase
        return self._timeouts.setdefault((gang.run, rule), LearnedTimeout(rule=RULES[rule]))

    def _judge(self, gang: ObservedGang, now: float) -> list[Finding]:
        limit = None if gang.is_reported else self._learned_limit(gang)
        if limit is None or gang.watched.since is None or now - gang.progress_at < limit.seconds:
            return []
        # Last, since it goes through all nodes: in a large gang every heartbeat must be cheap.
        gap_seconds = min(node.last_heartbeat for node in gang.nodes.values()) - gang.progress_at
        if gap_seconds < limit.seconds or not gang.have_all_nodes_reported:
            return []
        if not gang.is_ending:
            self._timeout(gang).doubt()
        what, where = f"nothing written by the ranks of {gang.watched.attempt}", ""
        if gang.reports_steps or gang.prints_steps:
            what, where = f"no step of {gang.watched.attempt}", f" in phase {gang.phase}"
        evidence = (
            f"{what} for {gap_seconds:.1f} s{where} (limit {limit.seconds:.0f} s, {limit.source})"
        )
        return [gang.no_progress(evidence, gap_seconds, now)]

    def _learned_limit(self, gang: ObservedGang) -> GapLimit | None:
        learned, watched = self._timeout(gang), gang.watched
        # How long the other ranks take to end was never seen.
        if (gang.reports_steps or gang.prints_steps) and gang.is_ending:
            return None
        cap_seconds = watched.start_seconds if gang.is_starting else watched.progress_seconds
        if gang.is_starting or (gang.reports_steps and gang.run in self._announcing):
            return learned.limit(cap_seconds, least_seconds=self._compiling_seconds(gang))
        if gang.at_work_since == math.inf:
            return None
        at_work_seconds = gang.progress_at - gang.at_work_since
        is_regular = gang.num_writes >= LEAST_WRITES and at_work_seconds >= LEAST_WRITING_SECONDS
        if not (gang.reports_steps or gang.prints_steps) and not is_regular:
            return None
        limit = learned.limit_unannounced(cap_seconds, at_work_seconds=at_work_seconds)
        if limit is None or not gang.is_ending:
            return limit
        # No other limit would ever hold, so it is the longest one.
        return GapLimit(seconds=cap_seconds, source="set in run.yaml, since a rank has ended")

    def _compiling_seconds(self, gang: ObservedGang) -> float:
        """Return how long a step or an evaluation may take to compile; infinity while no start was seen."""
        if gang.is_starting or gang.phase not in COMPILING:
            return 0.0
        start = self._timeouts.get((gang.run, "start"))
        return COMPILE_FACTOR * start.longest_seconds if start is not None else math.inf

    def _follow(self, watch: WatchList, now: float) -> None:
        gangs = {}
        for watched in watch.attempts:
            gang = self._gangs.get(watched.attempt) or observe(watched, now)
            if gang.watched.since is None and watched.since is not None:
                gang.begin(watched.since)
            gang.watched = watched
            gang.least_limit_seconds = min(
                LEAST_FLOOR_SECONDS, watched.start_seconds, watched.progress_seconds
            )
            if not gang.prints_steps and gang.run not in self._reporting_runs:
                gang.prints_steps = watched.prints_steps or gang.run in self._printing
                self._note_longest(gang)
            gang.reports_steps = not gang.prints_steps and (
                gang.reports_steps or watched.reports_steps or gang.run in self._reporting_runs
            )
            gang.is_ending = gang.is_ending or watched.is_ending
            gangs[watched.attempt] = gang
        self._gangs = gangs
