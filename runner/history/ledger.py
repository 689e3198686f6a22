"""The ledger: the one place that says what ETTR, lost seconds and contributing steps are.

*wall* seconds: from the record that admitted the run to the record that ended it (finished, stopped, failed), or to now.

*contributing steps*: steps that are part of the run's state. A new attempt that resumes from step r of an earlier one
overwrites whatever came after r; the chain from the newest attempt back through the checkpoints it descends from says which
steps are left. The first step of a script that keeps checkpoints of its own shows where it resumed.

*productive* seconds: the time those steps took, reckoned from the journal's marks (see `marks`), checkpoints and evaluations
between steps included. The step in progress counts as productive until it turns out not to have been.

*ETTR*, the effective training time ratio: productive / wall, in [0, 1]. None as long as no step is known.

*lost* seconds: all others, each under one cause, so that productive + sum(lost) = wall:

| cause | from | to |
|---|---|---|
| `initial_start` | the run is admitted | its first step is done, or its first attempt breaks |
| `waiting` | too few nodes | an attempt can be planned |
| `detect` | the fault, or rather the last good sign before it | the incident is opened |
| `stop` | the incident is opened | the gang is gone |
| `prepare` | the gang is gone | the new one is assigned: checkpoint verified, rendezvous chosen |
| `start` | the gang is assigned | its first step is done |
| `rework` | | time on steps that were overwritten, or never finished |
| `requested` | a request ends the attempt (stop, learning rate, swap, drain) | the next first step, or the end of the run |
| `finish` | the last step | the run is finished: last checkpoint, exit of the ranks |
| `unreported` | ranks run | in a run that reports no step: this time cannot be classified |

Seconds to detect are those the incident itself names: from the last good sign to its opening. A death that was observed has
none; if it was a drill, the seconds since the drill was ordered stand in, which is an upper bound.

An incident that does not end its attempt (an agent is replaced, the ranks go on) loses nothing here.

*recovered* means: the first step of the attempt that followed (of the last one, when the incident recurred), in seconds
after the incident was opened; where no attempt had to end, the incident's resolution. *steps lost* are those between the
furthest step reached and the one resumed from, summed over the times the incident occurred.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import field

from runner.facts.actions import NodeTask
from runner.facts.checkpoints import Trust
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.messages.signals import RankExited, RanksTerminated
from runner.facts.wire import MutableValue, from_plain, to_plain
from runner.history.recent_time import DAY_SECONDS, HOUR_SECONDS, recent_ettr
from runner.history.run_accounting import CAUSES, IncidentAccounting, RunAccounting

# An incident later than this after a drill is not attributed to it. Chosen, not measured.
DRILL_SECONDS = 60.0

# What bounded books keep: attempts of one run, and incidents; chosen, the controller's state keeps as many.
KEPT_ATTEMPTS = 200
KEPT_INCIDENTS = 200

_Handler = Callable[["Ledger", float, Any], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """Where a run's time went, at one moment. Seconds; `lost_seconds` by cause (`run_accounting.CAUSES`)."""

    run: int
    name: str
    wall_seconds: float
    productive_seconds: float
    lost_seconds: Mapping[str, float]
    ettr_ratio: float | None
    ended: bool
    num_attempts: int
    lost_steps: int
    contributing_steps: Mapping[AttemptId, tuple[int, int]]
    # Of the last hour and the last day (`recent_time`).
    ettr_hour_ratio: float | None
    ettr_day_ratio: float | None
    # The same seconds as counters: they never fall (`run_counters`).
    productive_seconds_total: float
    lost_seconds_total: Mapping[str, float]


class RunBooks(MutableValue):
    """All that the ledger remembers, in one piece for the snapshot."""

    now: float = 0.0
    runs: dict[int, RunAccounting] = field(default_factory=dict)
    incidents: dict[str, IncidentAccounting] = field(default_factory=dict)
    # Run -> when the last drill was ordered.
    drills: dict[int, float] = field(default_factory=dict)


