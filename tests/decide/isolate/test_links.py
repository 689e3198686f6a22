"""What speaks against a node's link: only pairs with nodes that are good elsewhere, and edges of domains count once."""

from runner.decide.isolate.fleet import Fleet
from runner.decide.isolate.links import Link
from runner.decide.isolate.node_states import States
from runner.decide.isolate.readings import read
from runner.facts.messages.isolation import AloneResult, PairResult, Question
from tests.decide.isolate.fleets import Results, leaves, named

NODES = named(*range(32))
# n0 to n7 are on leaf0, n8 to n15 on leaf8, and so on.
ASKED = Question(nodes=NODES, domains=leaves(32, 8))
# Inside leaves 40, from one to another 32; n0 to n3 have no pair.
SOUND = [(f"n{at}", f"n{at + 1}", 40.0) for at in range(4, 32, 2)]
ACROSS = [("n8", "n16", 32.0), ("n10", "n24", 32.0), ("n18", "n26", 32.0)]


def link(node: str, *pairs: tuple[str, str, float]) -> Link:
    """Judge a node by these pairs, beside those of the sound rest; rate 0: failed, and it does not show where."""
    results: Results = [AloneResult(round=0, node=each, rate=100.0) for each in NODES]
    for a, b, rate in (*SOUND, *ACROSS, *pairs):
        failed = () if rate else (a, b)
        results.append(PairResult(round=1, nodes=(a, b), rate=rate or None, failed=failed))
    fleet = Fleet(ASKED)
    return States(fleet, read(fleet, results)).links[node]


def test_three_bad_pairs_with_nodes_that_are_good_elsewhere_blame_a_node() -> None:
    """Two are not enough, and pairs with nodes that have no good pair do not count."""
    known = [("n0", "n4", 10.0), ("n0", "n5", 10.0), ("n0", "n6", 10.0)]
    assert link("n0", *known[:2]).state == "suspect"
    assert link("n0", *known).state == "bad"
    unknown = [("n0", "n1", 10.0), ("n0", "n2", 10.0), ("n0", "n3", 10.0)]
    assert link("n0", *unknown).state == "suspect"
    assert link("n0", *known[:2], *unknown).num_signs == 2


def test_bad_pairs_out_of_a_domain_that_no_good_pair_leaves_count_once() -> None:
    """They may all have the domain's uplink to blame. Once a neighbour has a good pair across its edge, each counts."""
    out = [("n0", "n8", 5.0), ("n0", "n18", 5.0), ("n0", "n24", 5.0)]
    assert link("n0", *out).num_signs == 1
    neighbours = [("n4", "n12", 32.0), ("n5", "n20", 32.0), ("n6", "n28", 32.0)]
    assert link("n0", *out, *neighbours).state == "bad"


def test_bad_pairs_between_two_domains_count_once_unless_one_there_is_good() -> None:
    """They may all have that path to blame, although other pairs leave the domain."""
    same = [("n0", "n8", 5.0), ("n0", "n9", 5.0), ("n0", "n10", 5.0)]
    elsewhere = ("n4", "n20", 32.0)
    assert link("n0", *same, elsewhere).num_signs == 1
    assert link("n0", *same, elsewhere, ("n5", "n12", 32.0)).state == "bad"


def test_a_good_pair_offsets_what_is_as_far_or_farther() -> None:
    """With a good pair inside its domain, bad ones across its edge are not the node's."""
    far = [("n0", "n8", 5.0), ("n0", "n18", 5.0), ("n0", "n24", 5.0)]
    assert link("n0", ("n0", "n4", 40.0), *far).state == "good"
    near = [("n0", "n5", 10.0), ("n0", "n6", 10.0)]
    assert link("n0", ("n0", "n4", 40.0), near[0]).state == "good"
    assert link("n0", ("n0", "n4", 40.0), *near).state == "mixed"


def test_a_good_far_pair_does_not_clear_a_node_that_is_a_little_slow_nearby() -> None:
    """28 is enough of 32 and too little of 40; a near rate that would be too slow even far away is contradicted by it."""
    far = ("n0", "n8", 28.5)
    near = [("n0", "n4", 28.0), ("n0", "n5", 28.0), ("n0", "n6", 28.0)]
    assert link("n0", far, near[0]).state == "mixed"
    assert link("n0", far, *near).state == "bad"
    assert link("n0", far, ("n0", "n4", 15.0)).state == "good"


def test_a_far_class_without_pairs_of_good_nodes_is_not_compared() -> None:
    """All far pairs have a suspect end: their own median would make a bad one the measure."""
    fleet = Fleet(ASKED)
    results: Results = [AloneResult(round=0, node=each, rate=100.0) for each in NODES]
    results += [PairResult(round=1, nodes=(a, b), rate=rate) for a, b, rate in SOUND]
    results += [PairResult(round=2, nodes=(f"n{at}", f"n{at + 8}"), rate=10.0) for at in range(4)]
    readings = read(fleet, results)
    assert all(readings.pairs[f"n{at}", f"n{at + 8}"].incomparable == 1 for at in range(4))
