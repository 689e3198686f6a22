"""Start phases of one node: the slowest rank of each, reported once all ranks step."""

import math

import pytest

from runner.agent.ranks.aggregates import STRAGGLING_SECONDS, StartPhases
from runner.agent.ranks.reports import MAX_NAMES
from runner.facts.messages.signals import StartPhase
from tests.agent.node import REPORTER, Node


def test_the_slowest_rank_of_each_phase_is_reported_once_all_step() -> None:
    """Nothing before the last rank's first step; then each phase with its slowest rank, the start up to the first packet too."""
    phases = StartPhases(ranks=2, spawned_at=100.0)
    phases.on_packet(4, 100.5)
    phases.add(4, "load", 3.0)
    phases.on_packet(5, 102.0)
    phases.on_packet(5, 109.0)
    phases.add(5, "load", 2.0)
    phases.on_step(4, 110.0)
    assert phases.slowest(110.0) == {}
    phases.on_step(5, 110.1)
    assert phases.slowest(110.1) == {
        "start": StartPhase(seconds=2.0, rank=5),
        "load": StartPhase(seconds=3.0, rank=4),
    }
    assert phases.reported() == {"load": 3.0}


def test_ranks_that_report_no_steps_are_not_waited_for() -> None:
    """Where one rank alone reports, what is known is reported a little later."""
    phases = StartPhases(ranks=8, spawned_at=0.0)
    phases.on_packet(0, 1.0)
    phases.on_step(0, 2.0)
    assert phases.slowest(2.0 + STRAGGLING_SECONDS / 2) == {}
    assert phases.slowest(2.0 + STRAGGLING_SECONDS) == {"start": StartPhase(seconds=1.0, rank=0)}


def test_the_first_report_of_adopted_ranks_has_no_time() -> None:
    """Ranks that an earlier agent started have no such phase; what they report of themselves counts."""
    phases = StartPhases(ranks=1, spawned_at=None)
    phases.on_packet(0, 1.0)
    phases.add(0, "load", 3.0)
    phases.on_step(0, 2.0)
    assert list(phases.slowest(2.0)) == ["load"]


@pytest.mark.parametrize("seconds", [-1.0, math.nan, math.inf, -math.inf])
def test_hostile_durations_are_passed_over(seconds: float) -> None:
    """What cannot be a duration neither counts nor hides one that can."""
    phases = StartPhases(ranks=1, spawned_at=None)
    phases.add(0, "load", seconds)
    phases.add(0, "load", 2.0)
    phases.add(0, "load", seconds)
    assert phases.reported() == {"load": 2.0}


def test_the_number_of_phases_is_bounded() -> None:
    """A rank that makes names up fills no memory."""
    phases = StartPhases(ranks=1, spawned_at=None)
    for number in range(10 * MAX_NAMES):
        phases.add(0, f"phase {number}", 1.0)
    assert len(phases.reported()) == MAX_NAMES


@pytest.mark.e2e
def test_a_node_reports_which_rank_was_slow_to_start(node: Node) -> None:
    """Through real ranks: a heartbeat names each phase's slowest rank; the next one says nothing of it."""
    slow = REPORTER.replace(
        "for step in",
        'emit(kind="timing", name="load", seconds=1.0 + int(os.environ["RANK"]))\nfor step in',
        1,
    )
    node.start_agent()
    node.launch(node.plan(slow, {}), generation=1)
    heartbeats = node.heartbeats()
    reported = next(each.start_phases for each in heartbeats if each.start_phases)
    assert next(heartbeats).start_phases == {}
    assert reported["load"] == StartPhase(seconds=2.0, rank=1)
    assert set(reported) == {"start", "load"}
