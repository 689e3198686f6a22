"""The lineage of a run: its attempts, what each descends from, and which of its steps are part of the state now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.remedies import REMEDIES
from runner.history.ledger import Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageRow:
    """One attempt. Times are the controller's clock; None: it never happened, or not yet."""

    attempt: AttemptId
    # The attempt whose steps it continued.
    parent: AttemptId | None
    cause: str
    incident: str | None
    resume_step: int
    first_step: int | None
    last_step: int | None
    # First and last step that no later attempt overwrote.
    contributes: tuple[int, int] | None
    nodes: tuple[str, ...]
    remedies: Mapping[str, float]
    # "" while it runs.
    outcome: str
    planned_at: float
    first_step_at: float | None
    ended_at: float | None

    @property
    def start_seconds(self) -> float | None:
        """From planning to the first step."""
        return None if self.first_step_at is None else self.first_step_at - self.planned_at


@dataclass(slots=True, kw_only=True)
class _Row:
    planned: r.AttemptPlanned
    planned_at: float
    remedies: dict[str, float]
    outcome: str = ""
    first_step_at: float | None = None
    first_step: int | None = None
    last_step: int | None = None
    ended_at: float | None = None


@dataclass(slots=True)
class _Fold:
    run: int
    ledger: Ledger = field(default_factory=Ledger)
    rows: dict[AttemptId, _Row] = field(default_factory=dict)
    remedies: dict[str, float] = field(default_factory=dict)

    def apply(self, entry: r.JournalEntry) -> None:
        self.ledger.apply(entry)
        for record in entry.records:
            if isinstance(record, r.RemedyAdded) and record.run == self.run:
                kind = REMEDIES[record.remedy]
                self.remedies = kind.joined(self.remedies, record.value)
            elif isinstance(record, r.AttemptPlanned) and record.attempt.run == self.run:
                self.rows[record.attempt] = _Row(
                    planned=record, planned_at=entry.now, remedies=self.remedies
                )
            elif isinstance(record, r.StepsAdvanced | r.AttemptChanged):
                row = self.rows.get(record.attempt)
                if row is not None:
                    _note(row, record, entry.now)


def lineage(entries: Iterable[r.JournalEntry], run: int) -> list[LineageRow]:
    """Fold entries into the attempts of one run, in the order they were planned; empty for an unknown run."""
    fold = _Fold(run)
    for entry in entries:
        fold.apply(entry)
    if run not in fold.ledger.runs:
        return []
    account = fold.ledger.account(run)
    contributing = account.contributing()
    return [
        LineageRow(
            attempt=attempt,
            parent=account.attempts[attempt].parent,
            cause=row.planned.reason,
            incident=row.planned.incident,
            resume_step=account.attempts[attempt].base or 0,
            first_step=row.first_step,
            last_step=row.last_step,
            contributes=contributing.get(attempt),
            nodes=row.planned.nodes,
            remedies=row.remedies,
            outcome=row.outcome,
            planned_at=row.planned_at,
            first_step_at=row.first_step_at,
            ended_at=row.ended_at,
        )
        for attempt, row in fold.rows.items()
        if attempt in account.attempts
    ]


def _note(row: _Row, record: r.StepsAdvanced | r.AttemptChanged, now: float) -> None:
    if isinstance(record, r.StepsAdvanced):
        if row.first_step is None:
            row.first_step, row.first_step_at = record.step, now
        row.last_step = max(record.step, row.last_step or 0)
        return
    row.outcome = record.outcome or row.outcome
    if record.state == "ended":
        row.ended_at = now
