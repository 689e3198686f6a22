"""Assignments of a large gang: the shared part computed once equals what each node would get alone."""

from collections.abc import Mapping

import pytest

from runner.act.registers import Registers
from runner.decide.placement.launch_plans import Plans, Preloads, assignment_of
from runner.decide.state.apply import apply_record
from runner.decide.state.cluster_state import State
from runner.facts import wire
from runner.facts.ids import AttemptId
from runner.facts.messages import records as r
from runner.facts.messages.assignments import Assignment
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.specs.run import RunSpec

CLUSTER = ClusterSpec(name="plans", state="/nowhere")
ATTEMPTS = AttemptId(1, 1, 0), AttemptId(2, 1, 0)


def launched() -> State:
    """Make a state in which two gangs launch, one of them with a preload and rotated places."""
    state, generation = State(), 1
    for number in range(1, 8):
        joined = r.NodeRegistered(
            node=f"n{number}",
            incarnation=1,
            hardware=f"h{number}",
            slots=2,
            address="a",
            pid=1,
            instance_id=f"l{number}",
        )
        apply_record(state, joined)
    for attempt, nodes, preload in (
        (ATTEMPTS[0], ("n3", "n1", "n2"), ()),
        (ATTEMPTS[1], ("n6", "n5", "n4"), ("json",)),
    ):
        spec = RunSpec(
            name=f"r{attempt.run}",
            nodes=3,
            ranks_per_node=2,
            command=("x",),
            preload=preload,
            environment={"A": "grüße"},
        )
        apply_record(state, r.RunAdmitted(run=attempt.run, spec=spec, user="u"))
        generation += 1
        planned = r.AttemptPlanned(attempt=attempt, generation=generation, nodes=nodes, reason="")
        apply_record(state, planned)
        prepared = r.AttemptPrepared(
            attempt=attempt, resume="/c", resume_step=3, master_address="a", master_port=7
        )
        apply_record(state, prepared)
        for node in nodes:
            apply_record(state, r.Assigned(node=node, generation=generation, attempt=attempt))
    return state


def test_a_register_equals_the_assignment_of_its_node_alone() -> None:
    """For each node of each gang, and a spare, the assignment is the same, computed alone or for all."""
    state, registers = launched(), Registers(CLUSTER)
    registers.queue_all(state)
    written: dict[str, bytes] = {}
    registers.write(written.update)
    shared = Plans(CLUSTER)
    for name, node in state.nodes.items():
        alone = assignment_of(state, CLUSTER, node, preloads=Preloads(state))
        together = assignment_of(state, CLUSTER, node, preloads=Preloads(state), plans=shared)
        read: Assignment = wire.decode(written[f"assignment/{name}"])
        assert read == alone == together
    places = {name: read_place(written, name) for name in ("n3", "n1", "n2", "n6", "n5", "n4")}
    assert places == {"n3": 0, "n1": 1, "n2": 2, "n6": 0, "n5": 1, "n4": 2}


def read_place(written: Mapping[str, bytes], name: str) -> int:
    """Return a node's place in its gang from its register."""
    plan = wire.decode(written[f"assignment/{name}"]).plan
    assert plan is not None
    return int(plan.node_rank)


@pytest.mark.parametrize("attempt", ATTEMPTS)
def test_a_gang_s_plan_is_hashed_once(attempt: AttemptId) -> None:
    """Two nodes' plans share the same objects, except for their place."""
    state, plans = launched(), Plans(CLUSTER)
    run = state.runs[attempt.run]
    assert run.attempt is not None
    found = [plans.plan_of(run, run.attempt, name) for name in run.attempt.nodes]
    assert len({id(plan.environment) for plan in found}) == 1
    assert [plan.node_rank for plan in found] == [0, 1, 2]
