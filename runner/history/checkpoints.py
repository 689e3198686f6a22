"""The checkpoints of a run as its journal has them: which there are, how far each is trusted, and why."""

from collections.abc import Iterable

from msgspec.structs import replace

from runner.facts.checkpoints import Checkpoint, Rewind, Trust
from runner.facts.messages import records as r
from runner.facts.messages.records_checkpoints import CheckpointJudged, RunRewound
from runner.facts.wire import Value


class CheckpointRow(Value):
    """One checkpoint. `state`: its degree of trust, or that it is set aside; `why`: what speaks against it, or what is unknown."""

    step: int
    attempt: str
    state: str
    pinned: str = ""
    why: str = ""
    path: str = ""


def checkpoints(entries: Iterable[r.JournalEntry], run: int) -> list[CheckpointRow]:
    """Fold entries into the checkpoints of one run, by step; those that were deleted are left out."""
    known: dict[str, Checkpoint] = {}
    rewinds: list[Rewind] = []
    for entry in entries:
        for record in entry.records:
            if getattr(record, "run", None) != run:
                continue
            if isinstance(record, r.CheckpointRecorded):
                known[record.checkpoint.path] = record.checkpoint
            elif isinstance(record, r.CheckpointRemoved):
                known.pop(record.path, None)
            elif isinstance(record, CheckpointJudged) and record.path in known:
                known[record.path] = judged(known[record.path], record)
            elif isinstance(record, RunRewound):
                rewinds.append(record.rewind)
    return [_row(each, rewinds) for each in sorted(known.values(), key=lambda c: c.age)]


def judged(known: Checkpoint, record: CheckpointJudged) -> Checkpoint:
    """Return a checkpoint with what a record says of it."""
    given = ("trust", "doubt", "died", "pinned")
    new = {name: getattr(record, name) for name in given if getattr(record, name) is not None}
    return replace(known, **new)


def _row(known: Checkpoint, rewinds: list[Rewind]) -> CheckpointRow:
    step, attempt = known.age
    is_set_aside = any(rewind.sets_aside(step, attempt) for rewind in rewinds)
    return CheckpointRow(
        step=step,
        attempt=str(attempt),
        state="set aside" if is_set_aside else known.trust.value,
        pinned=known.pinned,
        why=_why(known, is_set_aside=is_set_aside),
        path=known.path,
    )


def _why(known: Checkpoint, *, is_set_aside: bool) -> str:
    if is_set_aside:
        return "the run went back to before it"
    if known.trust is Trust.REFUSED:
        return known.reason
    if known.unverifiable:
        return f"no node could read it: {known.reason}"
    if known.trust is Trust.COMMITTED:
        return "no node has read it yet"
    parts = [f"in doubt: {known.doubt}"] if known.doubt else []
    parts += [f"not looked at for NaN: {known.reason}"] if known.scan == "not covered" else []
    died = f"{known.died[-1]} died before its first step from it" if known.died else ""
    return "; ".join([*parts, died] if died else parts)
