"""The checkpoints of a run, folded from its journal: what a person sees of each."""

import pytest
from msgspec.structs import replace

from runner.facts.checkpoints import Checkpoint, Rewind, Trust
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.messages.records_checkpoints import CheckpointJudged, RunRewound
from runner.history.checkpoints import CheckpointRow, checkpoints

FIRST = AttemptId(1, 1, 0)


def made(step: int, trust: Trust = Trust.HEALTHY) -> Checkpoint:
    """Return a checkpoint of the first attempt."""
    return Checkpoint(step=step, attempt=FIRST, path=f"/ck/{step}", trust=trust)


def rows(*records: object) -> list[CheckpointRow]:
    """Fold records, one an entry."""
    entries = [
        r.JournalEntry(sequence=at, now=float(at), input=r.Tick(), records=(record,))
        for at, record in enumerate(records, 1)
    ]
    return checkpoints(entries, 1)


def recorded(checkpoint: Checkpoint, run: int = 1) -> r.CheckpointRecorded:
    """Return the record of a checkpoint."""
    return r.CheckpointRecorded(run=run, checkpoint=checkpoint)


def test_each_checkpoint_that_is_there_has_its_newest_state() -> None:
    """By step; what was deleted, and what other runs have, is left out."""
    judged = CheckpointJudged(run=1, path="/ck/10", step=10, trust=Trust.PROVEN, pinned="ann")
    found = rows(
        recorded(made(20)),
        recorded(made(10, Trust.COMMITTED)),
        recorded(made(30)),
        recorded(made(40), run=2),
        recorded(made(10)),
        judged,
        r.CheckpointRemoved(run=1, path="/ck/30"),
    )
    assert [(row.step, row.state, row.pinned) for row in found] == [
        (10, "proven", "ann"),
        (20, "healthy", ""),
    ]


@pytest.mark.parametrize(
    ("checkpoint", "why"),
    [
        (made(10, Trust.COMMITTED), "no node has read it yet"),
        (
            replace(made(10, Trust.COMMITTED), unverifiable=True, reason="no such folder"),
            "no node could read it: no such folder",
        ),
        (replace(made(10, Trust.REFUSED), reason="torn"), "torn"),
        (
            replace(made(10, Trust.INTACT), scan="not covered", reason="a.bin: no format"),
            "not looked at for NaN: a.bin: no format",
        ),
        (
            replace(made(10, Trust.FINITE), doubt="i3 loss_spike from step 9 on", died=(FIRST,)),
            "in doubt: i3 loss_spike from step 9 on; 1.1.0 died before its first step from it",
        ),
        (made(10), ""),
    ],
)
def test_it_says_why_it_is_trusted_no_further(checkpoint: Checkpoint, why: str) -> None:
    """In one sentence."""
    (row,) = rows(recorded(checkpoint))
    assert row.why == why


def test_what_the_run_went_back_on_is_set_aside() -> None:
    """Also what is reported later."""
    rule = Rewind(step=10, attempt=FIRST, until=FIRST)
    rewound = RunRewound(run=1, rewind=rule, path="/ck/10", before_step=15, reason="")
    found = rows(recorded(made(10)), recorded(made(20)), rewound, recorded(made(30)))
    assert [row.state for row in found] == ["healthy", "set aside", "set aside"]
