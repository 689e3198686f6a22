"""Nearness: which nodes stand close to each other, and an arrangement of a gang in which neighbours do.

Pure arithmetic on names: who may be chosen at all is `choice`'s business. Ranks count through the tensor axis fastest, then data,
then pipeline. So if the stages fill whole nodes, node i of a gang holds part of stage i // columns, and neighbouring stages of
one pipeline are `columns` nodes apart: such a *column* belongs together. Otherwise all nodes are one ring.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

# kind -> name -> nodes, the nearest kind first
Domains = Mapping[str, Mapping[str, Sequence[str]]]
# a node's domain of each kind, "" where it has none
Position = tuple[str, ...]
Cost = tuple[
    int, int
    # between pipeline neighbours (or round the ring); round the ring of all nodes
]


class Map:
    """Where nodes stand."""

    def __init__(self, domains: Domains) -> None:
        self.num_kinds = len(domains)
        positions: dict[str, list[str]] = {}
        for level, names in enumerate(domains.values()):
            for name, nodes in names.items():
                for node in nodes:
                    positions.setdefault(node, [""] * self.num_kinds)[level] = name
        self._positions = {node: tuple(names) for node, names in positions.items()}
        self._nowhere = ("",) * self.num_kinds

    def position(self, node: str) -> Position:
        """Return the node's domain of each kind."""
        return self._positions.get(node, self._nowhere)

    def distance(self, a: str, b: str) -> int:
        """Return 0 for nodes that share a domain of the nearest kind, 1 for the next, and so on; most if they share none."""
        return apart(self.position(a), self.position(b))


