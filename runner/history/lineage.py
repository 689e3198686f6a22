"""The lineage of a run: its attempts, what each descends from, and which of its steps are part of the state now."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.facts.ids import AttemptId
from runner.facts.launch_conditions import LaunchConditions, filled_up, summary
from runner.facts.messages import records as r
from runner.facts.messages.records_drift import ConditionsKept, ConditionsRecorded
from runner.facts.remedies.applied import AppliedRemedy
from runner.history.applied_remedies import RemedyRecord, fold_remedy, in_effect
from runner.history.ledger import Ledger


@dataclass(slots=True, kw_only=True)
class LineageRow:
    """One attempt. Times are the controller's clock; None: it never happened, or not yet."""

    attempt: AttemptId
    # The attempt whose steps it continued.
    parent: AttemptId | None = None
    cause: str
    incident: str | None
    resume_step: int = 0
    first_step: int | None = None
    last_step: int | None = None
    # First and last step that no later attempt overwrote.
    contributes: tuple[int, int] | None = None
    nodes: tuple[str, ...]
    remedies: Mapping[str, Any]
    # "" while it runs.
    outcome: str = ""
    planned_at: float
    first_step_at: float | None = None
    ended_at: float | None = None
    # What it runs with: `launch_conditions.summary`.
    runs_with: Mapping[str, str] = field(default_factory=dict)

    @property
    def start_seconds(self) -> float | None:
        """From planning to the first step."""
        return None if self.first_step_at is None else self.first_step_at - self.planned_at


def lineage(entries: Iterable[r.JournalEntry], run: int) -> list[LineageRow]:
    """Fold entries into the attempts of one run, in the order they were planned; empty for an unknown run."""
    ledger, rows, applied = Ledger(), dict[AttemptId, LineageRow](), list[AppliedRemedy]()
    conditions = dict[int, LaunchConditions]()
    for entry in entries:
        ledger.apply(entry)
        for record in entry.records:
            if isinstance(record, RemedyRecord) and record.run == run:
                applied = fold_remedy(applied, record, entry.now)
            elif isinstance(record, r.AttemptPlanned) and record.attempt.run == run:
                rows[record.attempt] = LineageRow(
                    attempt=record.attempt,
                    cause=record.reason,
                    incident=record.incident,
                    nodes=record.nodes,
                    remedies=in_effect(applied),
                    planned_at=entry.now,
                )
            elif isinstance(record, r.StepsAdvanced | r.AttemptChanged) and record.attempt in rows:
                _note(rows[record.attempt], record, entry.now)
            elif isinstance(record, ConditionsRecorded):
                _note_conditions(rows.get(record.attempt), record, conditions)
            elif isinstance(record, ConditionsKept) and record.before in conditions:
                conditions[record.run] = conditions[record.before]
    if run not in ledger.runs:
        return []
    account = ledger.account(run)
    contributing = account.contributing()
    found = [row for row in rows.values() if row.attempt in account.attempts]
    for row in found:
        attempt = account.attempts[row.attempt]
        row.parent, row.resume_step = attempt.parent, attempt.base or 0
        row.contributes = contributing.get(row.attempt)
    return found


def _note_conditions(
    row: LineageRow | None, record: ConditionsRecorded, known: dict[int, LaunchConditions]
) -> None:
    """Note what an attempt runs with; what a node leaves out is as its run is known to run with."""
    if row is not None and record.node not in row.nodes[:1]:
        # Another node was asked, since it differs.
        return
    run = record.attempt.run
    found = filled_up(record.conditions, known.get(run))
    if row is not None:
        row.runs_with = summary(found)
    if record.is_approved or not record.differences:
        known[run] = found


def _note(row: LineageRow, record: r.StepsAdvanced | r.AttemptChanged, now: float) -> None:
    if isinstance(record, r.StepsAdvanced):
        if row.first_step is None:
            row.first_step, row.first_step_at = record.step, now
        row.last_step = max(record.step, row.last_step or 0)
        return
    row.outcome = record.outcome or row.outcome
    if record.state == "ended":
        row.ended_at = now
