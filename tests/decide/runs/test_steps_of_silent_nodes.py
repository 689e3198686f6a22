"""A silent node: its last heartbeats had a step that no mark has."""

from runner.decide.state.cluster_state import Attempt
from runner.facts.messages import records as r
from runner.facts.messages import signals as s
from tests.decide.controller_harness import ControllerHarness, training_harness


def printed(harness: ControllerHarness, step: int, *, rank: int) -> Attempt:
    """Let a rank have printed a step; return the attempt."""
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    node = attempt.nodes[rank // 2]
    progress = s.Progress(
        node=node, incarnation=1, attempt=attempt.attempt, step=step, printed_by=rank
    )
    harness.take(progress)
    return attempt


def seen(harness: ControllerHarness, attempt: Attempt, node: str, step: int) -> list[object]:
    """Let the supervisor tell what the node's heartbeats had."""
    fact = r.HeartbeatStep(
        node=node, attempt=attempt.attempt, step=step, at=harness.now - 3.0, is_printed=True
    )
    return harness.take(fact)


def test_the_step_of_the_node_whose_rank_counts_is_a_mark_as_of_its_heartbeat() -> None:
    """Another node's printed step, and an older one, change nothing."""
    harness = training_harness()
    attempt = printed(harness, 5, rank=2)
    assert seen(harness, attempt, "n1", 9) == []
    assert seen(harness, attempt, "n2", 5) == []
    (mark,) = seen(harness, attempt, "n2", 9)
    assert mark == r.StepsAdvanced(
        attempt=attempt.attempt, step=9, printed_by=2, at=harness.now - 1.0 - 3.0
    )
    assert harness.state.runs[1].best_step == 9


def test_without_a_mark_a_heartbeats_step_starts_none() -> None:
    """Which rank counts is not known before the first mark."""
    harness = training_harness()
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    assert seen(harness, attempt, "n1", 9) == []
