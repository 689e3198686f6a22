"""A gang of torch ranks lacks one in a collective: the agent reports each rank's stack, and the analysis names the missing rank."""

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from runner.facts.ids import AttemptId
from runner.facts.messages import signals as s
from runner.facts.messages.assignments import Assignment, LaunchPlan
from runner.facts.wire import encode
from tests.agent.node import Node, is_in, state_of, wait_until
from tests.agent.programs import program_plan
from tests.decide.controller_harness import ControllerHarness, training_harness
from tests.decide.incidents.test_hang_named import hang, incident

pytestmark = [pytest.mark.e2e, pytest.mark.trainer]

RANKS = 4
# Rank 2 never comes to the second collective; or, in other attempts, skips it and waits in the next one, of another group. In the
# last two the ranks have a flight recorder that answers.
PROGRAM = """
import os
import time

import torch
import torch.distributed as dist


def mark():
    open(os.path.join(os.environ["SEEN"], os.environ["STOKER_ATTEMPT"] + "-" + os.environ["RANK"]), "w").close()


def read_batch():
    mark()
    time.sleep(1000)


def step(rank, others):
    gradient = torch.ones(8)
    dist.all_reduce(gradient)
    if rank == 2 and os.environ["STOKER_ATTEMPT"] in ("1.1.1", "1.1.5"):
        read_batch()
    mark()
    if rank == 2:
        dist.barrier(group=others)
    else:
        dist.all_reduce(gradient)


def main():
    dist.init_process_group("gloo")
    if os.environ["STOKER_ATTEMPT"] in ("1.1.5", "1.1.7"):
        from trainer.contract.flight_recorder import answer_requests

        answer_requests(dist.get_rank())
    step(dist.get_rank(), dist.new_group(backend="gloo"))


if __name__ == "__main__":
    main()
"""


def rank_stacks_of(node: Node, generation: int) -> s.RanksTerminated:
    """Let a gang hang, have its node end it with stacks, and return what the node reported."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    attempt = AttemptId(1, 1, generation)
    plan = program_plan(node, "{python}", "train.py", master_port=port)
    folder = str(node.state / "attempts" / str(attempt))
    plan = replace(plan, attempt=attempt, ranks_per_node=RANKS, output_folder=folder)
    (Path(plan.working_directory) / "train.py").write_text(PROGRAM)
    pids = node.launch(plan, generation, preload=("torch", "torch.distributed"))
    wait_until(
        lambda: all(is_at_its_place(node, plan, rank, pid) for rank, pid in pids.items()), "hang"
    )
    idle = Assignment(
        node=node.name, generation=generation + 1, attempt=attempt, stacks_seconds=10.0
    )
    node.store.put(f"assignment/{node.name}", encode(idle))
    fact = node.wait_for("RanksTerminated", lambda fact: is_in(generation, fact))
    assert isinstance(fact, s.RanksTerminated)
    return fact


def is_at_its_place(node: Node, plan: LaunchPlan, rank: int, pid: int) -> bool:
    """Whether a rank has come to where it hangs."""
    return (node.state / f"{plan.attempt}-{rank}").exists() and state_of(pid) == "S"


def judged(gone: s.RanksTerminated) -> ControllerHarness:
    """Give a node's own report to a controller whose run of one node makes no step."""
    harness = training_harness(nodes=1, ranks_per_node=RANKS)
    generation = hang(harness)
    harness.take(
        replace(
            gone,
            node="n1",
            incarnation=1,
            sequence=0,
            instance_id="",
            attempt=AttemptId(1, 1, 0),
            generation=generation,
        )
    )
    return harness


def test_the_rank_that_is_missing_from_a_collective_is_named(
    make_node: Callable[..., Node],
) -> None:
    """Asleep where it reads data, or waiting in the next collective because it skipped one: rank 2 is missing."""
    node = make_node(heartbeat_seconds=1.0)
    node.start_agent()
    reads = rank_stacks_of(node, 1)
    assert (reads.num_stacks, sum(len(rank_stack.ranks) for rank_stack in reads.rank_stacks)) == (
        RANKS,
        RANKS,
    )
    found = incident(judged(reads))
    assert (found.fault, found.node, found.rank) == ("no_progress", "n1", 2)
    assert found.evidence[-1].startswith("rank 2 on n1 is in train.py:read_batch:"), found.evidence
    assert "the other 3 wait in distributed_c10d.py:all_reduce:" in found.evidence[-1], (
        found.evidence
    )

    skips = rank_stacks_of(node, 3)
    found = incident(judged(skips))
    assert (found.node, found.rank) == ("n1", 2)
    assert found.evidence[-1].startswith("rank 2 on n1 is in distributed_c10d.py:barrier:"), (
        found.evidence
    )


def test_collective_records_of_ranks_are_reported_and_name_the_lagging_rank(
    make_node: Callable[..., Node],
) -> None:
    """The real recorder of torch, requested through the launch's pipe; our thread answers as NCCL's own does."""
    node = make_node(heartbeat_seconds=1.0)
    node.start_agent()
    reads = rank_stacks_of(node, 5)
    reported = {rank: rank_stack for rank_stack in reads.rank_stacks for rank in rank_stack.ranks}
    assert all(rank_stack.collectives for rank_stack in reported.values()), reported
    assert [(each.operation, each.waits_at) for each in reported[0].collectives] == [
        ("all_reduce", 2)
    ]
    assert [(each.sequence, each.waits_at) for each in reported[2].collectives] == [(1, 0)]
    found = incident(judged(reads))
    assert (found.node, found.rank) == ("n1", 2)
    assert ", after all_reduce 1 of group 0 default_pg, the other 3 wait in" in found.evidence[-1]
    assert found.evidence[-1].endswith(", in all_reduce 2 of group 0 default_pg")

    skips = rank_stacks_of(node, 7)
    found = incident(judged(skips))
    assert (found.node, found.rank) == ("n1", 2)
    assert ", in barrier 1 of group 1" in found.evidence[-1], found.evidence
