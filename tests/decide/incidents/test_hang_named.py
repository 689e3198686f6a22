"""The incident of a hang names the missing rank once all nodes have reported their ranks' stacks."""

from msgspec.structs import replace

from runner.decide.state.cluster_state import Incident
from runner.facts.faults import Finding
from runner.facts.ids import AttemptId
from runner.facts.messages import signals as s
from runner.facts.messages.rank_stacks import MAX_RANK_STACKS, MAX_RANK_STACKS_KEPT, RankStack
from tests.decide.controller_harness import ControllerHarness, training_harness
from tests.rootcause.test_hang_analysis import REDUCE, WORK

ATTEMPT = AttemptId(1, 1, 0)


def hang(harness: ControllerHarness, **who: object) -> int:
    """Let the gang stop stepping; return its generation."""
    finding = Finding(fault="no_progress", evidence="no step for 60 s", attempt=ATTEMPT)
    harness.take(replace(finding, **who))
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    assert attempt.state == "stopping"
    return attempt.generation


def gone(node: str, generation: int, *rank_stacks: RankStack, stacks: int = 2) -> s.RanksTerminated:
    """Make a node's message that its ranks are terminated, with their last stacks."""
    return s.RanksTerminated(
        node=node,
        incarnation=1,
        generation=generation,
        attempt=ATTEMPT,
        num_stacks=stacks,
        rank_stacks=rank_stacks,
    )


def incident(harness: ControllerHarness) -> Incident:
    """Return the only incident."""
    (found,) = harness.state.incidents.values()
    return found


def test_the_culprit_of_a_hang_is_named_when_the_last_node_has_reported() -> None:
    """One node alone does not suffice; both do, and the incident, its evidence and the journal name rank and node."""
    harness = training_harness()
    generation = hang(harness)
    harness.take(
        gone(
            "n2",
            generation,
            RankStack(ranks=(2,), state="S", frames=REDUCE),
            RankStack(ranks=(3,), state="R", frames=WORK),
        )
    )
    assert (incident(harness).node, len(incident(harness).evidence)) == (None, 2)
    records = harness.take(
        gone("n1", generation, RankStack(ranks=(0, 1), state="S", frames=REDUCE))
    )
    assert [type(record).__name__ for record in records] == ["NodeCleared", "IncidentAmended"]
    found = incident(harness)
    assert (found.fault, found.node, found.rank) == ("no_progress", "n2", 3)
    assert found.evidence[-1].startswith("rank 3 on n2 is in loop.py:step:77, the other 3 wait in")
    harness.settle()
    assert harness.state.runs[1].attempt is not None
    # The next attempt starts without them.
    assert harness.state.runs[1].attempt.rank_stacks == []


def test_a_node_reports_stacks_of_its_own_ranks_only() -> None:
    """Stacks that a node reports for ranks elsewhere, or for too many, do not count."""
    harness = training_harness()
    generation = hang(harness)
    harness.take(
        gone("n2", generation, RankStack(ranks=(0, 1, 2, 3, -1, 99), state="S", frames=REDUCE))
    )
    attempt = harness.state.runs[1].attempt
    assert attempt is not None
    assert [rank_stack.ranks for rank_stack in attempt.rank_stacks] == [(2, 3)]
    many = [RankStack(ranks=(0,), state="S", frames=(f"{n}.py:f:1",)) for n in range(500)]
    harness.take(gone("n1", generation, *many))
    assert len(attempt.rank_stacks) == MAX_RANK_STACKS + 1 < MAX_RANK_STACKS_KEPT


def test_a_stopped_rank_stays_the_culprit() -> None:
    """Where the signal names the rank, stacks add evidence and change no name."""
    harness = training_harness()
    generation = hang(harness, fault="rank_stopped", node="n1", rank=0)
    harness.take(
        gone(
            "n1",
            generation,
            RankStack(ranks=(0,), state="T", frames=REDUCE),
            RankStack(ranks=(1,), state="S", frames=REDUCE),
        )
    )
    harness.take(
        gone(
            "n2",
            generation,
            RankStack(ranks=(2,), state="S", frames=REDUCE),
            RankStack(ranks=(3,), state="S", frames=REDUCE),
        )
    )
    found = incident(harness)
    assert (found.fault, found.node, found.rank) == ("rank_stopped", "n1", 0)
    assert found.evidence[-1].startswith(
        "rank 0 on n1 is in distributed_c10d.py:all_reduce:3252 from loop.py:step:70 (state T)"
    )


def test_without_stacks_the_incident_stays_as_it_was() -> None:
    """Agents of an earlier release, and nodes with unreadable stacks, do not change the incident."""
    harness = training_harness()
    generation = hang(harness)
    harness.take(gone("n1", generation, stacks=0))
    harness.take(gone("n2", generation, stacks=0))
    assert (incident(harness).node, incident(harness).evidence) == (None, ["no step for 60 s"])
