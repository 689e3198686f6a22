"""Topology: distances between nodes, and the arrangement of a gang in which neighbours are near each other.

Pure arithmetic on names; `allocation` decides which nodes may be chosen. Ranks count through the tensor axis fastest, then data,
then pipeline. So if the stages fill whole nodes, node i of a gang holds part of stage i // columns, and neighbouring stages of
one pipeline are `columns` nodes apart: they form a *column*. Otherwise all nodes are one ring.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from runner.facts.specs.run import RunSpec
from runner.facts.wording import join_words

# Chosen, not measured.
MAX_GROUPS_NAMED = 4
# Kind -> name -> nodes, the nearest kind first.
Domains = Mapping[str, Mapping[str, Sequence[str]]]
# A node's domain of each kind, "" where it has none.
Position = tuple[str, ...]
# Distances between pipeline neighbours (or round the ring); round the ring of all nodes.
Cost = tuple[int, int]


class DomainMap:
    """The failure domains of each node."""

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


def distance(a: Position, b: Position) -> int:
    """Return 0 for positions that share a domain of the nearest kind, 1 for the next...; the number of kinds if none."""
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
        """Nodes of a column, or of the ring."""
        return self.nodes // self.columns if self.columns else self.nodes

    def places(self, column: int) -> range:
        """Return the places of a column, or of the ring, neighbours next to each other."""
        return range(column, self.nodes, self.columns or 1)

    def neighbours(self, place: int) -> list[int]:
        """Return the places that exchange most with this one: the stages before and after, or the ring neighbours."""
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


def arrangement_cost(chosen: Sequence[str], shape: Shape, domains: DomainMap) -> Cost:
    """Return the sum of distances between neighbours, each pair once: those that exchange most, and round the ring."""
    positions = [domains.position(node) for node in chosen]

    def total(beside: Iterable[tuple[int, Iterable[int]]]) -> int:
        return sum(
            distance(positions[a], positions[b]) for a, each in beside for b in each if a < b
        )

    near = total((place, shape.neighbours(place)) for place in range(shape.nodes))
    ring = total((place, shape.ring_neighbours(place)) for place in range(shape.nodes))
    return near, ring


def arrange(free: Sequence[str], shape: Shape, domains: DomainMap) -> list[str]:
    """Choose and order nodes for a whole gang out of `free` ones, in order of preference and at least as many.

    Best fit: in the smallest domain that holds the gang, else across as few as possible; each column likewise inside that. Never
    at a higher cost than the first of `free` in their order.
    """
    plain = list(free[: shape.nodes])
    if not domains.num_kinds:
        return plain
    scope = _smallest_scope(free, shape.nodes, domains)
    options = [_packed(scope, shape, domains), _packed(free, shape, domains), plain]
    return min(options, key=lambda chosen: arrangement_cost(chosen, shape, domains))


def _smallest_scope(free: Sequence[str], count: int, domains: DomainMap) -> Sequence[str]:
    """Return the free nodes of the smallest domain that holds `count`, of the nearest kind that has one."""
    for level in range(domains.num_kinds):
        fitting = [group for group in nodes_by_domain(free, level, domains) if len(group) >= count]
        if fitting:
            return min(fitting, key=len)
    return free


def nodes_by_domain(nodes: Sequence[str], level: int, domains: DomainMap) -> list[list[str]]:
    """Group nodes by their domain of one kind, in order of first appearance; one group beyond the last kind.

    A node without a domain of this kind is a group of its own.
    """
    if level >= domains.num_kinds:
        return [list(nodes)]
    groups: dict[str, list[str]] = {}
    for node in nodes:
        name = domains.position(node)[level]
        groups.setdefault(f"in {name}" if name else f"alone {node}", []).append(node)
    return list(groups.values())


def _packed(free: Sequence[str], shape: Shape, domains: DomainMap) -> list[str]:
    """Fill columns from the nearest domains that hold whole ones, then from the rest of wider ones."""
    wanted, length = shape.columns or 1, shape.column_length
    columns: list[list[str]] = []
    left, rank = list(free), {node: index for index, node in enumerate(free)}
    for level in range(domains.num_kinds + 1):
        groups = [
            _side_by_side(group, level, domains) for group in nodes_by_domain(left, level, domains)
        ]
        while len(columns) < wanted:
            group = _best_fit(groups, wanted - len(columns), length)
            if group is None:
                break
            taken = min(len(group) // length, wanted - len(columns)) * length
            columns += [group[start : start + length] for start in range(0, taken, length)]
            del group[:taken]
        left = sorted((node for group in groups for node in group), key=rank.__getitem__)
    return _laid_out(columns, shape, free, domains)


def _best_fit(groups: list[list[str]], wanted: int, length: int) -> list[str] | None:
    """Return the smallest group that holds all columns still wanted, else the largest that holds one; None if none does."""
    fitting = [group for group in groups if len(group) >= length]
    whole = [group for group in fitting if len(group) >= wanted * length]
    return min(whole, key=len) if whole else max(fitting, key=len, default=None)


def _side_by_side(nodes: Sequence[str], level: int, domains: DomainMap) -> list[str]:
    """Order the nodes of one domain so that those of each nearer one are together, the largest first."""
    if level == 0:
        return list(nodes)
    parts = nodes_by_domain(nodes, level - 1, domains)
    parts.sort(key=len, reverse=True)
    return [node for part in parts for node in _side_by_side(part, level - 1, domains)]


def _laid_out(
    columns: list[list[str]], shape: Shape, free: Sequence[str], domains: DomainMap
) -> list[str]:
    """Put columns into their places, near ones next to each other."""
    rank = {node: index for index, node in enumerate(free)}
    # The first rank of each domain.
    first: dict[tuple[int, str], int] = {}
    for column in columns:
        for level, name in enumerate(domains.position(column[0])):
            first[level, name] = min(first.get((level, name), len(rank)), rank[column[0]])

    def key(column: list[str]) -> tuple[int, ...]:
        position = domains.position(column[0])
        widest_first = [first[level, name] for level, name in enumerate(position)][::-1]
        return (*widest_first, rank[column[0]])

    chosen = [""] * shape.nodes
    for number, column in enumerate(sorted(columns, key=key)):
        for place, node in zip(shape.places(number), column, strict=True):
            chosen[place] = node
    return chosen


def fill(
    places: Sequence[str | None], spares: Sequence[str], shape: Shape, domains: DomainMap
) -> list[str] | None:
    """Put spares, in order of preference, into vacant places, each as near to its neighbours as possible; None if too few.

    Filled places stay. Never at a higher cost than taking the spares in their order.
    """
    vacant = [place for place, node in enumerate(places) if node is None]
    if len(spares) < len(vacant):
        return None
    if len(vacant) == len(places):
        return arrange(spares, shape, domains)
    plain = list(places)
    for place, node in zip(vacant, spares, strict=False):
        plain[place] = node
    in_order = [node for node in plain if node is not None]
    if not domains.num_kinds:
        return in_order
    options = [_nearest(places, vacant, spares, shape, domains), in_order]
    return min(options, key=lambda chosen: arrangement_cost(chosen, shape, domains))


def _nearest(
    places: Sequence[str | None],
    vacant: Sequence[int],
    spares: Sequence[str],
    shape: Shape,
    domains: DomainMap,
) -> list[str]:
    """Fill one place after the other. Of spares in the same domains the first is taken."""
    filled: list[Position | None] = [
        None if node is None else domains.position(node) for node in places
    ]
    chosen = list(places)
    spares_at: dict[Position, list[str]] = {}
    for node in reversed(spares):
        spares_at.setdefault(domains.position(node), []).append(node)
    rank = {node: index for index, node in enumerate(spares)}
    for place in vacant:
        neighbourhoods = (
            shape.neighbours(place),
            shape.places(place % shape.columns) if shape.columns else (),
            shape.ring_neighbours(place),
        )
        near = [
            [position for each in neighbourhood if (position := filled[each]) is not None]
            for neighbourhood in neighbourhoods
        ]
        best = min(
            spares_at,
            key=lambda at: (
                *(sum(distance(at, position) for position in each) for each in near),
                rank[spares_at[at][-1]],
            ),
        )
        chosen[place], filled[place] = spares_at[best].pop(), best
        if not spares_at[best]:
            del spares_at[best]
    return [node for node in chosen if node is not None]


def describe_torn_groups(spec: RunSpec) -> str:
    """Describe which tensor-parallel groups do not fit on one node: it works, and slowly. Empty when all do."""
    groups = tensor_groups_across_nodes(spec.tensor, spec.ranks_per_node, spec.world_size)
    if not groups:
        return ""
    named = join_words([f"{first}-{last}" for first, last in groups], most=MAX_GROUPS_NAMED)
    return (
        f"tensor groups span nodes: ranks {named} (tensor {spec.tensor} does not divide {spec.ranks_per_node} ranks "
        "per node, so each step waits for the network between them)"
    )


def tensor_groups_across_nodes(
    tensor: int, ranks_per_node: int, world_size: int
) -> list[tuple[int, int]]:
    """Return the first and last rank of each tensor-parallel group that does not fit on one node."""
    groups = ((first, first + tensor - 1) for first in range(0, world_size, tensor))
    return [
        (first, last) for first, last in groups if first // ranks_per_node != last // ranks_per_node
    ]
