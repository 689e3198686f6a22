"""Which nodes make pairs: all inside their domains, suspects with references, good ones across domains. No node is in two pairs."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from runner.decide.isolate.fleet import Fleet, Pair
from runner.decide.placement.topology import Position, nodes_by_domain


def match_all(fleet: Fleet, nodes: Sequence[str]) -> list[Pair]:
    """Pair all nodes, one stays over if their number is odd: nodes of one class and the nearest domain first."""
    classes: dict[str, list[str]] = {}
    for node in nodes:
        classes.setdefault(fleet.classes[node], []).append(node)
    pairs: list[Pair] = []
    over = [node for each in classes.values() for node in _match_class(fleet, each, pairs)]
    _pair_up(fleet, over, pairs)
    return pairs


def _match_class(fleet: Fleet, nodes: list[str], pairs: list[Pair]) -> list[str]:
    for level in range(fleet.domains.num_kinds + 1):
        over = []
        for group in nodes_by_domain(nodes, level, fleet.domains):
            over += _pair_up(fleet, group, pairs)
        nodes = sorted(over, key=fleet.index.__getitem__)
    return nodes


def _pair_up(fleet: Fleet, nodes: Sequence[str], pairs: list[Pair]) -> list[str]:
    """Pair nodes in their order; return the one that stays over."""
    pairs += [fleet.pair(a, b) for a, b in zip(nodes[::2], nodes[1::2], strict=False)]
    return list(nodes[len(nodes) - len(nodes) % 2 :])


def match_untried(
    fleet: Fleet,
    reach: Mapping[str, Container[int]],
    partners: Mapping[str, Mapping[str, object]],
) -> list[Pair]:
    """Pair each node with the nearest that it was not measured with, as far as they last.

    `reach`: each of the nodes -> distances at which its partner may be.
    """
    free = dict.fromkeys(reach)
    pairs: list[Pair] = []
    while free:
        node = next(iter(free))
        del free[node]
        untried = [
            other
            for other in free
            if other not in partners[node]
            and (apart := fleet.distance(node, other)) in reach[node]
            and apart in reach[other]
        ]
        if untried:
            other = min(untried, key=lambda each: _unlike(fleet, node, each))
            del free[other]
            pairs.append(fleet.pair(node, other))
    return pairs


def match_in_turn(
    fleet: Fleet, nodes: Sequence[str], partners: Mapping[str, Mapping[str, object]]
) -> list[Pair]:
    """Return the untried pairs of a tournament's next round: after all rounds each node has met each other one."""
    ring: list[str | None] = [*nodes, *([None] if len(nodes) % 2 else [])]
    half = len(ring) // 2
    for _ in range(len(ring) - 1):
        # One stays, and the others go round.
        ring = [ring[0], ring[-1], *ring[1:-1]]
        met = zip(ring[:half], reversed(ring[half:]), strict=True)
        pairs = [
            fleet.pair(a, b)
            for a, b in met
            if a is not None and b is not None and b not in partners[a]
        ]
        if pairs:
            return pairs
    return []


def _unlike(fleet: Fleet, node: str, other: str) -> tuple[bool, int, int]:
    is_other_class = fleet.classes[node] != fleet.classes[other]
    return is_other_class, fleet.distance(node, other), fleet.index[other]


class References:
    """Nodes that may serve as references in a round. Who takes one removes it from `free`."""

    def __init__(self, fleet: Fleet, nodes: Sequence[str], *, last: Mapping[str, object]) -> None:
        """Take nodes; those in `last` serve when no other is left."""
        self._fleet = fleet
        self._at: dict[tuple[bool, Position, str], list[str]] = {}
        for node in nodes:
            place = node in last, fleet.positions[node], fleet.classes[node]
            self._at.setdefault(place, []).append(node)

    def find(self, node: str, wanted: "Wanted", free: Mapping[str, object]) -> str | None:
        """Return a free reference for a node; None if there is none.

        Of its class if possible. The nearest, or with `elsewhere` one in a domain in which it has the fewest partners.
        """
        fleet = self._fleet
        num_partners = Counter(fleet.positions[partner] for partner in wanted.partners)
        places = []
        for order, ((is_last, position, hardware_class), nodes) in enumerate(self._at.items()):
            apart = fleet.distance(node, nodes[0])
            if apart in wanted.distances:
                tried = num_partners[position]
                key = (tried, apart) if wanted.elsewhere else (apart, tried)
                places.append((is_last, hardware_class != fleet.classes[node], key, order, nodes))
        for *_, nodes in sorted(places):
            for reference in nodes:
                if reference in free and reference != node and reference not in wanted.spent:
                    return reference
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What reference a node wants: at which distances, none that is spent, and elsewhere than its partners if possible."""

    distances: Container[int]
    spent: Container[str]
    partners: Iterable[str]
    elsewhere: bool


def match_at(
    fleet: Fleet,
    nodes: Iterable[str],
    partners: Mapping[str, Mapping[str, object]],
    *,
    distance: int,
    most: int,
) -> list[Pair]:
    """Make up to so many pairs of nodes of one class at a distance that were not measured with each other."""
    groups = _by_nearest(fleet, nodes).values()
    # One of each domain, then the next of each: else all pairs lie between the first two.
    free = [node for turn in zip_longest(*groups) for node in turn if node is not None]
    pairs: list[Pair] = []
    while free and len(pairs) < most:
        node = free.pop(0)
        other = next(
            (
                each
                for each in free
                if fleet.distance(node, each) == distance
                and each not in partners[node]
                and fleet.classes[node] == fleet.classes[each]
            ),
            None,
        )
        if other is not None:
            free.remove(other)
            pairs.append(fleet.pair(node, other))
    return pairs


def match_across(
    fleet: Fleet,
    nodes: Iterable[str],
    others: Iterable[str],
    tried: Mapping[tuple[str, str], int],
) -> list[Pair]:
    """Pair nodes with nodes of other domains of the nearest kind, and between as many different domains as possible.

    Those that find no partner among `nodes` get one of `others`. `tried`: how many pairs were measured between two domains.
    """
    groups = _by_nearest(fleet, nodes)
    more = _by_nearest(fleet, others)
    between = dict(tried)
    pairs: list[Pair] = []
    while groups:
        name = max(groups, key=lambda each: len(groups[each]))
        node = _pop(groups, name)
        choices = [each for each in groups if each != name and (name, each) not in tried]
        pool = groups
        if not choices:
            choices, pool = [each for each in more if each != name], more
        if not choices:
            continue
        other = min(choices, key=lambda each: (between.get((name, each), 0), -len(pool[each])))
        between[name, other] = between[other, name] = between.get((name, other), 0) + 1
        pairs.append(fleet.pair(node, _pop(pool, other)))
    return pairs


def _by_nearest(fleet: Fleet, nodes: Iterable[str]) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for node in nodes:
        groups.setdefault(fleet.nearest_domain(node), []).append(node)
    return groups


def _pop(groups: dict[str, list[str]], name: str) -> str:
    node = groups[name].pop(0)
    if not groups[name]:
        del groups[name]
    return node
