"""Heartbeats to rows: the nodes of a gang report the same step, and a history has one row of it.

The row is that of the attempt's source, the first node with a loss, as for the live detectors (`detect/live`). Norms
are the greatest that any node reports before the row is taken, and what the source lacks comes from another node.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat, StepRecord
from runner.steps.rows import COLUMNS, MAX_COUNT, MAX_STEP, StepRow

# Of a run, that wait to be written: a disk that hangs must not fill the memory. Chosen.
MAX_WAITING = 20_000
# Over which the steps of one heartbeat are spread at most, for their times; chosen.
SPREAD_SECONDS = 60.0
_NORMS = ("grad_norm", "activation_norm")
# What a record has of the columns; one that a later release adds to reports is found by its name.
_REPORTED = tuple(name for name in COLUMNS if name in StepRecord.__struct_fields__)


@dataclass(slots=True)
class _Gang:
    attempt: AttemptId
    source: str = ""
    has_loss: bool = False
    last_step: int = -1
    last_at: float | None = None
    # Step -> its row, oldest first.
    waiting: dict[int, StepRow] = field(default_factory=dict)


class StepMerger:
    """Rows of the current attempt of each run that were not taken yet. One thread calls it."""

    def __init__(self) -> None:
        self._gangs: dict[int, _Gang] = {}
        # Rows of gangs before the current one.
        self._of_earlier: dict[int, list[StepRow]] = {}
        # Run -> rows that were left out because too many waited.
        self.num_lost: dict[int, int] = {}

    def add(self, heartbeat: Heartbeat, now: float) -> None:
        """Merge the steps that a heartbeat reports into rows; `now`: seconds of the controller's clock."""
        steps = heartbeat.steps or heartbeat.logged_steps
        if not steps or heartbeat.attempt is None:
            return
        gang = self._gang(heartbeat.attempt)
        if gang is None:
            return
        if not gang.has_loss and any(record.loss is not None for record in steps):
            gang.source, gang.has_loss = heartbeat.node, True
        gang.source = gang.source or heartbeat.node
        if heartbeat.node == gang.source:
            self._add_rows(gang, [one for one in steps if 0 <= one.step <= MAX_STEP], now)
        else:
            for record in steps:
                _fill(gang, record)

    def take(self) -> dict[int, list[StepRow]]:
        """Return and forget the rows that wait, by run, oldest first."""
        taken, self._of_earlier = self._of_earlier, {}
        for run, gang in self._gangs.items():
            if gang.waiting:
                taken.setdefault(run, []).extend(gang.waiting.values())
                gang.waiting = {}
        return taken

    def put_back(self, rows: Mapping[int, Sequence[StepRow]]) -> None:
        """Let rows wait again, because they could not be written."""
        for run, some in rows.items():
            self._of_earlier[run] = self._bounded(run, [*some, *self._of_earlier.get(run, ())])

    def forget(self, live: Mapping[int, object]) -> None:
        """Forget the gangs of runs that are over; their rows wait until they are taken."""
        for run in [run for run in self._gangs if run not in live]:
            self._put_away(self._gangs.pop(run))

    def _gang(self, attempt: AttemptId) -> _Gang | None:
        known = self._gangs.get(attempt.run)
        if known is not None and known.attempt == attempt:
            return known
        if max(attempt.numbers) > MAX_COUNT or (known is not None and attempt < known.attempt):
            return None
        if known is not None:
            self._put_away(known)
        made = self._gangs[attempt.run] = _Gang(attempt)
        return made

    def _put_away(self, gang: _Gang) -> None:
        if gang.waiting:
            run = gang.attempt.run
            rows = [*self._of_earlier.get(run, ()), *gang.waiting.values()]
            self._of_earlier[run] = self._bounded(run, rows)

    def _add_rows(self, gang: _Gang, records: Sequence[StepRecord], now: float) -> None:
        begin = now if gang.last_at is None else max(gang.last_at, now - SPREAD_SECONDS)
        for index, record in enumerate(records, start=1):
            at = begin + (now - begin) * index / len(records)
            before = gang.waiting.pop(record.step, None)
            row = _row(record, gang.attempt, at)
            gang.waiting[record.step] = row if before is None else _filled(row, before)
        gang.last_at = now
        if len(gang.waiting) > MAX_WAITING:
            rows = self._bounded(gang.attempt.run, list(gang.waiting.values()))
            gang.waiting = {row.step: row for row in rows}

    def _bounded(self, run: int, rows: list[StepRow]) -> list[StepRow]:
        num_lost = max(0, len(rows) - MAX_WAITING)
        if num_lost:
            self.num_lost[run] = self.num_lost.get(run, 0) + num_lost
        return rows[num_lost:]


def _row(record: StepRecord, attempt: AttemptId, at: float) -> StepRow:
    values = {name: getattr(record, name) for name in _REPORTED}
    return StepRow(step=record.step, at=at, attempt=attempt, skipped=record.skipped, **values)


def _fill(gang: _Gang, record: StepRecord) -> None:
    row = gang.waiting.get(record.step)
    if row is not None:
        gang.waiting[record.step] = _filled(row, record)


def _filled(row: StepRow, other: StepRow | StepRecord) -> StepRow:
    """Return a row with what another node reports of the same step, in so far as it lacks it; of norms the greater."""
    changes: dict[str, Any] = {}
    for name in _REPORTED:
        ours, theirs = getattr(row, name), getattr(other, name)
        if theirs is None or ours == theirs:
            continue
        if ours is None or (name in _NORMS and _is_greater(theirs, ours)):
            changes[name] = theirs
    return row._replace(**changes) if changes else row


def _is_greater(one: float, other: float) -> bool:
    """Whether a norm is greater; one that is no number is the greatest."""
    return not math.isnan(other) and (math.isnan(one) or one > other)
