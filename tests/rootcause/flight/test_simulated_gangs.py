"""Flight analysis names the injured ranks of simulated 3D-parallel gangs, and never another one."""

import random

import pytest

from runner.rootcause.flight.flight_analysis import find_awaited_ranks
from tests.rootcause.flight.injected_faults import KINDS, Case, draw
from tests.suite.share import current

CASES = 300
# Kinds of which the records show the rank in each case; of others two ranks may contradict each other, and neither is named.
ALWAYS_SHOWN = ("stopped", "stuck")


def seeds(*kinds: str) -> list[int]:
    """Return the commit's share of all cases, or of those of some kinds."""
    numbers = [KINDS.index(kind) for kind in kinds or KINDS]
    return [
        seed
        for seed in range(CASES)
        if seed % len(KINDS) in numbers and current().has(f"gang {seed}")
    ]


def verdict_of(case: Case, *, without: tuple[int, ...] = ()) -> tuple[int, ...]:
    """Return the ranks that are named, where the records of some are lost."""
    left = {rank: places for rank, places in case.places.items() if rank not in without}
    return find_awaited_ranks(left, num_ranks=case.num_ranks).ranks


@pytest.mark.costly
def test_of_simulated_hangs_no_wrong_rank_is_named() -> None:
    """Processors that stop, GPUs that never complete, calls left out, exchanged or of another size, and a network that fails."""
    named: dict[str, list[bool]] = {kind: [] for kind in KINDS}
    for seed in seeds():
        case = draw(seed)
        if not case.is_hang:
            continue
        found = verdict_of(case)
        assert set(found) <= set(case.culprits), f"seed {seed}, {case.kind}: {found}"
        named[case.kind].append(found == case.culprits if len(case.culprits) < 2 else bool(found))
    assert all(all(named[kind]) for kind in ALWAYS_SHOWN), named
    shown = [is_right for of_kind in named.values() for is_right in of_kind]
    assert sum(shown) >= 0.85 * len(shown), named


def test_the_record_of_an_injured_rank_may_be_the_one_that_is_missing() -> None:
    """A stopped process writes none."""
    for seed in seeds("stopped"):
        case = draw(seed)
        assert verdict_of(case, without=case.culprits) == case.culprits, seed


def test_of_two_lost_records_none_is_blamed_for_another_rank() -> None:
    """The rank that the others wait for is named by what is left, or no rank is."""
    for seed in seeds(*ALWAYS_SHOWN):
        case = draw(seed)
        others = [rank for rank in case.places if rank not in case.culprits]
        lost = tuple(random.Random(seed).sample(others, 2))
        assert set(verdict_of(case, without=lost)) <= set(case.culprits), seed
