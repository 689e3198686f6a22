"""Which rows are part of the run's state: those that no later attempt has overwritten."""

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

from runner.facts.ids import AttemptId
from runner.steps.rows import StepRow


def contributing(
    rows: Iterable[StepRow], ranges: Mapping[AttemptId, tuple[int, int]] | None = None
) -> list[StepRow]:
    """Return the rows of the branch that the newest attempt continues, by step.

    `ranges`: first and last contributing step of each attempt, as the ledger derives them from the journal. Without them, an
    attempt's steps count up to the first step that a later attempt made.
    """
    by_attempt: dict[AttemptId, list[StepRow]] = {}
    for row in rows:
        by_attempt.setdefault(row.attempt, []).append(row)
    branch: list[StepRow] = []
    if ranges is None:
        ranges = _ranges(by_attempt)
    for attempt, (first, last) in ranges.items():
        branch += [row for row in by_attempt.get(attempt, ()) if first <= row.step <= last]
    return sorted(branch, key=itemgetter(0))


def _ranges(
    by_attempt: Mapping[AttemptId, Sequence[StepRow]],
) -> dict[AttemptId, tuple[int, int]]:
    ranges: dict[AttemptId, tuple[int, int]] = {}
    end: int | None = None
    for attempt in sorted(by_attempt, reverse=True):
        steps = [row.step for row in by_attempt[attempt]]
        first, last = min(steps), max(steps)
        ranges[attempt] = (first, last if end is None else min(last, end - 1))
        end = first if end is None else min(first, end)
    return ranges