class Ledger:
    """Folds journal entries, each once and in order. An entry costs microseconds; a summary does not grow with the journal.

    `bounded`: old accounts are put away, for a take-over that must not read more every month; they are in the journal, which
    an unbounded ledger reads. Sums and figures of runs are the same.
    """

    def __init__(self, *, bounded: bool = False) -> None:
        self._books = RunBooks()
        self._bounded = bounded

    def apply(self, entry: r.JournalEntry) -> None:
        """Take note of one journal entry; entries and records that say nothing about time are passed over."""
        books = self._books
        if entry.now > books.now:
            books.now = entry.now
        now, fact = books.now, entry.input
        if (handler := _HANDLERS.get(type(fact))) is not None:
            handler(self, now, fact)
        for fact in entry.records:
            if (handler := _HANDLERS.get(type(fact))) is not None:
                handler(self, now, fact)

    def summary(self, run: int, now: float) -> RunSummary:
        """Describe where the time of `run` went until `now`; raises KeyError for a run that was never admitted."""
        account = self._books.runs[run]
        now = max(now, self._books.now)
        end = now if account.ended_at is None else account.ended_at
        wall, productive = end - account.admitted_at, account.productive_seconds(end)
        lost, counters = account.lost_seconds(end), account.counters
        return RunSummary(
            run=run,
            name=account.name,
            wall_seconds=wall,
            productive_seconds=productive,
            lost_seconds=lost,
            ettr_ratio=min(1.0, productive / wall) if account.stepped and wall > 0 else None,
            ended=account.ended_at is not None,
            num_attempts=account.num_attempts,
            lost_steps=account.lost_steps(),
            contributing_steps=account.contributing(),
            ettr_hour_ratio=recent_ettr(account, HOUR_SECONDS, now),
            ettr_day_ratio=recent_ettr(account, DAY_SECONDS, now),
            productive_seconds_total=max(account.marked_seconds(end), counters.productive_seconds),
            lost_seconds_total={
                cause: max(lost.get(cause, 0.0), counters.lost_seconds.get(cause, 0.0))
                for cause in CAUSES
            },
        )

    @property
    def runs(self) -> tuple[int, ...]:
        """Numbers of all runs ever admitted, in order."""
        return tuple(self._books.runs)

    def account(self, run: int) -> RunAccounting:
        """Return the books of one run, to be read only; raises KeyError for a run that was never admitted."""
        return self._books.runs[run]

    def incident(self, incident: str) -> IncidentAccounting | None:
        """What an incident cost, to be read only; None for one that the ledger does not know."""
        return self._books.incidents.get(incident)

    def incidents(self, run: int | None = None) -> tuple[IncidentAccounting, ...]:
        """All incidents, or those of one run, oldest first."""
        every = self._books.incidents.values()
        return tuple(account for account in every if run is None or account.run == run)

    def dump(self) -> dict[str, Any]:
        """Everything the ledger remembers, ready for json: a part of the supervisor's snapshot."""
        return dict(to_plain(self._books))

    @classmethod
    def load(cls, plain: Mapping[str, Any], *, bounded: bool = False) -> "Ledger":
        """Build a ledger from what `dump` returned; raises WireError when it is something else."""
        ledger = cls(bounded=bounded)
        ledger._books = from_plain(RunBooks, dict(plain))
        return ledger

    # ---- what matters of inputs and records -----------------------------------------------------------------------

    def _run_of(self, fact: object) -> RunAccounting | None:
        attempt = getattr(fact, "attempt", None)
        return self._books.runs.get(getattr(fact, "run", -1) if attempt is None else attempt.run)

    def _run_admitted(self, now: float, record: r.RunAdmitted) -> None:
        if record.run not in self._books.runs:
            self._books.runs[record.run] = RunAccounting(
                run=record.run, name=record.spec.name, admitted_at=now, since=now
            )

    def _last_step_of_ranks(
        self, run: RunAccounting, now: float, fact: RankExited | RanksTerminated
    ) -> None:
        if run.would_reach(fact.attempt, fact.last_step):
            run.keep_counters(now)
        run.reached(fact.attempt, fact.last_step)

    def _run_changed(self, run: RunAccounting, now: float, record: r.RunChanged) -> None:
        run.keep_counters(now)
        run.changed(now, record.state)

    def _planned(self, run: RunAccounting, now: float, record: r.AttemptPlanned) -> None:
        run.keep_counters(now)
        run.planned(now, record.attempt)
        if self._bounded:
            run.put_away(KEPT_ATTEMPTS)

    def _prepared(self, run: RunAccounting, now: float, record: r.AttemptPrepared) -> None:
        run.keep_counters(now)
        self._settle(run.prepared(record.attempt, record.resume, record.resume_step))

    def _attempt_changed(self, run: RunAccounting, now: float, record: r.AttemptChanged) -> None:
        run.keep_counters(now)
        match record.state:
            case "launching":
                run.launching(now, record.attempt)
                run.counters.on_launch(self._cause_of_restart(run))
            case "running":
                run.running(now, record.attempt)
            case "stopping" | "ended":
                incident = self._incident_that_ended(record)
                run.stopping(now, record.attempt, record.outcome, incident)
                if record.state == "ended":
                    run.ended(now, record.attempt)

    def _reports_steps(
        self, run: RunAccounting, now: float, _record: r.RankCapabilitiesRecorded
    ) -> None:
        if not run.reports_steps:
            run.keep_counters(now)
        run.reports_steps = True

    def _checkpoint(self, run: RunAccounting, now: float, record: r.CheckpointRecorded) -> None:
        known = record.checkpoint
        if known.path not in run.checkpoint_times and known.trust != Trust.REFUSED:
            run.checkpoint_times[known.path] = now
        if known.attempt in run.attempts:
            if run.would_reach(known.attempt, known.step):
                run.keep_counters(now)
            run.checkpointed(known.path, known.attempt, known.step)

    def _checkpoint_removed(
        self, run: RunAccounting, _now: float, record: r.CheckpointRemoved
    ) -> None:
        run.checkpoints.pop(record.path, None)
        run.checkpoint_times.pop(record.path, None)

    def _advanced(self, run: RunAccounting, now: float, record: r.StepsAdvanced) -> None:
        first = run.phase != "step"
        if first or record.attempt != run.current:
            run.keep_counters(now)
        run.counters.tokens += record.tokens
        run.counters.skipped_steps += record.num_skipped
        at = now
        if record.at is not None:
            run.keep_counters(now)
            run.late_mark(record.at, record.attempt, record.step)
            at = min(now, run.not_before(record.at))
        self._settle(run.advanced(at, record.attempt, record.step))
        if not (first and run.phase == "step"):
            return
        for incident in self.incidents(run.run):
            if incident.stopped_attempt and incident.recovered_after_seconds is None:
                incident.recovered_after_seconds = now - incident.opened_at

    def _incident_opened(self, now: float, record: r.IncidentOpened) -> None:
        if record.incident in self._books.incidents:
            return
        run = record.attempt.run if record.attempt is not None else record.run
        ordered = self._books.drills.pop(-1 if run is None else run, None)
        after = record.detected_after_seconds
        if after is None and ordered is not None and now - ordered <= DRILL_SECONDS:
            after = now - ordered
        self._books.incidents[record.incident] = IncidentAccounting(
            incident=record.incident,
            fault=record.fault,
            run=run,
            attempt=record.attempt,
            opened_at=now,
            failed_at=now,
            failed_after_seconds=after or 0.0,
            detected_after_seconds=after,
            non_fatal=record.non_fatal,
        )
        self._put_away()

    def _action_issued(self, now: float, record: r.ActionIssued) -> None:
        action = record.action
        is_task = action.action == NodeTask.kind
        if is_task and action.read(NodeTask).task == "drill" and action.run is not None:
            self._books.drills[action.run] = now

    def _incident_amended(self, now: float, record: r.IncidentAmended) -> None:
        incident = self._books.incidents.get(record.incident)
        if incident is None:
            return
        incident.fault = record.fault or incident.fault
        if record.attempt is not None:
            incident.run, incident.attempt = record.attempt.run, record.attempt
            incident.failed_at, incident.failed_after_seconds = now, 0.0

    def _incident_changed(self, now: float, record: r.IncidentChanged) -> None:
        incident = self._books.incidents.get(record.incident)
        if incident is None or record.state not in ("resolved", "gave_up"):
            return
        incident.closed_at = now
        if record.state == "resolved" and not incident.stopped_attempt:
            incident.recovered_after_seconds = now - incident.opened_at

    # ---- inside ---------------------------------------------------------------------------------------------------

    def _put_away(self) -> None:
        """Forget the oldest incidents that nothing can happen to any more."""
        incidents = self._books.incidents
        if not self._bounded or len(incidents) <= KEPT_INCIDENTS:
            return
        unsettled = [name for run in self._books.runs.values() for name in run.unsettled]
        for name in list(incidents)[: len(incidents) - KEPT_INCIDENTS]:
            account = incidents[name]
            pending = account.stopped_attempt and account.recovered_after_seconds is None
            run = self._books.runs.get(-1 if account.run is None else account.run)
            is_over = run is None or run.ended_at is not None
            if account.closed_at is not None and name not in unsettled and (is_over or not pending):
                del incidents[name]

    def _incident_that_ended(self, record: r.AttemptChanged) -> IncidentAccounting | None:
        """The incident that ended an attempt: the one the record names, else the newest open one of that attempt."""
        if record.incident is not None:
            return self._books.incidents.get(record.incident)
        for incident in reversed(self._books.incidents.values()):
            is_open = incident.closed_at is None and not incident.non_fatal
            if incident.attempt == record.attempt and is_open:
                return incident
        return None

    def _cause_of_restart(self, run: RunAccounting) -> str:
        incident = self._books.incidents.get(run.stopped_by)
        return run.stopped_by if incident is None else incident.cause or incident.fault

    def _incident_diagnosed(self, _now: float, record: r.IncidentDiagnosed) -> None:
        if (incident := self._books.incidents.get(record.incident)) is not None:
            incident.cause = record.cause.fault

    def _settle(self, costs: list[tuple[str, int]]) -> None:
        for name, steps in costs:
            incident = self._books.incidents[name]
            incident.steps_lost = steps + (incident.steps_lost or 0)


