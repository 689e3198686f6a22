"""LastHeartbeats: the newest step of an attempt for display, as reported or as logged by a foreign trainer."""

import time

from msgspec.structs import replace

from runner.cli.nodes.tables import nodes_table
from runner.facts.ids import AttemptId
from runner.facts.messages.cluster_status import NodeStatus
from runner.facts.messages.signals import Heartbeat, StepRecord
from runner.supervisor.status_builder import LastHeartbeats

ATTEMPT = AttemptId(3, 1, 0)


def heartbeat(**fields: object) -> Heartbeat:
    """Make a heartbeat of the attempt."""
    return Heartbeat(node="n1", incarnation=1, attempt=ATTEMPT, **fields)  # type: ignore[arg-type]


def test_logged_steps_are_shown_where_ranks_report_none() -> None:
    """Steps that a rank reports win over steps from its output."""
    last_heartbeats = LastHeartbeats()
    logged = (StepRecord(step=7, loss=4.0), StepRecord(step=8, loss=3.5))
    last_heartbeats.record(heartbeat(logged_steps=logged), 1.0)
    assert last_heartbeats.last[ATTEMPT] == logged[1]
    last_heartbeats.record(replace(heartbeat(logged_steps=logged), node="n2"), 1.0)
    # Both nodes report the same steps.
    assert [*last_heartbeats.losses[3]] == [4.0, 3.5]
    reported = StepRecord(step=9, loss=3.0)
    last_heartbeats.record(heartbeat(steps=(reported,), logged_steps=(StepRecord(step=99),)), 2.0)
    assert last_heartbeats.last[ATTEMPT] == reported


def test_a_clock_that_differs_by_more_than_five_seconds_is_shown() -> None:
    """The table of nodes has the difference; clocks that agree, and agents that send no time, show none."""
    last_heartbeats, now = LastHeartbeats(), time.time()
    shown = {30.0: "clock 30 s ahead", -90.0: "clock 90 s behind", 1.0: "", -now: ""}
    for ahead, text in shown.items():
        last_heartbeats.record(heartbeat(sent_at=now + ahead), 1.0)
        (seconds,) = last_heartbeats.ahead_seconds.values()
        status = NodeStatus(node="n1", state="spare", clock_ahead_seconds=round(seconds, -1))
        assert nodes_table([status], 1.0).endswith(text) if text else seconds == 0.0
