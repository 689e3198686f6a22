"""A gang as one node sees it: its ranks, what they report, and the signals that follow. Its only I/O is reading /proc."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.agent.hangs.blocked_ranks import BlockedRanksMonitor
from runner.agent.ranks import output_files, rank_resources, reports
from runner.agent.ranks.compute_times import ComputeTimes
from runner.agent.ranks.start_times import StartPhases
from runner.agent.ranks.step_aggregator import MAX_STEPS, StepAggregator
from runner.facts.ids import AttemptId
from runner.facts.messages.assignments import Assignment, LaunchPlan
from runner.facts.messages.rank_stacks import RankStack
from runner.facts.messages.signals import (
    MAX_NOT_FORKED_REASON,
    CheckpointSealed,
    Heartbeat,
    MalformedMessage,
    Progress,
    RankExited,
    RankResources,
    RanksReady,
    RanksStarted,
    RanksTerminated,
    ReplicasDisagree,
    RequestTaken,
    SettingsInEffect,
    Signal,
    StepRecord,
)
from runner.keeper.procfs import read_process

log = logging.getLogger("stoker.agent")

NextHeader = Callable[[], Mapping[str, Any]]
# Characters of a report's detail that a signal carries; chosen.
MAX_DETAIL = 300
# Requests known to be acknowledged; chosen.
MAX_REMEMBERED = 1000
# Between two polls of the ranks' states; chosen. That a rank is stopped is known to half of it. A poll costs some 100 us, most
# of it for waking up (measured), so polling takes an agent 0.05 to 0.1 % of a core.
POLL_SECONDS = 0.2
# Between two polls of the files that ranks write to; chosen.
WRITES_SECONDS = 0.2


@dataclass(slots=True, kw_only=True)
class LocalRank:
    """A rank of this node. `stopped_since`: monotonic seconds, while its process is in state T (SIGSTOP).

    That is halfway between the first poll that found it so and the one before.
    """

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
    rank has sent it. `spawned_at` (monotonic) is when the agent requested the ranks; None for those of an earlier agent, whose
    first report was not timed.
    """

    def __init__(
        self,
        assignment: Assignment,
        pids: Mapping[int, int],
        next_header: NextHeader,
        now: float,
        *,
        spawned_at: float | None = None,
    ):
        assert assignment.plan is not None
        self.assignment = assignment
        self.plan: LaunchPlan = assignment.plan
        self.generation = assignment.generation
        self.ranks = {rank: LocalRank(rank=rank, pid=pid) for rank, pid in sorted(pids.items())}
        self.hello: reports.HelloReport | None = None
        self.last_step: int | None = None
        self.progress_at = now
        self.writes = 0
        self.heartbeat_due = False
        self._next_header = next_header
        self._steps = StepAggregator()
        self._compute = ComputeTimes(now)
        self._blocked_ranks = BlockedRanksMonitor()
        # For the next heartbeat: resources of ranks, free memory, and steps in the output of ranks.
        self._resources: tuple[tuple[RankResources, ...], int] = ((), 0)
        self._resources_due = now + rank_resources.SAMPLE_SECONDS
        self.log_bytes_skipped = 0
        self._log_steps: tuple[StepRecord, ...] = ()
        self._start_phases = StartPhases(ranks=len(self.ranks), spawned_at=spawned_at)
        self._last_loss: float | None = None
        self._progress_step: int | None = None
        self._progress_sent_at = now
        self._acknowledged: dict[str, None] = {}
        # None before the first poll.
        self._output_stats: tuple[tuple[int, int], ...] | None = None
        self._polled_at = self._outputs_due = self._writing_since = now
        self._longest_quiet_seconds = 0.0
        self._reported_stopped: tuple[int, ...] = ()

    @property
    def attempt(self) -> AttemptId:
        """Id of the attempt."""
        return self.plan.attempt

    @property
    def alive(self) -> list[LocalRank]:
        """Return the ranks whose exit was not seen."""
        return [rank for rank in self.ranks.values() if rank.is_alive]

    @property
    def has_rank_zero(self) -> bool:
        """Whether this is the node with rank 0."""
        return self.plan.node_rank == 0

    # -- what ranks report

    def on_packet(self, number: int, packet: bytes, now: float) -> list[Signal]:
        """Handle one packet of a rank; return the durable signals that follow."""
        rank = self.ranks[number]
        self._start_phases.on_packet(number, now)
        parsed, malformed = reports.read_packet(packet)
        signals = [signal for report in parsed for signal in self._on_report(rank, report, now)]
        if malformed and rank.num_malformed == 0:
            reason = f"rank {number} reports {malformed[0]}"
            signals.append(MalformedMessage(**self._next_header(), reason=reason))
        rank.num_malformed += len(malformed)
        return signals

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
            case reports.SettingsReport():
                return [SettingsInEffect(**self._header(), step=report.step, values=report.values)]
            case reports.SealReport():
                return [CheckpointSealed(**self._header(), step=report.step, path=report.path)]
            case reports.ReplicasReport():
                return [
                    ReplicasDisagree(
                        **self._header(),
                        step=report.step,
                        what=report.what,
                        ranks=report.ranks,
                        detail=report.detail[:MAX_DETAIL],
                    )
                ]
            case reports.RequestReport():
                return self._on_acknowledgement(report)
        return []

    def add_log_steps(self, records: Sequence[StepRecord]) -> None:
        """Add steps that the log reader found in output: they count where no rank reports any."""
        if self.last_step is None:
            self._log_steps = (*self._log_steps, *records)[-MAX_STEPS:]

    def _on_step(self, rank: LocalRank, report: reports.StepReport, now: float) -> list[Signal]:
        self._steps.add(rank.rank, report)
        self._compute.add(rank.rank, report)
        self._start_phases.on_step(rank.rank, now)
        if rank.last_step is None or report.step > rank.last_step:
            rank.last_step = report.step
            self.progress_at = now
        if report.loss is not None:
            self._last_loss = report.loss
        if self.last_step is not None and report.step <= self.last_step:
            return []
        is_first = self.last_step is None
        self.last_step = report.step
        if not is_first:
            return []
        self.heartbeat_due = True
        return self.poll_progress(now, every_seconds=0.0)

    def _on_hello(self, report: reports.HelloReport) -> list[Signal]:
        is_first = self.hello is None
        self.hello = report
        if not is_first or not self.has_rank_zero:
            return []
        requests, remedies = report.requests, report.remedies
        return [RanksReady(**self._header(), requests=requests, remedies=remedies)]

    def _on_acknowledgement(self, report: reports.RequestReport) -> list[Signal]:
        known = self._acknowledged
        if not self.has_rank_zero or report.request in known or len(known) >= MAX_REMEMBERED:
            return []
        known[report.request] = None
        return [RequestTaken(**self._header(), request=report.request, step=report.step)]

    def _header(self) -> dict[str, Any]:
        return {**self._next_header(), "attempt": self.attempt}

    # -- what the agent sees

    def poll_progress(self, now: float, *, every_seconds: float) -> list[Signal]:
        """Return a Progress, from the node with rank 0, when there was a step since the last one and it is time."""
        step = self.last_step
        if not self.has_rank_zero or step is None or step == self._progress_step:
            return []
        is_first = self._progress_step is None
        if not is_first and now - self._progress_sent_at < every_seconds:
            return []
        self._progress_step, self._progress_sent_at = step, now
        timings = self._start_phases.reported() if is_first else {}
        return [Progress(**self._header(), step=step, loss=self._last_loss, timings=timings)]

    def poll(self, now: float, *, stopped_seconds: float) -> float:
        """Observe from outside which ranks are stopped, and, when none reports steps, whether any has written.

        Sets `heartbeat_due` when a rank has now been stopped for too long. Returns when to poll again. A rank that a debugger
        or a profiler holds (state t) is not stopped: they release it, and limits on progress hold for it all the same.
        """
        for rank in self.alive:
            process = read_process(rank.pid)
            if process is None or process.state != "T":
                rank.stopped_since = None
            elif rank.stopped_since is None:
                rank.stopped_since = now - min(now - self._polled_at, POLL_SECONDS) / 2
        if set(self.stopped(now, seconds=stopped_seconds)) - set(self._reported_stopped):
            self.heartbeat_due = True
        self._polled_at = now
        pids = {rank.rank: rank.pid for rank in self.alive}
        self._blocked_ranks.poll(pids, now, progress_at=self.progress_at)
        if self.last_step is None and now >= self._outputs_due:
            self._outputs_due = now + WRITES_SECONDS
            self._poll_outputs(now)
        limits = [
            rank.stopped_since + stopped_seconds
            for rank in self.alive
            if rank.stopped_since is not None and rank.stopped_since + stopped_seconds > now
        ]
        return min([now + POLL_SECONDS, *limits])

    def ranks_to_measure(self, now: float) -> dict[int, int]:
        """Return the ranks (rank -> pid) whose resources are to be measured now; none when that is not due."""
        if now < self._resources_due:
            return {}
        self._resources_due = now + rank_resources.SAMPLE_SECONDS
        return {rank.rank: rank.pid for rank in self.alive}

    def on_measured(
        self, measured: tuple[tuple[RankResources, ...], int] | None, error: Exception | None
    ) -> None:
        """Keep what `rank_resources.measure` returned for the next heartbeat."""
        if measured is None:
            log.warning("the ranks' memory and descriptors could not be measured: %s", error)
        else:
            self._resources = measured

    def _poll_outputs(self, now: float) -> None:
        stats = output_files.stats(self.plan.output_folder, self.plan.ranks)
        if stats == self._output_stats:
            return
        # What was there before the first poll is no write.
        if self._output_stats is not None:
            self.writes += 1
            if self.writes == 1:
                self._writing_since = now
            else:
                quiet_seconds = now - self.progress_at
                self._longest_quiet_seconds = max(self._longest_quiet_seconds, quiet_seconds)
        self._output_stats, self.progress_at = stats, now

    def stopped(self, now: float, *, seconds: float) -> tuple[int, ...]:
        """Return the ranks that have been stopped for that long."""
        return tuple(
            rank.rank
            for rank in self.alive
            if rank.stopped_since is not None and now - rank.stopped_since >= seconds
        )

    def heartbeat(self, now: float, *, stopped_seconds: float, resident_bytes: int) -> Heartbeat:
        """Return what the node observes, with the steps that are due; no later heartbeat repeats them."""
        alive = self.alive
        reporting = [rank.last_step for rank in alive if rank.last_step is not None]
        self._reported_stopped = self.stopped(now, seconds=stopped_seconds)
        self.heartbeat_due = False
        (resources, free_bytes), self._resources = self._resources, ((), 0)
        log_steps, self._log_steps = self._log_steps if self.last_step is None else (), ()
        return Heartbeat(
            **self._header(),
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
            start_phases=self._start_phases.slowest(now),
            rank_computes=self._compute.pop_medians(now),
            rank_resources=resources,
            memory_free_bytes=free_bytes,
            agent_resident_bytes=resident_bytes,
        )

    # -- beginning and end

    def started(self, *, not_forked_reason: str = "") -> RanksStarted:
        """Return the signal that all ranks are started; `not_forked_reason`: why a requested fork was refused."""
        pids = {str(rank.rank): rank.pid for rank in self.ranks.values()}
        return RanksStarted(
            **self._header(),
            generation=self.generation,
            pids=pids,
            not_forked_reason=not_forked_reason[:MAX_NOT_FORKED_REASON],
        )

    def exited(self, number: int, exit_code: int | None) -> RankExited:
        """Return the signal that a rank ended by itself."""
        rank = self.ranks[number]
        rank.is_alive = False
        return RankExited(
            **self._header(),
            generation=self.generation,
            rank=number,
            exit_code=exit_code,
            last_step=rank.last_step if rank.last_step is not None else self.last_step,
            stderr_tail=output_files.tail(output_files.paths(self.plan.output_folder, number)[1]),
        )

    def terminated(
        self,
        *,
        left_behind: tuple[int, ...],
        fenced: bool,
        stacks: int = 0,
        rank_stacks: tuple[RankStack, ...] = (),
    ) -> list[Signal]:
        """Return the signals once no rank is left: first the malformed reports that were counted, then that the ranks are gone."""
        signals: list[Signal] = [
            MalformedMessage(
                **self._next_header(),
                reason=f"rank {rank.rank} sent a malformed report",
                count=rank.num_malformed,
            )
            for rank in self.ranks.values()
            if rank.num_malformed > 1
        ]
        signals.append(
            RanksTerminated(
                **self._header(),
                generation=self.generation,
                last_step=self.last_step,
                left_behind=left_behind,
                fenced=fenced,
                num_stacks=stacks,
                rank_stacks=rank_stacks,
            )
        )
        return signals
