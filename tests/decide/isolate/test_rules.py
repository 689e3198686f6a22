"""Isolation, rule by rule, on fleets without noise: each rule fires, and names nothing else."""

import math

import pytest

from runner.decide.isolate.isolation import next_step
from runner.facts.messages.isolation import (
    AloneResult,
    Floor,
    Judged,
    Measure,
    PairResult,
    Question,
)
from tests.decide.isolate.fleets import Fleet, Results, bad, leaves, named, verdict_on

SIXTEEN = Question(nodes=named(*range(16)), domains=leaves(16, 8))
FLOOR = {"": Floor(alone=90.0, pair=30.0, source="the vendor's page")}


def test_a_sound_fleet_is_good_after_three_rounds() -> None:
    """Each node alone, then all pairs inside domains, then pairs across them; nothing is blamed."""
    judged, results, rounds = Fleet(question=SIXTEEN).judged()
    assert [each.verdict for each in judged.nodes] == ["good"] * 16
    assert (judged.num_rounds, judged.paths, judged.notes) == (3, (), ())
    assert rounds[0] == Measure(round=0, alone=SIXTEEN.nodes)
    leaf = {node: name for name, nodes in SIXTEEN.domains["leaf"].items() for node in nodes}
    assert len(rounds[1].pairs) == 8
    assert all(leaf[a] == leaf[b] for a, b in rounds[1].pairs)
    assert rounds[2].pairs
    assert all(leaf[a] != leaf[b] for a, b in rounds[2].pairs)
    assert len(results) == 16 + 8 + len(rounds[2].pairs)


def test_a_slow_link_is_told_from_slow_compute() -> None:
    """Each is blamed for its part, with the peers that it was compared with; the slow computer is in no pair."""
    fleet = Fleet(question=SIXTEEN, links={"n3": 0.5}, compute={"n12": 0.6})
    judged, results, _ = fleet.judged()
    assert bad(judged) == {"n3": "link", "n12": "compute"}
    assert judged.num_rounds == 4
    assert "20; peers: median 40" in verdict_on(judged, "n3").reason
    assert "as slow as 60 (peers: median 100" in verdict_on(judged, "n12").reason
    assert not any("n12" in each.nodes for each in results if isinstance(each, PairResult))


def test_a_wrong_result_is_enough_by_itself() -> None:
    """No noise makes an exact result wrong, so it is not measured again."""
    judged, results, _ = Fleet(question=SIXTEEN, wrong=["n5"]).judged()
    assert bad(judged) == {"n5": "compute"}
    assert sum(isinstance(each, AloneResult) and each.node == "n5" for each in results) == 1


def test_a_suspect_meets_distinct_references_one_of_them_on_another_leaf() -> None:
    """Three different partners speak against a node before it is blamed, and one of them is not its neighbour."""
    _, results, _ = Fleet(question=SIXTEEN, links={"n3": 0.5}).judged()
    partners = [
        node
        for each in results
        if isinstance(each, PairResult) and "n3" in each.nodes
        for node in each.nodes
        if node != "n3"
    ]
    near, far = named(*range(8)), named(*range(8, 16))
    assert len(partners) == len({*partners}) == 3
    assert any(node in near for node in partners)
    assert any(node in far for node in partners)


def test_suspects_wait_for_references_in_waves() -> None:
    """With more suspects than references no node is in two measurements of a round, and all bad ones are found."""
    question = Question(nodes=named(*range(12)))
    links = dict.fromkeys(named(0, 2, 4, 6), 0.5)
    judged, _, rounds = Fleet(question=question, links=links).judged()
    assert bad(judged) == dict.fromkeys(links, "link")
    for each in rounds:
        nodes = [*each.alone, *(node for pair in each.pairs for node in pair)]
        assert len(nodes) == len({*nodes})


def test_one_halved_measurement_blames_neither_node_nor_path() -> None:
    """A pair that is slow once is measured again by other partners and by itself: it was transient."""
    _, _, rounds = Fleet(question=SIXTEEN).judged()
    pair = rounds[1].pairs[0]
    judged, _, _ = Fleet(question=SIXTEEN, halved=[(pair, 1), ("n9", 0)]).judged()
    assert [each.verdict for each in judged.nodes] == ["good"] * 16
    assert [(each.nodes, each.verdict) for each in judged.paths] == [(pair, "transient")]


def test_a_bad_pair_of_good_nodes_blames_the_path() -> None:
    """Both ends are good elsewhere, and the pair stays bad: the path is named, no node."""
    _, _, rounds = Fleet(question=SIXTEEN).judged()
    inside, across = rounds[1].pairs[1], rounds[2].pairs[0]
    for pair in (inside, across):
        judged, _, _ = Fleet(question=SIXTEEN, paths={frozenset(pair): 0.4}).judged()
        assert bad(judged) == {}
        assert [(each.nodes, each.verdict) for each in judged.paths] == [(pair, "bad")]
        assert judged.paths[0].domains == (() if pair == inside else ("leaf0", "leaf8"))


