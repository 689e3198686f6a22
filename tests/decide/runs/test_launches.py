"""When a gang counts as up, and which limits run only from then on."""

import pytest

from runner.decide.controller import Controller
from runner.decide.placement.launch_plans import Plans
from runner.decide.state.apply import apply_record
from runner.decide.state.cluster_state import Attempt, Run, State
from runner.facts import wire
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.specs.run import RunSpec
from runner.facts.watch import WatchedAttempt
from runner.simulate.world import World
from tests.decide.controller_harness import (
    CLUSTER,
    assign,
    ranks_started,
    started_harness,
    training_harness,
)
from tests.decide.scenario import parse_text

HELD = """# A node whose devices are held, until 30.
cluster nodes=2 slots=2
run a steady_seconds=10 {}
training a goal=1000 {}
at 0 start a
at 0.1 hold-devices n1
at 30 free-devices n1
"""
SCRIPT = ("command=train.sh", "reports=no")


def held(kind: tuple[str, str] = ("", "")) -> World:
    """Begin the story."""
    return parse_text("held", HELD.format(*kind)).build()


@pytest.mark.parametrize(("tensor", "named"), [(1, ""), (2, ""), (4, "0-3"), (3, "0-2")])
def test_tensor_groups_are_placed_as_run_yaml_says(tensor: int, named: str) -> None:
    """Each node has the next ranks; a group that is not on one node is named in the answer, and the run starts."""
    harness = training_harness(tensor=tensor)
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    plans = Plans(CLUSTER)
    placed = [plans.plan_of(harness.state.runs[1], attempt, node).ranks for node in attempt.nodes]
    assert [list(ranks) for ranks in placed] == [[0, 1], [2, 3]]
    message = harness.state.requests["q1"].message
    assert ("span nodes" in message) == bool(named)
    assert named in message


def test_of_a_gang_that_starts_only_the_last_node_has_consequences() -> None:
    """Thousands of nodes report their ranks one by one; nothing is to be decided before the last has."""
    harness = started_harness()
    attempt = assign(harness)
    assert harness.controller.decide(r.Settle(), harness.now) == ()
    settled = []
    for node in attempt.nodes:
        harness.take(ranks_started(attempt, node))
        settled.append(harness.controller.is_settled)
    assert settled == [True, False]
    harness.settle()
    assert attempt.state == "running"


def watched(world: World) -> WatchedAttempt:
    """Return the gang as detectors get it; a fresh controller derives it, since tests apply records directly."""
    (found,) = Controller(world.supervisor.policy, world.state).watch().attempts
    return found


def test_a_gang_is_up_once_its_last_node_has_started_its_ranks() -> None:
    """Before that no detector gets its start time, and no deadline follows from its uptime."""
    world = held(SCRIPT)
    world.run_until(29.0)
    run = world.state.runs[1]
    assert run.attempt is not None
    assert list(run.attempt.launched) == ["n2"]
    assert watched(world).since is None
    assert not run.has_proved_itself(29.0)
    world.run_until(35.0)
    up_at = run.attempt.up_since
    assert up_at is not None
    assert up_at == watched(world).since == pytest.approx(30.0, abs=0.5)
    assert not run.has_proved_itself(up_at + 9.9)
    assert run.has_proved_itself(up_at + 10.0)


def test_the_time_a_gang_takes_to_end_does_not_count_as_uptime() -> None:
    """Ranks that died after 5 s do not count as steady when their end is confirmed a minute later."""
    run = Run(run=1, spec=RunSpec(name="a", command=("train",), steady_seconds=10.0))
    run.attempt = Attempt(
        attempt=AttemptId(1, 1, 0), generation=1, nodes=["n1"], started_at=100.0, stopping_at=105.0
    )
    assert not run.has_proved_itself(165.0)
    run.attempt.stopping_at = 110.0
    assert run.has_proved_itself(165.0)


@pytest.mark.parametrize(("launched", "since"), [(["n1", "n2"], 7.0), (["n2"], None)])
def test_a_snapshot_without_the_start_time_of_a_gang_loads(
    launched: list[str], since: float | None
) -> None:
    """Earlier releases counted from the launch: that is its start time, if all its nodes were up."""
    attempt = Attempt(
        attempt=AttemptId(1, 1, 0),
        generation=1,
        nodes=["n1", "n2"],
        launched_at=7.0,
        launched=dict.fromkeys(launched, ""),
    )
    run = Run(run=1, spec=RunSpec(name="a", command=("train",)), attempt=attempt)
    snapshot = wire.encode(State(runs={1: run}))
    assert b"started_at" not in snapshot
    found = wire.decode(snapshot).runs[1].attempt
    assert found.up_since == since


def test_ranks_are_known_to_report_steps_by_a_step_and_not_by_a_hello() -> None:
    """A script may send a hello, so that it is asked to stop, and never a step: its start then has no limit."""
    world = held(SCRIPT)
    world.run_until(40.0)
    attempt = watched(world).attempt
    apply_record(world.state, r.RankCapabilitiesRecorded(attempt=attempt, requests=("stop",)))
    assert world.state.runs[1].has_reported
    assert not watched(world).reports_steps
    apply_record(world.state, r.StepsAdvanced(attempt=attempt, step=1))
    assert watched(world).reports_steps
    assert watched(world).has_stepped


def test_an_attempt_checks_checkpoints_as_the_one_before_it_until_its_ranks_report() -> None:
    """What is taken for a resume is chosen before the ranks that load it can report; their own hello decides."""
    state = State(runs={1: Run(run=1, spec=RunSpec(name="a", command=("x",)))})
    known = []
    for restart, checks in enumerate((None, True, None, None, False, None)):
        name = AttemptId(1, 1, restart)
        apply_record(
            state, r.AttemptPlanned(attempt=name, generation=restart, nodes=("n1",), reason="")
        )
        if checks is not None:
            ready = r.RankCapabilitiesRecorded(attempt=name, checks_checkpoints=checks)
            apply_record(state, ready)
        attempt = state.attempt_of(name)
        assert attempt is not None
        known.append(attempt.checks_checkpoints)
    assert known == [False, True, True, True, False, False]


def test_the_built_in_trainer_is_known_to_report_steps() -> None:
    """The supervisor knows it from the first launch on."""
    world = held()
    world.run_until(10.0)
    assert watched(world).reports_steps


def test_a_withdrawn_attempt_is_no_failed_preparation() -> None:
    """Only a failed preparation counts towards the limit, not an attempt withdrawn in favour of another run."""
    state = State(runs={1: Run(run=1, spec=RunSpec(name="a", command=("x",)))})
    for restart, failed in enumerate((False, False, False, True)):
        attempt = AttemptId(1, 1, restart)
        apply_record(state, r.AttemptPlanned(attempt=attempt, generation=1, nodes=(), reason=""))
        ended = r.AttemptChanged(attempt=attempt, state="ended", outcome="withdrawn", failed=failed)
        apply_record(state, ended)
    assert state.runs[1].failed_preparations == 1
