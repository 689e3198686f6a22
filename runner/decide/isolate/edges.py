"""Edges of domains: bad pairs across an edge that no good pair crosses may all have the edge to blame, so they count once."""

from collections import Counter
from collections.abc import Iterable, Mapping

from runner.decide.isolate.fleet import Fleet, Pair

# A kind's level and the name of a domain of it.
Domain = tuple[int, str]


class Edges:
    """Which domains a good pair leaves, and between which of the nearest kind one lies."""

    def __init__(
        self,
        fleet: Fleet,
        *,
        vouched: Mapping[str, object],
        good_pairs: Iterable[Pair],
    ) -> None:
        self._fleet = fleet
        # Nodes with a good pair, or those that history knows: a bad pair with one speaks against the other end.
        self.vouched = vouched
        self._num_nodes = Counter(
            domain for node in fleet.nodes for domain in enumerate(fleet.positions[node])
        )
        self._is_left: dict[Domain, bool] = {}
        self._is_crossed: dict[Pair, bool] = {}
        for pair in good_pairs:
            for node in pair:
                for level in range(fleet.distance(*pair)):
                    self._is_left[level, fleet.positions[node][level]] = True
            if fleet.crosses(*pair):
                self._is_crossed[self._between(*pair)] = True

    def num_signs(self, node: str, against: Mapping[str, int]) -> int:
        """Return how many signs against a node there are, by partner, if those across an edge that nothing good crosses are one."""
        fleet = self._fleet
        by_distance = [0] * (fleet.domains.num_kinds + 1)
        once: dict[Pair, bool] = {}
        for partner, signs in against.items():
            between = self._between(node, partner)
            if fleet.crosses(node, partner) and between not in self._is_crossed:
                signs = 0 if between in once else 1
                once[between] = True
            by_distance[fleet.distance(node, partner)] += signs
        num = 0
        for level in reversed(range(fleet.domains.num_kinds)):
            num += by_distance[level + 1]
            if self._is_closed(node, level):
                num = min(num, 1)
        return num + by_distance[0]

    def _is_closed(self, node: str, level: int) -> bool:
        """Whether no good pair leaves a node's domain, which has other nodes, too."""
        domain = level, self._fleet.positions[node][level]
        return bool(domain[1]) and domain not in self._is_left and self._num_nodes[domain] > 1

    def _between(self, a: str, b: str) -> Pair:
        first, second = self._fleet.nearest_domain(a), self._fleet.nearest_domain(b)
        return (first, second) if first < second else (second, first)
