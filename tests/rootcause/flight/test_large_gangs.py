"""In a gang of any size the supervisor names the injured ranks by the flight records of all, gathered node by node."""

import pytest

from runner.facts.messages import rank_stacks
from runner.facts.messages.rank_stacks import RankStack, gathered
from runner.rootcause.hang_analysis import MissingRanks, find_missing_ranks
from tests.rootcause.flight.injected_faults import KINDS, Case, draw
from tests.rootcause.flight.training_schedule import Layout

# Ranks: 8 in a node.
SIZE, LARGE = 8, Layout(8, 16, 4)
SEEDS = [seed for seed in range(16) if KINDS[seed % len(KINDS)] in ("stopped", "stuck")]


def verdict(case: Case) -> MissingRanks:
    """Report the stacks of one node after the other, and judge them."""
    kept: list[RankStack] = []
    for first in range(0, case.num_ranks, SIZE):
        kept = gathered(
            kept,
            [
                RankStack(ranks=(rank,), state="S", wchan="futex", collectives=case.places[rank])
                for rank in range(first, first + SIZE)
                if rank in case.places
            ],
        )
    nodes = [f"n{number}" for number in range(case.num_ranks // SIZE)]
    found = find_missing_ranks(kept, nodes=nodes, ranks_per_node=SIZE, pipeline=4, has_gpus=True)
    assert found is not None
    return found


@pytest.mark.costly
@pytest.mark.parametrize("seed", SEEDS)
def test_the_injured_rank_of_512_is_named(seed: int) -> None:
    """Each rank is in groups of its own, so no two stacks are equal."""
    case = draw(seed, LARGE)
    assert case.is_hang
    assert verdict(case).ranks == case.culprits


@pytest.mark.costly
@pytest.mark.parametrize("seed", SEEDS)
def test_of_records_that_are_cut_none_names_a_wrong_rank(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where not all places fit, each rank keeps those it waits in and those it used last: named is the right rank, or none."""
    case = draw(seed, LARGE)
    total = sum(map(len, case.places.values()))
    for share in (2, 4):
        monkeypatch.setattr(rank_stacks, "MAX_PLACES_KEPT", total // share)
        assert set(verdict(case).ranks) <= set(case.culprits), share


def test_a_gang_keeps_a_bounded_number_of_stacks_and_places() -> None:
    """Ranks that report too much lose half of it, and stacks beyond the most are not read."""
    places = draw(0, Layout(2, 2, 2)).places[0] * 12
    kept: list[RankStack] = []
    for node in range(64):
        many = [
            RankStack(ranks=(64 * node + n,), state="S", collectives=places[:64]) for n in range(64)
        ]
        kept = gathered(kept, many)
        assert sum(len(one.collectives) for one in kept) <= rank_stacks.MAX_PLACES_KEPT
    assert len(kept) == 64 * 64
    assert {one.collectives for one in kept} >= {places[:4]}
    few = gathered(kept, (RankStack(ranks=(n,)) for n in range(20_000)))
    assert len(few) == rank_stacks.MAX_RANK_STACKS_KEPT
