"""A gang as one node sees it: its ranks, what they report, and the signals that follow. No I/O but reading /proc."""

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
    MAX_COLD,
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

Stamp = Callable[[], Mapping[str, Any]]
# characters of a report that are told; chosen
MAX_DETAIL = 300
# requests known to be taken; chosen
MAX_REMEMBERED = 1000
# Between two looks at the ranks' states; chosen. That a rank is stopped is known to half of it. A look costs some 100 us, most
# of it for waking up (measured), so looking takes an agent 0.05 to 0.1 % of a core.
LOOK_SECONDS = 0.2
# between two looks at the files that ranks write to; chosen
WRITES_SECONDS = 0.2


@dataclass(slots=True, kw_only=True)
class LocalRank:
    """A rank of this node. `stopped_since`: monotonic seconds, while its process is seen in state T (SIGSTOP).

    That is halfway between the first look that found it so and the one before.
    """

    rank: int
    pid: int
    is_alive: bool = True
    phase: str = ""
    last_step: int | None = None
    stopped_since: float | None = None
    num_junk: int = 0


class LocalGang:
    """The ranks of one attempt on this node, and what they have told. `stamp` gives each signal its source fields.

    `progress_at` (monotonic seconds) is the last step of any rank; of ranks that report none, the last time one wrote
    to its output, and `writes` counts how often that was seen. `wants_beat` asks for a heartbeat at once. `understood` is
    None until a rank has said hello. `spawned_at` (monotonic) is when the keeper was asked for the ranks; None for those of an
    earlier agent, whose first word nobody timed.
    """

    def __init__(
        self,
        assignment: Assignment,
        pids: Mapping[int, int],
        stamp: Stamp,
        now: float,
        *,
        spawned_at: float | None = None,
    ):
        assert assignment.plan is not None
        self.assignment = assignment
        self.plan: LaunchPlan = assignment.plan
        self.epoch = assignment.epoch
        self.ranks = {rank: LocalRank(rank=rank, pid=pid) for rank, pid in sorted(pids.items())}
        self.understood: reports.HelloReport | None = None
        self.last_step: int | None = None
        self.progress_at = now
        self.writes = 0
        self.wants_beat = False
        self._stamp = stamp
        self._fold = StepAggregator()
        self._compute = ComputeTimes(now)
        self._blocked = BlockedRanksMonitor()
        # not told yet
        self._measured: tuple[tuple[RankResources, ...], int] = ((), 0)
        self._measure_due = now + rank_resources.SAMPLE_SECONDS
        self.log_bytes_skipped = 0
        # steps in the output of ranks, not told yet
        self._read: tuple[StepRecord, ...] = ()
        self._start = StartPhases(ranks=len(self.ranks), spawned_at=spawned_at)
        self._last_loss: float | None = None
        self._marked_step: int | None = None
        self._marked_at = now
        self._taken: dict[str, None] = {}
        # None: not looked at yet
        self._signs: tuple[tuple[int, int], ...] | None = None
        self._looked_at = self._signs_due = self._writing_since = now
        self._longest_quiet_seconds = 0.0
        self._told_stopped: tuple[int, ...] = ()

    @property
    def attempt(self) -> AttemptId:
        """Id of the attempt."""
        return self.plan.attempt

    @property
    def alive(self) -> list[LocalRank]:
        """Return the ranks whose exit was not seen."""
        return [rank for rank in self.ranks.values() if rank.is_alive]

    @property
    def leads(self) -> bool:
        """Whether this is the node with rank 0."""
        return self.plan.node_rank == 0

    # -- what ranks report

    def hear(self, number: int, packet: bytes, now: float) -> list[Signal]:
        """Take one packet of a rank; return the durable signals that follow."""
        rank = self.ranks[number]
        self._start.spoke(number, now)
        found, junk = reports.read_packet(packet)
        signals = [signal for report in found for signal in self._take(rank, report, now)]
        for reason in junk:
            rank.num_junk += 1
            if rank.num_junk == 1:
                signals.append(
                    MalformedMessage(**self._stamp(), reason=f"rank {number} reports {reason}")
                )
        return signals

    def _take(self, rank: LocalRank, report: reports.Report, now: float) -> list[Signal]:
        match report:
            case reports.StepReport():
                return self._stepped(rank, report, now)
            case reports.PhaseReport():
                rank.phase = report.phase
            case reports.TimingReport():
                self._start.took(rank.rank, report.name, report.seconds)
            case reports.ValidationReport():
                self._fold.validated(report)
            case reports.HelloReport():
                return self._greeted(report)
            case reports.SettingsReport():
                values = dict(report.values)
                step = report.step
                return [
                    SettingsInEffect(
                        **self._stamp(), attempt=self.attempt, step=step, values=values
                    )
                ]
            case reports.SealReport():
                step, path = report.step, report.path
                return [
                    CheckpointSealed(**self._stamp(), attempt=self.attempt, step=step, path=path)
                ]
            case reports.ReplicasReport():
                return [
                    ReplicasDisagree(
                        **self._stamp(),
                        attempt=self.attempt,
                        step=report.step,
                        what=report.what,
                        ranks=report.ranks,
                        detail=report.detail[:MAX_DETAIL],
                    )
                ]
            case reports.RequestReport():
                return self._request_taken(report)
        return []

    def read_steps(self, records: Sequence[StepRecord]) -> None:
        """Take the steps that the output of ranks tells of: they count where no rank reports any."""
        if self.last_step is None:
            self._read = (*self._read, *records)[-MAX_STEPS:]

    def _stepped(self, rank: LocalRank, report: reports.StepReport, now: float) -> list[Signal]:
        self._fold.add(rank.rank, report)
        self._compute.add(rank.rank, report)
        self._start.stepped(rank.rank, now)
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
        self.wants_beat = True
        return self.mark(now, every_seconds=0.0)

    def _greeted(self, report: reports.HelloReport) -> list[Signal]:
        is_first = self.understood is None
        self.understood = report
        if not is_first or not self.leads:
            return []
        requests, remedies = report.requests, report.remedies
        return [
            RanksReady(**self._stamp(), attempt=self.attempt, requests=requests, remedies=remedies)
        ]

    def _request_taken(self, report: reports.RequestReport) -> list[Signal]:
        if not self.leads or report.request in self._taken or len(self._taken) >= MAX_REMEMBERED:
            return []
        self._taken[report.request] = None
        return [
            RequestTaken(
                **self._stamp(), attempt=self.attempt, request=report.request, step=report.step
            )
        ]

    # -- what the agent sees

    def mark(self, now: float, *, every_seconds: float) -> list[Signal]:
        """Return a Progress, from the node with rank 0, when a step was made since the last and it is time."""
        step = self.last_step
        if not self.leads or step is None or step == self._marked_step:
            return []
        is_first = self._marked_step is None
        if not is_first and now - self._marked_at < every_seconds:
            return []
        self._marked_step, self._marked_at = step, now
        timings = self._start.reported() if is_first else {}
        loss = self._last_loss
        return [
            Progress(**self._stamp(), attempt=self.attempt, step=step, loss=loss, timings=timings)
        ]

    def look(self, now: float, *, stopped_seconds: float) -> float:
        """Look at the ranks from outside: who is stopped, and, when none reports steps, whether any has written.

        Sets `wants_beat` when a rank has now been stopped for too long. Returns when to look again. A rank that a debugger
        or a profiler holds (state t) is not stopped: they let go of it, and limits on progress hold for it all the same.
        """
        for rank in self.alive:
            seen = read_process(rank.pid)
            if seen is None or seen.state != "T":
                rank.stopped_since = None
            elif rank.stopped_since is None:
                rank.stopped_since = now - min(now - self._looked_at, LOOK_SECONDS) / 2
        if any(
            rank not in self._told_stopped for rank in self.stopped(now, seconds=stopped_seconds)
        ):
            self.wants_beat = True
        self._looked_at = now
        pids = {rank.rank: rank.pid for rank in self.alive}
        self._blocked.look(pids, now, progress_at=self.progress_at)
        if self.last_step is None and now >= self._signs_due:
            self._signs_due = now + WRITES_SECONDS
            self._look_at_outputs(now)
        limits = [
            rank.stopped_since + stopped_seconds
            for rank in self.alive
            if rank.stopped_since is not None and rank.stopped_since + stopped_seconds > now
        ]
        return min([now + LOOK_SECONDS, *limits])

    def to_measure(self, now: float) -> dict[int, int]:
        """Return the ranks (rank -> pid) whose holdings are to be measured now; none when that is not due."""
        if now < self._measure_due:
            return {}
        self._measure_due = now + rank_resources.SAMPLE_SECONDS
        return {rank.rank: rank.pid for rank in self.alive}

    def measured(
        self, found: tuple[tuple[RankResources, ...], int] | None, error: Exception | None
    ) -> None:
        """Take what was measured, for the next heartbeat to tell."""
        if found is None:
            log.warning("the ranks' memory and descriptors could not be measured: %s", error)
        else:
            self._measured = found

    def _look_at_outputs(self, now: float) -> None:
        signs = output_files.signs(self.plan.output_folder, self.plan.ranks)
        if signs == self._signs:
            return
        # what was there before the first look is no write
        if self._signs is not None:
            self.writes += 1
            if self.writes == 1:
                self._writing_since = now
            else:
                quiet_seconds = now - self.progress_at
                self._longest_quiet_seconds = max(self._longest_quiet_seconds, quiet_seconds)
        self._signs, self.progress_at = signs, now

    def stopped(self, now: float, *, seconds: float) -> tuple[int, ...]:
        """Return the ranks that have been stopped for that long."""
        return tuple(
            rank.rank
            for rank in self.alive
            if rank.stopped_since is not None and now - rank.stopped_since >= seconds
        )

    def heartbeat(self, now: float, *, stopped_seconds: float, resident_bytes: int) -> Heartbeat:
        """Return what the node sees, with the steps that are due; they are not told again."""
        alive = self.alive
        reporting = [rank.last_step for rank in alive if rank.last_step is not None]
        self._told_stopped = self.stopped(now, seconds=stopped_seconds)
        self.wants_beat = False
        (held, free_bytes), self._measured = self._measured, ((), 0)
        read, self._read = self._read if self.last_step is None else (), ()
        return Heartbeat(
            **self._stamp(),
            epoch=self.epoch,
            attempt=self.attempt,
            ranks_alive=tuple(rank.rank for rank in alive),
            ranks_stopped=self._told_stopped,
            ranks_blocked=self._blocked.told(now),
            phases={str(rank.rank): rank.phase for rank in alive if rank.phase},
            steps=self._fold.take(done_by_all=min(reporting, default=self.last_step or 0)),
            last_step=self.last_step,
            read_steps=read,
            log_bytes_skipped=self.log_bytes_skipped,
            writes=self.writes,
            writing_seconds=self.progress_at - self._writing_since if self.writes else 0.0,
            longest_quiet_seconds=self._longest_quiet_seconds,
            start=self._start.slowest(now),
            computed=self._compute.take(now),
            holdings=held,
            memory_free_bytes=free_bytes,
            agent_resident_bytes=resident_bytes,
        )

    # -- beginning and end

    def started(self, *, cold: str = "") -> RanksStarted:
        """Return the signal that all ranks are started; `cold`: why they were not forked although that was wanted."""
        pids = {str(rank.rank): rank.pid for rank in self.ranks.values()}
        return RanksStarted(
            **self._stamp(), epoch=self.epoch, attempt=self.attempt, pids=pids, cold=cold[:MAX_COLD]
        )

    def exited(self, number: int, exit_code: int | None) -> RankExited:
        """Return the signal that a rank ended by itself."""
        rank = self.ranks[number]
        rank.is_alive = False
        return RankExited(
            **self._stamp(),
            epoch=self.epoch,
            attempt=self.attempt,
            rank=number,
            exit_code=exit_code,
            last_step=rank.last_step if rank.last_step is not None else self.last_step,
            stderr_tail=output_files.tail(output_files.paths(self.plan.output_folder, number)[1]),
        )

    def gone(
        self,
        *,
        left_behind: tuple[int, ...],
        fenced: bool,
        stacks: int = 0,
        stands: tuple[RankStack, ...] = (),
    ) -> list[Signal]:
        """Return what is to be said once no rank is left: first the junk that was counted, then that they are gone."""
        signals: list[Signal] = [
            MalformedMessage(
                **self._stamp(), reason=f"rank {rank.rank} reported junk", count=rank.num_junk
            )
            for rank in self.ranks.values()
            if rank.num_junk > 1
        ]
        signals.append(
            RanksTerminated(
                **self._stamp(),
                epoch=self.epoch,
                attempt=self.attempt,
                last_step=self.last_step,
                left_behind=left_behind,
                fenced=fenced,
                stacks=stacks,
                stands=stands,
            )
        )
        return signals
