"""A gang as one node sees it: its ranks, what they report, and the signals that follow. Its only I/O is reading /proc."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import asdict, replace

from runner.agent.hangs.blocked_ranks import BlockedRanksMonitor
from runner.agent.ranks import rank_resources, reports
from runner.agent.ranks.aggregates import (
    MAX_STEPS,
    ComputeTimes,
    RecentLevels,
    StartPhases,
    StepAggregator,
)
from runner.agent.ranks.printed_steps import PrintedSteps
from runner.agent.ranks.step_sums import StepSums
from runner.agent.rare_field import RareField
from runner.facts.ids import AttemptId
from runner.facts.launch_conditions import of_data
from runner.facts.messages import signals
from runner.facts.messages.assignments import Assignment, LaunchPlan
from runner.facts.messages.signals import Signal, StepRecord
from runner.keeper.procfs import read_process

log = logging.getLogger("stoker.agent")

NextHeader = Callable[[], Mapping[str, Any]]
# Chosen, not measured.
MAX_DETAIL_CHARACTERS = 300
MAX_REQUESTS_REMEMBERED = 1000
# Sent per attempt, each with more than the one before: a script and its callbacks. Chosen, not measured.
MAX_HELLOS = 8
POLL_OUTPUTS_SECONDS = 0.2
# Between two marks of printed steps from a node with neither the first nor the last rank; chosen.
SELDOM_SECONDS = 60.0
# An answer of the file system that took longer says nothing of the ranks' pauses; chosen.
LATE_OUTPUTS_SECONDS = 1.0
# Folders are looked at while no step is made; chosen: a healthy run asks no server of files.
IDLE_SECONDS = 5.0
PROBE_SECONDS = 5.0
# Chosen: since when a rank is stopped is known to half of it. A poll costs some 100 us, most of it
# for waking up (measured), so polling takes an agent 0.05 to 0.1 % of a core.
POLL_SECONDS = 0.2

# Of reports that are passed on as they are.
_SIGNALS: dict[type[reports.Report], type[Signal]] = {
    reports.SettingsReport: signals.SettingsInEffect,
    reports.SealReport: signals.CheckpointSealed,
    reports.ReplicasReport: signals.ReplicasDisagree,
}


@dataclass(slots=True, kw_only=True)
class LocalRank:
    """A rank of this node. `stopped_since`: estimated monotonic seconds, while its process is in state T (SIGSTOP)."""

    rank: int
    pid: int
    is_alive: bool = True
    phase: str = ""
    last_step: int | None = None
    stopped_since: float | None = None
    num_malformed: int = 0


class LocalGang:
    """The ranks of one attempt on this node, and what they report. `next_header` gives each signal its source fields.

    `progress_at` (monotonic seconds) is the last step of any rank; of ranks that report none, the last time one wrote to its
    output, and `writes` counts how often a poll saw that. `heartbeat_due` asks for a heartbeat at once. `hello` is None until a
    rank has sent it. `not_forked_reason`: why a requested fork was refused. `spawned_at` (monotonic): None for ranks of an
    earlier agent, whose first report was not timed.
    """

    def __init__(
        self,
        assignment: Assignment,
        pids: Mapping[int, int],
        next_header: NextHeader,
        now: float,
        *,
        stopped_seconds: float,
        spawned_at: float | None = None,
    ):
        assert assignment.plan is not None
        self.assignment = assignment
        self.plan: LaunchPlan = assignment.plan
        self.generation = assignment.generation
        self.ranks = {rank: LocalRank(rank=rank, pid=pid) for rank, pid in sorted(pids.items())}
        self.hello: reports.HelloReport | None = None
        self._num_hellos = 0
        # Fingerprint of what the ranks train on; "": none has reported it.
        self.data = ""
        self.last_step: int | None = None
        self._furthest_at = self.progress_at = now
        self.writes = 0
        self.heartbeat_due = False
        self.not_forked_reason = ""
        # Their agent gave them the run's keys, unless it was of a release before codes.
        self.needs_code = True
        self.log_bytes_skipped = 0
        # Of each log, by its file's name: bytes that it lost in truncations.
        self.log_bytes_lost = dict[str, int]()
        self.next_header = next_header
        self._stopped_seconds = stopped_seconds
        self._steps = StepAggregator()
        self._compute = ComputeTimes(now)
        self._levels = RecentLevels()
        self._blocked_ranks = BlockedRanksMonitor()
        # Of ranks, and the free bytes of the node; for the next heartbeat.
        self._resources: tuple[tuple[signals.RankResources, ...], int] = ((), 0)
        self._resources_due = now + rank_resources.SAMPLE_SECONDS
        self._probe_due = now
        self._log_steps: tuple[StepRecord, ...] = ()
        self._printed = PrintedSteps()
        self._rare_phases = RareField[signals.StartPhase]()
        self._start_phases = StartPhases(ranks=len(self.ranks), spawned_at=spawned_at)
        self._last_loss: float | None = None
        # Of rank 0's reports; of what is printed where none reports.
        self._sums, self._printed_sums = StepSums(now), StepSums(now)
        self._progress_step: int | None = None
        self._progress_sent_at = now
        self._acknowledged: dict[str, None] = {}
        self._output_stats: tuple[tuple[int, int], ...] | None = None
        self._polled_at = self._outputs_due = self._writing_since = now
        self._longest_quiet_seconds = 0.0
        self._reported_stopped: tuple[int, ...] = ()

    @property
    def attempt(self) -> AttemptId:
        """Id of the attempt."""
        return self.plan.attempt

    def levels(self) -> dict[str, float]:
        """Return medians of what the ranks reported in their last steps, as a sealed checkpoint is recorded with."""
        return self._levels.medians()

    @property
    def alive(self) -> list[LocalRank]:
        """Return the ranks whose exit was not seen."""
        return [rank for rank in self.ranks.values() if rank.is_alive]

    @property
    def has_rank_zero(self) -> bool:
        """Whether this is the node with rank 0."""
        return self.plan.node_rank == 0

    def on_packet(self, number: int, packet: bytes, now: float) -> list[Signal]:
        """Handle one packet of a rank; return the durable signals that follow."""
        rank = self.ranks[number]
        self._start_phases.on_packet(number, now)
        parsed, malformed = reports.read_packet(packet)
        emitted = [fact for report in parsed for fact in self._on_report(rank, report, now)]
        if malformed and rank.num_malformed == 0:
            reason = f"rank {number} reports {malformed[0]}"
            emitted.append(signals.MalformedMessage(**self.next_header(), reason=reason))
        rank.num_malformed += len(malformed)
        return emitted

    def _on_report(self, rank: LocalRank, report: reports.Report, now: float) -> list[Signal]:
        match report:
            case reports.StepReport():
                return self._on_step(rank, report, now)
            case reports.PhaseReport():
                rank.phase = report.phase
            case reports.TimingReport():
                self._start_phases.add(rank.rank, report.name, report.seconds)
            case reports.ValidationReport():
                self._steps.add_validation(report)
            case reports.HelloReport():
                return self._on_hello(report)
            case reports.DataReport():
                return self._on_data(report)
            case reports.RequestReport():
                return self._on_acknowledgement(report)
            case _:
                fields = asdict(report)
                if "detail" in fields:
                    fields["detail"] = fields["detail"][:MAX_DETAIL_CHARACTERS]
                if isinstance(report, reports.SealReport):
                    fields |= {"needs_code": self.needs_code, **self.levels()}
                return [_SIGNALS[type(report)](**self.header(), **fields)]
        return []

    @property
    def is_printing(self) -> bool:
        """Whether its progress is known by its output alone."""
        return self.last_step is None and self.hello is None

    @property
    def furthest_step(self) -> int | None:
        """The last step that a rank reported; where none reports any, the furthest that one has printed."""
        return self._printed.furthest if self.last_step is None else self.last_step

    def furthest_age_seconds(self, step: int | None) -> float | None:
        """Return since when the furthest step is known; None: `step` is another one."""
        if step is None or step != self.furthest_step:
            return None
        return max(0.0, time.monotonic() - self._furthest_at)

    def add_log_steps(
        self, records: Sequence[StepRecord], rank: int | None, now: float
    ) -> list[Signal]:
        """Add steps that the log reader found in the output of a rank: they count where no rank reports any."""
        if self.last_step is not None:
            return []
        self._log_steps = (*self._log_steps, *records)[-MAX_STEPS:]
        before = self._printed.furthest
        is_first = before is None
        is_mark = self._printed.add(records, rank)
        if self._printed.furthest != before:
            self._furthest_at = now
        if rank == self._printed.rank:
            for record in records:
                self._printed_sums.add(record, now)
        if not is_mark:
            return []
        self.progress_at = now
        if not is_first and self.alive:
            return []
        # What was printed before the end of the ranks may be read after it.
        self.heartbeat_due = True
        return self.poll_progress(now, every_seconds=0.0)

    def _on_step(self, rank: LocalRank, report: reports.StepReport, now: float) -> list[Signal]:
        self._steps.add(rank.rank, report)
        self._compute.add(rank.rank, report)
        self._levels.add(report)
        self._start_phases.on_step(rank.rank, now)
        if rank.last_step is None or report.step > rank.last_step:
            rank.last_step = report.step
            self.progress_at = now
        if report.loss is not None:
            self._last_loss = report.loss
        if rank.rank == 0:
            step = StepRecord(
                step=report.step,
                skipped=bool(report.skipped),
                tokens_per_second=report.tokens_per_second,
                step_seconds_max=report.step_seconds,
            )
            self._sums.add(step, now)
        if self.last_step is None or report.step > self.last_step:
            self._furthest_at = now
        if self.last_step is not None:
            self.last_step = max(self.last_step, report.step)
            return []
        self.last_step, self._progress_step = report.step, None
        self.heartbeat_due = True
        return self.poll_progress(now, every_seconds=0.0)

    def _on_hello(self, report: reports.HelloReport) -> list[Signal]:
        known, self.hello = self.hello, report if self.hello is None else self.hello.joined(report)
        if self.hello == known or not self.has_rank_zero or self._num_hellos >= MAX_HELLOS:
            return []
        self._num_hellos += 1
        return [signals.RanksReady(**self.header(), **asdict(self.hello))]

    def _on_data(self, report: reports.DataReport) -> list[Signal]:
        is_first, self.data = not self.data, self.data or report.fingerprint
        if not is_first or not self.has_rank_zero:
            return []
        conditions = of_data(self.data)
        return [
            signals.ConditionsFound(
                **self.header(), generation=self.generation, conditions=conditions
            )
        ]

    def _on_acknowledgement(self, report: reports.RequestReport) -> list[Signal]:
        known = self._acknowledged
        is_known = report.request in known or len(known) >= MAX_REQUESTS_REMEMBERED
        if not self.has_rank_zero or is_known:
            return []
        known[report.request] = None
        return [signals.RequestTaken(**self.header(), **asdict(report))]

    def header(self) -> dict[str, Any]:
        """Return the source fields of the next signal on this attempt."""
        return {**self.next_header(), "attempt": self.attempt}

    def poll_progress(self, now: float, *, every_seconds: float) -> list[Signal]:
        """Return a Progress, from the node with rank 0, when there was a step since the last one and it is time.

        Of printed steps any node sends it, those seldom on which neither the first nor the last rank runs: all may print the same.
        """
        is_printed, step = self.last_step is None, self.furthest_step
        if step is None or step == self._progress_step or not (is_printed or self.has_rank_zero):
            return []
        is_first = self._progress_step is None
        if is_printed and not (self.has_rank_zero or self.plan.is_last_node):
            every_seconds = max(every_seconds, SELDOM_SECONDS)
        if now - self._progress_sent_at < every_seconds and (is_printed or not is_first):
            return []
        self._progress_step, self._progress_sent_at = step, now
        if is_printed:
            return self._printed_progress(step, is_first=is_first)
        timings = self._start_phases.reported() if is_first else {}
        made = signals.Progress(**self.header(), step=step, loss=self._last_loss, timings=timings)
        return [replace(made, **self._sums.take())]

    def _printed_progress(self, step: int, *, is_first: bool) -> list[Signal]:
        """Return a mark of the furthest printed step; at first, one of the step with which the ranks resumed, before it."""
        printed = self._printed
        first = printed.first if is_first and printed.first is not None else step
        marks = [(first, printed.first_loss)] if first < step else []
        marks.append((step, printed.loss))
        rank = printed.rank or 0
        made = [
            signals.Progress(**self.header(), step=number, loss=loss, printed_by=rank)
            for number, loss in marks
        ]
        return [*made[:-1], replace(made[-1], **self._printed_sums.take())]

    def poll(self, now: float) -> float:
        """Observe which ranks are stopped; return when to poll again.

        A rank that a debugger or a profiler holds (state t) is not stopped: they release it, and
        limits on progress hold for it all the same.
        """
        for rank in self.alive:
            process = read_process(rank.pid)
            if process is None or process.state != "T":
                rank.stopped_since = None
            elif rank.stopped_since is None:
                rank.stopped_since = now - min(now - self._polled_at, POLL_SECONDS) / 2
        if not set(self._stopped(now)).issubset(self._reported_stopped):
            self.heartbeat_due = True
        self._polled_at = now
        pids = {rank.rank: rank.pid for rank in self.alive}
        self._blocked_ranks.poll(pids, now, progress_at=self.progress_at)
        stopped = [rank.stopped_since for rank in self.alive if rank.stopped_since is not None]
        limits = [since + self._stopped_seconds for since in stopped]
        return min([now + POLL_SECONDS, *(limit for limit in limits if limit > now)])

    def folders_to_probe(self, now: float) -> tuple[str, ...]:
        """Return the run's folders on this node if ranks may be waiting for one of them, and it is time to look."""
        if now < max(self.progress_at + IDLE_SECONDS, self._probe_due):
            return ()
        self._probe_due = now + PROBE_SECONDS
        plan = self.plan
        folders = (plan.output_folder, plan.checkpoints, plan.working_directory)
        return tuple(dict.fromkeys(folder for folder in folders if folder))

    def ranks_to_measure(self, now: float) -> dict[int, int]:
        """Return the ranks (rank -> pid) whose resources are to be measured now; none when that is not due."""
        if now < self._resources_due:
            return {}
        self._resources_due = now + rank_resources.SAMPLE_SECONDS
        return {rank.rank: rank.pid for rank in self.alive}

    def on_measured(
        self,
        measured: tuple[tuple[signals.RankResources, ...], int] | None,
        error: Exception | None,
    ) -> None:
        """Keep what `rank_resources.measure` returned for the next heartbeat."""
        if measured is None:
            log.warning("the ranks' memory and descriptors could not be measured: %s", error)
        else:
            self._resources = measured

    def wants_outputs(self, now: float) -> bool:
        """Whether the ranks report no steps, so that it counts whether they write, and it is time to look again."""
        if self.last_step is not None or now < self._outputs_due:
            return False
        self._outputs_due = now + POLL_OUTPUTS_SECONDS
        return True

    def on_outputs(
        self, asked_at: float, stats: tuple[tuple[int, int], ...], *, now: float
    ) -> None:
        """Compare `output_files.stats` with those before. An answer that came late shows that there were writes, not when."""
        if stats == self._output_stats:
            return
        is_late = now - asked_at > LATE_OUTPUTS_SECONDS
        # What was there before the first poll is no write.
        if self._output_stats is not None:
            self.writes += 1
            if self.writes == 1:
                self._writing_since = now
            elif not is_late:
                quiet_seconds = now - self.progress_at
                self._longest_quiet_seconds = max(self._longest_quiet_seconds, quiet_seconds)
        self._output_stats, self.progress_at = stats, now

    def _stopped(self, now: float) -> tuple[int, ...]:
        latest = now - self._stopped_seconds
        since = {rank.rank: rank.stopped_since for rank in self.alive}
        return tuple(rank for rank, at in since.items() if at is not None and at <= latest)

    def heartbeat(self, now: float) -> signals.Heartbeat:
        """Return what the node observes, with the steps that are due; no later heartbeat repeats them."""
        alive = self.alive
        reporting = [rank.last_step for rank in alive if rank.last_step is not None]
        self._reported_stopped = self._stopped(now)
        self.heartbeat_due = False
        (resources, free_bytes), self._resources = self._resources, ((), 0)
        log_steps, self._log_steps = self._log_steps if self.last_step is None else (), ()
        return signals.Heartbeat(
            **self.header(),
            generation=self.generation,
            ranks_alive=tuple(rank.rank for rank in alive),
            ranks_stopped=self._reported_stopped,
            ranks_blocked=self._blocked_ranks.blocked(now),
            phases={str(rank.rank): rank.phase for rank in alive if rank.phase},
            steps=self._steps.pop_due(done_by_all=min(reporting, default=self.last_step or 0)),
            last_step=self.last_step,
            logged_steps=log_steps,
            log_bytes_skipped=self.log_bytes_skipped,
            num_writes=self.writes,
            writing_seconds=self.progress_at - self._writing_since if self.writes else 0.0,
            longest_gap_seconds=self._longest_quiet_seconds,
            printed_step=self._printed.furthest if self.last_step is None else None,
            num_printed=self._printed.num_marks if self.last_step is None else 0,
            start_phases=self._rare_phases.pop_due(self._start_phases.slowest(now), now),
            rank_computes=self._compute.pop_medians(now),
            rank_resources=resources,
            memory_free_bytes=free_bytes,
        )

    def started(self) -> signals.RanksStarted:
        """Return the signal that all ranks are started."""
        return signals.RanksStarted(
            **self.header(),
            generation=self.generation,
            pids={str(rank.rank): rank.pid for rank in self.ranks.values()},
            not_forked_reason=self.not_forked_reason[: signals.MAX_NOT_FORKED_REASON],
        )

    def exited(self, number: int, exit_code: int | None, *, stderr_tail: str) -> signals.RankExited:
        """Return the signal that a rank ended by itself."""
        rank = self.ranks[number]
        rank.is_alive = False
        last_step = rank.last_step if rank.last_step is not None else self.furthest_step
        return signals.RankExited(
            **self.header(),
            generation=self.generation,
            rank=number,
            exit_code=exit_code,
            last_step=last_step,
            last_step_age_seconds=self.furthest_age_seconds(last_step),
            stderr_tail=stderr_tail,
        )
