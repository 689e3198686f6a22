"""Topology: a gang spans as few domains as possible, pipeline neighbours are closest, and a placed node keeps its place."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.decide.placement.topology import (
    DomainMap,
    Domains,
    arrange,
    arrangement_cost,
    distance,
    fill,
    gang_shape,
    tensor_groups_across_nodes,
)


def names(*numbers: int) -> tuple[str, ...]:
    """Name nodes."""
    return tuple(f"n{number}" for number in numbers)


def cluster(racks: int, switches: int, nodes: int) -> dict[str, dict[str, tuple[str, ...]]]:
    """Make racks of switches of nodes, numbered through."""
    domains: dict[str, dict[str, tuple[str, ...]]] = {"switch": {}, "rack": {}}
    for rack in range(racks):
        first = rack * switches * nodes
        domains["rack"][f"r{rack}"] = names(*range(first, first + switches * nodes))
        for switch in range(switches):
            start = first + switch * nodes
            domains["switch"][f"r{rack}s{switch}"] = names(*range(start, start + nodes))
    return domains


def test_distance_is_the_nearest_kind_that_two_nodes_share() -> None:
    """0 on one switch, 1 in one rack, 2 beyond; a node without a domain is far from all."""
    where = DomainMap(cluster(racks=2, switches=2, nodes=2))
    here, there = where.position("n0"), [where.position(name) for name in ("n1", "n2", "n4", "x")]
    assert [distance(here, each) for each in there] == [0, 1, 2, 2]
    nowhere = DomainMap({})
    assert distance(nowhere.position("n0"), nowhere.position("n1")) == 0


def test_columns_are_pipelines_of_whole_nodes() -> None:
    """Stages of whole nodes make columns; a pipeline that does not divide the nodes, or none, makes a ring."""
    shape = gang_shape(nodes=6, pipeline=3)
    assert shape.columns == 2
    assert [list(shape.places(column)) for column in range(2)] == [[0, 2, 4], [1, 3, 5]]
    assert shape.neighbours(2) == [0, 4]
    assert gang_shape(nodes=6, pipeline=4).columns == 0
    assert sorted(gang_shape(nodes=4, pipeline=1).neighbours(0)) == [1, 3]
    assert gang_shape(nodes=2, pipeline=1).neighbours(0) == [1]
    assert gang_shape(nodes=1, pipeline=1).neighbours(0) == []


def test_a_gang_gets_the_domain_that_fits_best() -> None:
    """It gets the smallest domain that holds it, of the nearest possible kind: larger domains stay whole for other gangs."""
    where = DomainMap(cluster(racks=2, switches=2, nodes=4))
    free = names(0, 1, 4, 5, 6, 7, 8, 9, 10)
    assert arrange(free, gang_shape(nodes=2, pipeline=1), where) == ["n0", "n1"]
    assert arrange(free, gang_shape(nodes=3, pipeline=1), where) == ["n8", "n9", "n10"]
    assert arrange(free, gang_shape(nodes=4, pipeline=1), where) == ["n4", "n5", "n6", "n7"]
    assert arrange(free, gang_shape(nodes=5, pipeline=1), where) == ["n4", "n5", "n6", "n7", "n0"]


def test_each_pipeline_gets_a_switch_of_its_own() -> None:
    """4 stages of 2 nodes: in the order of names each pipeline would cross switches; the allocation avoids that."""
    where = DomainMap(cluster(racks=1, switches=2, nodes=4))
    shape = gang_shape(nodes=8, pipeline=4)
    chosen = arrange(names(*range(8)), shape, where)
    assert chosen == ["n0", "n4", "n1", "n5", "n2", "n6", "n3", "n7"]
    assert arrangement_cost(chosen, shape, where)[0] == 0
    assert arrangement_cost(names(*range(8)), shape, where)[0] > 0


def test_pipelines_use_what_whole_switches_leave() -> None:
    """Three pipelines of 2 on switches with 3, 3 and 2 free nodes: two of 3 keep one over, and no pipeline is cut."""
    where = DomainMap(cluster(racks=1, switches=3, nodes=3))
    shape = gang_shape(nodes=6, pipeline=2)
    chosen = arrange(names(0, 1, 2, 3, 4, 5, 6, 7), shape, where)
    assert arrangement_cost(chosen, shape, where)[0] == 0


def test_the_nearest_spare_takes_a_vacant_place() -> None:
    """The spare nearest to the stages before and after wins, not the first by number; the other nodes stay."""
    where = DomainMap(cluster(racks=2, switches=2, nodes=3))
    shape = gang_shape(nodes=4, pipeline=2)
    places = ["n0", "n6", None, "n7"]
    assert fill(places, names(9, 8, 2, 3), shape, where) == ["n0", "n6", "n2", "n7"]
    places = ["n0", "n6", "n1", None]
    assert fill(places, names(9, 2, 3, 8), shape, where) == ["n0", "n6", "n1", "n8"]


def test_without_domains_nodes_keep_their_order() -> None:
    """Distances are unknown, so the order does not change."""
    where = DomainMap({})
    assert arrange(names(3, 1, 2), gang_shape(nodes=2, pipeline=2), where) == ["n3", "n1"]
    assert fill([None, "n9"], names(3, 1), gang_shape(nodes=2, pipeline=1), where) == ["n3", "n9"]


def test_too_few_spares_fill_no_place() -> None:
    """A gang is placed whole or not at all."""
    assert fill([None, None, "n1"], ("n2",), gang_shape(nodes=3, pipeline=1), DomainMap({})) is None


@st.composite
def situations(draw: st.DrawFn) -> tuple[Domains, list[str], list[str | None], int]:
    """Domains that may overlap and leave nodes out; spares in some order; places, some held; a pipeline length."""
    count = draw(st.integers(2, 24))
    nodes = list(names(*range(count)))
    seed = random.Random(draw(st.integers(0, 2**32)))
    domains: dict[str, dict[str, tuple[str, ...]]] = {}
    for kind in range(draw(st.integers(0, 3))):
        groups = draw(st.integers(1, 6))
        # Nested like a tree, or arbitrary.
        sort = seed.random() < 0.5
        owner = [
            index * groups // count if sort else seed.randrange(groups) for index in range(count)
        ]
        held = [name for name in nodes if seed.random() < 0.9]
        domains[f"k{kind}"] = {
            f"d{group}": tuple(name for name in held if owner[nodes.index(name)] == group)
            for group in range(groups)
        }
    seed.shuffle(nodes)
    size = draw(st.integers(1, count))
    places: list[str | None] = [
        nodes.pop() if seed.random() < draw(st.sampled_from((0.0, 0.5, 0.9))) else None
        for _ in range(size)
    ]
    return domains, nodes, places, draw(st.sampled_from((1, 1, 2, 3, 4)))


@pytest.mark.costly
@given(situations())
@settings(max_examples=400, deadline=None)
def test_a_placed_node_keeps_its_place_and_spares_in_order_are_never_better(
    situation: tuple[Domains, list[str], list[str | None], int],
) -> None:
    """A filled gang is whole, of different nodes, at a cost no higher than spares in their order; None only if too few."""
    domains, spares, places, pipeline = situation
    where, shape = DomainMap(domains), gang_shape(nodes=len(places), pipeline=pipeline)
    found = fill(places, spares, shape, where)
    if len(spares) < places.count(None):
        assert found is None
        return
    assert found is not None
    assert len(set(found)) == len(found) == len(places)
    kept = [node for node in places if node is not None]
    assert sorted(set(found) - set(kept)) == sorted(set(found) & set(spares))
    assert all(node in (None, found[place]) for place, node in enumerate(places))
    rest = iter(spares)
    in_order = [next(rest) if node is None else node for node in places]
    assert arrangement_cost(found, shape, where) <= arrangement_cost(in_order, shape, where)
    assert found == fill(places, spares, shape, DomainMap(domains))


def test_the_topology_places_two_thousand_nodes() -> None:
    """A gang of 2,000 nodes in pipelines of 8 is placed at no cost, and a rack's worth of vacancies is filled."""
    where = DomainMap(cluster(racks=35, switches=4, nodes=16))
    every = names(*range(35 * 64))
    shape = gang_shape(nodes=2000, pipeline=8)
    chosen = arrange(every, shape, where)
    assert len(set(chosen)) == 2000
    assert arrangement_cost(chosen, shape, where)[0] == 0
    lost = set(names(*range(64)))
    places = [None if node in lost else node for node in chosen]
    spares = [node for node in every if node not in chosen]
    filled = fill(places, spares, shape, where)
    assert filled is not None
    moved = sum(old != new for old, new in zip(chosen, filled, strict=True))
    assert moved == places.count(None)
    alone = fill([None] * 2000, every, gang_shape(nodes=2000, pipeline=1), where)
    assert alone is not None
    assert arrangement_cost(alone, gang_shape(nodes=2000, pipeline=1), where)[0] < 200


def test_tensor_groups_that_span_nodes_are_named() -> None:
    """The result names first and last rank of each; none if the group's size divides the ranks of a node."""
    assert tensor_groups_across_nodes(tensor=2, ranks_per_node=4, world_size=8) == []
    assert tensor_groups_across_nodes(tensor=3, ranks_per_node=4, world_size=12) == [(3, 5), (6, 8)]
    assert tensor_groups_across_nodes(tensor=8, ranks_per_node=4, world_size=16) == [
        (0, 7),
        (8, 15),
    ]
