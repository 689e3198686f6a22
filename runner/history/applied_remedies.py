"""The remedies of a run, folded from its records. The controller's state and the lineage both fold them with this."""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from runner.facts.messages import records as r
from runner.facts.remedies import composed
from runner.facts.remedies.applied import AppliedRemedy

RemedyRecord = r.RemedyAdded | r.RemedyReverted | r.RemedyChecked


def fold_remedy(
    applied: Sequence[AppliedRemedy], record: RemedyRecord, now: float
) -> list[AppliedRemedy]:
    """Return a run's remedies after a record about one of them. A record about one that is not known changes nothing."""
    if isinstance(record, r.RemedyAdded):
        return [*applied, _added(record, number=len(applied) + 1, now=now)]
    return [_changed(each, record, now) if each.id == record.id else each for each in applied]


def in_effect(applied: Iterable[AppliedRemedy]) -> dict[str, Any]:
    """Compose the remedies that were not reverted."""
    return composed((each.name, each.value) for each in applied if each.state != "reverted")


def _added(record: r.RemedyAdded, *, number: int, now: float) -> AppliedRemedy:
    return AppliedRemedy(
        id=record.id or f"r{number}",
        name=record.remedy,
        value=record.value,
        by=record.by,
        reason=record.reason,
        incident=record.incident,
        request=record.request,
        added_at=now,
    )


def _changed(
    applied: AppliedRemedy, record: r.RemedyReverted | r.RemedyChecked, now: float
) -> AppliedRemedy:
    if isinstance(record, r.RemedyChecked):
        attempt, state, detail = record.attempt, record.state, record.reason
        return replace(applied, state=state, detail=detail, attempt=attempt)
    by = f"by {record.by}" if record.by else ""
    detail = ": ".join(part for part in (by, record.reason) if part)
    return replace(applied, state="reverted", detail=detail, reverted_at=now)