def apart(a: Position, b: Position) -> int:
    """Return the index of the nearest kind of which both have the same domain; the number of kinds if of none."""
    for level, name in enumerate(a):
        if name and name == b[level]:
            return level
    return len(a)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How many nodes a gang has, and how many columns they make; 0 columns: they are one ring."""

    nodes: int
    columns: int = 0

    @property
    def column_length(self) -> int:
        """Nodes that belong together most."""
        return self.nodes // self.columns if self.columns else self.nodes

    def places(self, column: int) -> range:
        """Return the places of a column, or of the ring, neighbours next to each other."""
        return range(column, self.nodes, self.columns or 1)

    def neighbours(self, place: int) -> list[int]:
        """Return the places that exchange most with this one: the stages before and after, or the next on the ring."""
        if self.columns:
            beside = (place - self.columns, place + self.columns)
            return [each for each in beside if 0 <= each < self.nodes]
        return self.ring_neighbours(place)

    def ring_neighbours(self, place: int) -> list[int]:
        """Return the places before and after this one, round the ring of all nodes."""
        around = ((place - 1) % self.nodes, (place + 1) % self.nodes)
        return [each for each in dict.fromkeys(around) if each != place]


def gang_shape(nodes: int, pipeline: int) -> Shape:
    """Return the shape of a gang: columns if each stage fills whole nodes, else a ring."""
    divides = pipeline > 1 and nodes % pipeline == 0
    return Shape(nodes=nodes, columns=nodes // pipeline if divides else 0)


def arrangement_cost(chosen: Sequence[str], shape: Shape, where: Map) -> Cost:
    """Add up distances between neighbours, every pair once: first those that matter most, then round the ring of all."""
    positions = [where.position(node) for node in chosen]

    def total(beside: Iterable[tuple[int, Iterable[int]]]) -> int:
        return sum(apart(positions[a], positions[b]) for a, each in beside for b in each if a < b)

    near = total((place, shape.neighbours(place)) for place in range(shape.nodes))
    ring = total((place, shape.ring_neighbours(place)) for place in range(shape.nodes))
    return near, ring


# ---- a first arrangement --------------------------------------------------------------------------------------------


def arrange(free: Sequence[str], shape: Shape, where: Map) -> list[str]:
    """Choose and order nodes for a whole gang out of `free` ones, which are at least as many and in order of preference.

    Best fit: in the smallest domain that holds the gang, else across as few as can be; each column likewise inside that. Never
    at a higher cost than the first of `free` in their order.
    """
    plain = list(free[: shape.nodes])
    if not where.num_kinds:
        return plain
    scope = _smallest_scope(free, shape.nodes, where)
    options = [_packed(scope, shape, where), _packed(free, shape, where), plain]
    # the first of equals
    return min(options, key=lambda chosen: arrangement_cost(chosen, shape, where))


def _smallest_scope(free: Sequence[str], count: int, where: Map) -> Sequence[str]:
    """Return the free nodes of the domain that holds so many with the fewest to spare, of the nearest kind that has one."""
    for level in range(where.num_kinds):
        fitting = [group for group in _groups(free, level, where) if len(group) >= count]
        if fitting:
            return min(fitting, key=len)
    return free


def _groups(nodes: Sequence[str], level: int, where: Map) -> list[list[str]]:
    """Part nodes by their domain of one kind, in the order in which these first come; all of them beyond the last kind.

    One that has no domain of this kind is a group of its own.
    """
    if level >= where.num_kinds:
        return [list(nodes)]
    groups: dict[str, list[str]] = {}
    for node in nodes:
        name = where.position(node)[level]
        groups.setdefault(f"in {name}" if name else f"alone {node}", []).append(node)
    return list(groups.values())


def _packed(free: Sequence[str], shape: Shape, where: Map) -> list[str]:
    """Fill columns from the nearest domains that hold whole ones, then from what wider ones have left."""
    wanted, length = shape.columns or 1, shape.column_length
    columns: list[list[str]] = []
    left = list(free)
    for level in range(where.num_kinds + 1):
        groups = [_side_by_side(group, level, where) for group in _groups(left, level, where)]
        while len(columns) < wanted:
            group = _best_fit(groups, wanted - len(columns), length)
            if group is None:
                break
            taken = min(len(group) // length, wanted - len(columns)) * length
            columns += [group[start : start + length] for start in range(0, taken, length)]
            del group[:taken]
        left = _in_order_of(free, [node for group in groups for node in group])
    return _laid_out(columns, shape, free, where)


def _best_fit(groups: list[list[str]], wanted: int, length: int) -> list[str] | None:
    """Return the smallest group that holds all columns still wanted, else the largest that holds one; None if none does."""
    fitting = [group for group in groups if len(group) >= length]
    whole = [group for group in fitting if len(group) >= wanted * length]
    return min(whole, key=len) if whole else max(fitting, key=len, default=None)


def _side_by_side(nodes: Sequence[str], level: int, where: Map) -> list[str]:
    """Order the nodes of one domain so that those of each nearer one are together, the largest first: few cuts."""
    if level == 0:
        return list(nodes)
    parts = _groups(nodes, level - 1, where)
    parts.sort(key=len, reverse=True)
    return [node for part in parts for node in _side_by_side(part, level - 1, where)]


def _in_order_of(order: Sequence[str], nodes: Sequence[str]) -> list[str]:
    rank = {node: index for index, node in enumerate(order)}
    return sorted(nodes, key=rank.__getitem__)


def _laid_out(columns: list[list[str]], shape: Shape, free: Sequence[str], where: Map) -> list[str]:
    """Put columns into their places, near ones beside each other."""
    rank = {node: index for index, node in enumerate(free)}
    # where each domain comes first
    first: dict[tuple[int, str], int] = {}
    for column in columns:
        for level, name in enumerate(where.position(column[0])):
            first[level, name] = min(first.get((level, name), len(rank)), rank[column[0]])

    def key(column: list[str]) -> tuple[int, ...]:
        position = where.position(column[0])
        widest_first = [first[level, name] for level, name in enumerate(position)][::-1]
        return (*widest_first, rank[column[0]])

    chosen = [""] * shape.nodes
    for number, column in enumerate(sorted(columns, key=key)):
        for place, node in zip(shape.places(number), column, strict=True):
            chosen[place] = node
    return chosen


# ---- vacant places --------------------------------------------------------------------------------------------------


def fill(
    places: Sequence[str | None], spares: Sequence[str], shape: Shape, where: Map
) -> list[str] | None:
    """Put spares, in order of preference, into vacant places, each as near to its neighbours as can be; None if too few.

    Who has a place keeps it. Never at a higher cost than taking the spares in their order.
    """
    vacant = [place for place, node in enumerate(places) if node is None]
    if len(spares) < len(vacant):
        return None
    if len(vacant) == len(places):
        return arrange(spares, shape, where)
    plain = list(places)
    for place, node in zip(vacant, spares, strict=False):
        plain[place] = node
    in_order = [node for node in plain if node is not None]
    if not where.num_kinds:
        return in_order
    options = [_nearest(places, vacant, spares, shape, where), in_order]
    return min(options, key=lambda chosen: arrangement_cost(chosen, shape, where))


def _nearest(
    places: Sequence[str | None],
    vacant: Sequence[int],
    spares: Sequence[str],
    shape: Shape,
    where: Map,
) -> list[str]:
    """Fill one place after the other. Spares that stand in the same domains are as good as each other: the first goes."""
    filled: list[Position | None] = [
        None if node is None else where.position(node) for node in places
    ]
    chosen = list(places)
    shelves: dict[Position, list[str]] = {}
    for node in reversed(spares):
        shelves.setdefault(where.position(node), []).append(node)
    rank = {node: index for index, node in enumerate(spares)}
    for place in vacant:
        circles = (
            shape.neighbours(place),
            shape.places(place % shape.columns) if shape.columns else (),
            shape.ring_neighbours(place),
        )
        near = [
            [position for each in circle if (position := filled[each]) is not None]
            for circle in circles
        ]
        best = min(
            shelves,
            key=lambda shelf: (
                *(sum(apart(shelf, position) for position in each) for each in near),
                rank[shelves[shelf][-1]],
            ),
        )
        chosen[place], filled[place] = shelves[best].pop(), best
        if not shelves[best]:
            del shelves[best]
    return [node for node in chosen if node is not None]


# ---- tensor groups --------------------------------------------------------------------------------------------------


def tensor_groups_across_nodes(
    tensor: int, ranks_per_node: int, world_size: int
) -> list[tuple[int, int]]:
    """Return the first and last rank of each tensor-parallel group that does not fit on one node."""
    groups = ((first, first + tensor - 1) for first in range(0, world_size, tensor))
    return [
        (first, last) for first, last in groups if first // ranks_per_node != last // ranks_per_node
    ]
