"""What was last heard, for display: the newest step of an attempt, by report or as it stands in a foreign trainer's output."""

from __future__ import annotations

from msgspec.structs import replace

from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat, StepRecord
from runner.supervisor.status_builder import LastHeartbeats

ATTEMPT = AttemptId(3, 1, 0)


def heartbeat(**fields: object) -> Heartbeat:
    """Make a heartbeat of the attempt."""
    return Heartbeat(node="n1", incarnation=1, attempt=ATTEMPT, **fields)  # type: ignore[arg-type]


def test_steps_that_stand_in_the_output_are_shown_where_ranks_report_none() -> None:
    """A rank that speaks for itself has the say."""
    heard = LastHeartbeats()
    read = (StepRecord(step=7, loss=4.0), StepRecord(step=8, loss=3.5))
    heard.record(heartbeat(logged_steps=read), 1.0)
    assert heard.last[ATTEMPT] == read[1]
    heard.record(replace(heartbeat(logged_steps=read), node="n2"), 1.0)
    # Nodes tell the same steps.
    assert [*heard.losses[3]] == [4.0, 3.5]
    said = StepRecord(step=9, loss=3.0)
    heard.record(heartbeat(steps=(said,), logged_steps=(StepRecord(step=99),)), 2.0)
    assert heard.last[ATTEMPT] == said