def _of_run(handler: Callable[[Ledger, RunAccounting, float, Any], None]) -> _Handler:
    """Return what calls a handler with the books of the fact's run, if it has any."""

    def handle(ledger: Ledger, now: float, fact: Any) -> None:
        run = ledger._run_of(fact)
        if run is not None:
            handler(ledger, run, now, fact)

    return handle


_HANDLERS: dict[type, _Handler] = {
    r.RunAdmitted: Ledger._run_admitted,
    r.ActionIssued: Ledger._action_issued,
    r.IncidentOpened: Ledger._incident_opened,
    r.IncidentAmended: Ledger._incident_amended,
    r.IncidentChanged: Ledger._incident_changed,
    r.IncidentDiagnosed: Ledger._incident_diagnosed,
    RankExited: _of_run(Ledger._last_step_of_ranks),
    RanksTerminated: _of_run(Ledger._last_step_of_ranks),
    r.RunChanged: _of_run(Ledger._run_changed),
    r.AttemptPlanned: _of_run(Ledger._planned),
    r.AttemptPrepared: _of_run(Ledger._prepared),
    r.AttemptChanged: _of_run(Ledger._attempt_changed),
    r.StepsAdvanced: _of_run(Ledger._advanced),
    r.RankCapabilitiesRecorded: _of_run(Ledger._reports_steps),
    r.CheckpointRecorded: _of_run(Ledger._checkpoint),
    r.CheckpointRemoved: _of_run(Ledger._checkpoint_removed),
}
