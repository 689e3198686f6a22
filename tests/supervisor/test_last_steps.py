"""LastSteps: the furthest step in a node's heartbeats, for when its agent dies."""

from runner.facts.ids import AttemptId
from runner.facts.messages.records import HeartbeatStep
from runner.facts.messages.signals import Heartbeat
from runner.supervisor.last_steps import LastSteps

FIRST, SECOND = AttemptId(1, 1, 0), AttemptId(1, 1, 1)


def test_the_furthest_step_is_kept_with_the_time_of_its_first_heartbeat() -> None:
    """Of the newest attempt; steps that ranks report replace those that they printed."""
    steps = LastSteps()

    def heartbeat(now: float, attempt: AttemptId | None, **fields: int) -> None:
        steps.on_heartbeat(Heartbeat(node="n1", incarnation=1, attempt=attempt, **fields), now)  # type: ignore[arg-type]

    heartbeat(1.0, FIRST)
    assert steps.of("n1") is None
    for now, step in ((2.0, 7), (3.0, 9), (4.0, 9), (5.0, 3)):
        heartbeat(now, FIRST, printed_step=step)
    heartbeat(6.0, None)
    kept = HeartbeatStep(node="n1", attempt=FIRST, step=9, at=3.0, is_printed=True)
    assert steps.of("n1") == kept
    heartbeat(7.0, SECOND, printed_step=4)
    assert steps.of("n1") == HeartbeatStep(
        node="n1", attempt=SECOND, step=4, at=7.0, is_printed=True
    )
    heartbeat(8.0, SECOND, last_step=2)
    assert steps.of("n1") == HeartbeatStep(node="n1", attempt=SECOND, step=2, at=8.0)
    assert steps.of("n2") is None