def test_a_domain_that_only_bad_paths_leave_is_named() -> None:
    """Pairs inside a leaf are good, all out of it fail: the leaf is cut off, its nodes and the other leaves are good."""
    nodes = named(*range(32))
    paths = {frozenset((a, b)): 0.0 for a in nodes[:8] for b in nodes[8:]}
    judged, _, _ = Fleet(
        question=Question(nodes=nodes, domains=leaves(32, 8)), paths=paths
    ).judged()
    assert bad(judged) == {}
    assert [each.name for each in judged.domains] == ["leaf0"]
    assert all(each.verdict == "good" for each in judged.nodes)


def test_a_slow_node_behind_a_broken_uplink_is_still_told_apart() -> None:
    """Bad pairs across an edge that nothing good crosses count once, so only what is bad inside the leaf is blamed."""
    nodes = named(*range(32))
    paths = {frozenset((a, b)): 0.3 for a in nodes[:8] for b in nodes[8:]}
    question = Question(nodes=nodes, domains=leaves(32, 8))
    judged, _, _ = Fleet(question=question, paths=paths, links={"n1": 0.2, "n2": 0.2}).judged()
    assert bad(judged) == {"n1": "link", "n2": "link"}


def test_a_domain_without_any_good_pair_is_suspected_and_not_its_nodes() -> None:
    """All links of a switch fail: its nodes are undecided, the domain is named."""
    nodes = named(*range(32))
    links = dict.fromkeys(nodes[:8], 0.0)
    judged, _, _ = Fleet(
        question=Question(nodes=nodes, domains=leaves(32, 8)), links=links
    ).judged()
    assert bad(judged) == {}
    assert [each.name for each in judged.domains] == ["leaf0"]
    assert all(verdict_on(judged, node).verdict == "undecided" for node in nodes[:8])
    assert all(verdict_on(judged, node).verdict == "good" for node in nodes[8:])


def test_without_a_good_pair_or_a_reference_no_node_is_blamed() -> None:
    """Everything fails, after another matching with other partners as well: the verdict says so."""
    links = dict.fromkeys(SIXTEEN.nodes, 0.0)
    judged, _, _ = Fleet(question=SIXTEEN, links=links).judged()
    assert bad(judged) == {}
    assert {each.verdict for each in judged.nodes} == {"undecided"}
    assert "no pair is good and history knows no good node" in judged.notes[0]


def test_references_of_history_find_the_bad_when_no_pair_is_good() -> None:
    """Two suspects alone are never told apart; with nodes that history knows as good the bad one is."""
    two = Question(nodes=named(0, 1), floors=FLOOR)
    alone, _, _ = Fleet(question=two, links={"n0": 0.2}).judged()
    assert bad(alone) == {}
    more = Question(nodes=two.nodes, floors=FLOOR, known_good=named(7, 8, 9))
    judged, _, _ = Fleet(question=more, links={"n0": 0.2}).judged()
    assert bad(judged) == {"n0": "link"}


def test_where_no_pair_is_good_suspects_meet_those_that_history_knows() -> None:
    """Each known node shares a leaf with a bad one: the next round pairs suspects with known nodes of other leaves."""
    domains = {"leaf": {"a": named(0, 7), "b": named(1, 8), "c": named(2, 9)}}
    known = named(7, 8, 9)
    asked = Question(nodes=named(0, 1, 2), domains=domains, known_good=known)
    links = dict.fromkeys(asked.nodes, 0.0)
    judged, _, rounds = Fleet(question=asked, links=links).judged()
    assert [sum(node in known for node in pair) for pair in rounds[2].pairs] == [1, 1]
    assert {*rounds[1].pairs}.isdisjoint(rounds[2].pairs)
    assert bad(judged) == dict.fromkeys(asked.nodes, "link")


@pytest.mark.parametrize(("num_nodes", "dead"), [(6, (0, 3)), (7, (1, 2)), (10, (0, 3, 4))])
def test_beside_pairs_that_failed_a_pair_that_works_is_good(
    num_nodes: int, dead: tuple[int, ...]
) -> None:
    """Where dead links leave a rate fewer than four peers, its nodes are cleared, and those with dead links are named."""
    fleet = Fleet(
        question=Question(nodes=named(*range(num_nodes))), links=dict.fromkeys(named(*dead), 0.0)
    )
    judged, _, _ = fleet.judged()
    assert bad(judged) == dict.fromkeys(named(*dead), "link")
    assert [each.verdict for each in judged.nodes].count("good") == num_nodes - len(dead)


def test_three_nodes_are_told_apart_by_another_matching() -> None:
    """The only pair of the first round is bad and the third node stays over: its pair with one of them settles which."""
    asked = Question(nodes=named(0, 1, 2), floors=FLOOR)
    judged, _, _ = Fleet(question=asked, links={"n0": 0.5}).judged()
    assert bad(judged) == {"n0": "link"}


