"""Isolation on a small share of the benchmark's model (`python -m bench isolation` plays all of it)."""

import random

import pytest

from bench.isolation.dlrover import bad_nodes
from bench.isolation.model import Scenario, draw
from bench.isolation.trials import run


@pytest.mark.costly
def test_a_share_of_the_model_blames_no_good_node_and_leaves_few_undecided() -> None:
    """Noise, faults and broken paths: at most 0.1 % of the nodes wrongly blamed, 5 % undecided, the median of rounds at most 5."""
    for nodes, trials in ((16, 150), (32, 60), (64, 40)):
        ours, _, _ = run(Scenario(name=f"test {nodes}", nodes=nodes), range(trials))
        assert ours.wrong_share <= 0.001
        assert ours.undecided_share <= 0.05
        assert ours.of("bad", "bad") >= 0.9
        assert ours.wrong_part == 0
        assert ours.median_rounds <= 5


def test_without_noise_64_nodes_are_judged_in_a_median_of_four_rounds() -> None:
    """No bad node is missed and none wrongly blamed."""
    clean = Scenario(name="test clean", nodes=64, has_noise=False)
    ours, _, _ = run(clean, range(40))
    assert ours.median_rounds <= 4
    assert ours.of("good", "bad") == 0
    assert ours.of("bad", "good") == 0


def test_two_rounds_of_dlrover_find_a_slow_pair_and_blame_a_good_neighbour_of_two_bad_ones() -> (
    None
):
    """The comparison is real: it finds one bad node without noise, and does not tell nodes that meet bad ones twice."""
    one = draw(
        Scenario(
            name="one",
            nodes=16,
            num_bad=1,
            faults=("dead link",),
            has_noise=False,
            has_paths=False,
        ),
        random.Random(1),
    )
    assert bad_nodes(one) == (set(one.faults), set(one.faults))
    third = Scenario(name="third", nodes=64, num_bad=21, has_noise=False, has_paths=False)
    _, _, by_our_limit = run(third, range(20))
    assert by_our_limit.nodes["good", "bad"] > 0