def test_a_failure_with_its_end_named_costs_that_node_alone() -> None:
    """The other end of a pair that died in the middle is no suspect because of it."""
    fleet = Fleet(question=SIXTEEN, links={"n4": 0.0}, failed_end="n4")
    judged, _, rounds = fleet.judged()
    assert bad(judged) == {"n4": "link"}
    assert judged.paths == ()
    partner = next(a if b == "n4" else b for a, b in rounds[1].pairs if "n4" in (a, b))
    assert verdict_on(judged, partner).verdict == "good"


def test_with_fewer_than_four_peers_only_a_floor_judges() -> None:
    """Four nodes have three peers each: without a floor all is undecided, with one the slow node is found."""
    four = named(*range(4))
    slow = {"n2": 0.5}
    without, _, _ = Fleet(question=Question(nodes=four), compute=slow).judged()
    assert {each.verdict for each in without.nodes} == {"undecided"}
    assert "fewer than 4 peers, and no floor" in without.nodes[0].reason
    judged, _, _ = Fleet(question=Question(nodes=four, floors=FLOOR), compute=slow).judged()
    assert bad(judged) == {"n2": "compute"}
    assert "floor: 90 by the vendor's page" in verdict_on(judged, "n2").reason


def test_a_floor_that_all_are_below_is_suspect() -> None:
    """Every rate is below the floor: it blames no node, and peers still find the one that is slower."""
    floors = {"": Floor(alone=500.0, pair=200.0)}
    question = Question(nodes=SIXTEEN.nodes, domains=SIXTEEN.domains, floors=floors)
    judged, _, _ = Fleet(question=question, links={"n3": 0.5}).judged()
    assert bad(judged) == {"n3": "link"}
    assert [note for note in judged.notes if "the floor is suspect" in note]


def test_more_than_half_of_the_nodes_are_not_blamed() -> None:
    """Most nodes give wrong results: it is something that they have in common."""
    judged, _, _ = Fleet(question=SIXTEEN, wrong=SIXTEEN.nodes[:9]).judged()
    assert bad(judged) == {}
    assert "they have the cause in common" in judged.notes[0]


def test_nodes_are_compared_within_their_hardware_class() -> None:
    """A class that is half as fast is sound; one that is slow among its own class is not."""
    classes = {node: "old" if index < 8 else "new" for index, node in enumerate(SIXTEEN.nodes)}
    old = dict.fromkeys(SIXTEEN.nodes[:8], 0.5)
    question = Question(nodes=SIXTEEN.nodes, domains=SIXTEEN.domains, hardware_classes=classes)
    sound, _, _ = Fleet(question=question, compute=old, links=old).judged()
    assert [each.verdict for each in sound.nodes] == ["good"] * 16
    judged, _, _ = Fleet(question=question, compute=old | {"n9": 0.5}, links=old).judged()
    assert bad(judged) == {"n9": "compute"}


def test_a_busy_node_is_undecided() -> None:
    """A node that could not be measured is asked for three times, then said to be so; it is in no pair."""
    judged, results, _ = Fleet(question=SIXTEEN, busy=["n6"]).judged()
    assert verdict_on(judged, "n6").verdict == "undecided"
    assert "nothing was measured on it in 3 attempts" in verdict_on(judged, "n6").reason
    assert not any("n6" in each.nodes for each in results if isinstance(each, PairResult))


@pytest.mark.parametrize("rate", [math.nan, math.inf, 0.0, -1.0])
def test_a_rate_that_is_none_says_nothing(rate: float) -> None:
    """NaN, infinities, zero and negative rates are no measurement: they neither blame nor move the limit of others."""
    fleet = Fleet(question=SIXTEEN)
    results: Results = [
        AloneResult(round=0, node=node, rate=rate if node == "n0" else 100.0)
        for node in SIXTEEN.nodes
    ]
    step = next_step(SIXTEEN, results)
    assert isinstance(step, Measure)
    assert step.alone == ("n0",)
    while isinstance(step, Measure):
        results += fleet.results(step)
        step = next_step(SIXTEEN, results)
    assert [each.verdict for each in step.nodes] == ["good"] * 16


def test_results_of_nodes_that_were_not_asked_about_are_ignored() -> None:
    """Foreign, repeated and self-paired results change nothing."""
    _, results, _ = Fleet(question=SIXTEEN, links={"n3": 0.5}).judged()
    foreign: Results = [
        AloneResult(round=0, node="x", rate=1.0),
        PairResult(round=1, nodes=("n0", "x"), rate=1.0),
        PairResult(round=1, nodes=("n0", "n0"), rate=1.0),
    ]
    assert next_step(SIXTEEN, [*foreign, *results, *results]) == next_step(SIXTEEN, results)


def test_nothing_to_judge_is_judged_at_once() -> None:
    """A question about no node has an empty verdict; about one node alone, its link is undecided."""
    assert next_step(Question(nodes=()), []) == Judged(num_rounds=0, nodes=())
    judged, _, _ = Fleet(question=Question(nodes=("n0",), floors=FLOOR)).judged()
    assert verdict_on(judged, "n0").reason == "there was no node to measure it with"
