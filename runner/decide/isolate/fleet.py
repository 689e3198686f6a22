"""The nodes of a question: their order, domains and hardware classes."""

from collections import Counter

from runner.decide.placement.topology import DomainMap, distance
from runner.facts.messages.isolation import Floor, Question

Pair = tuple[str, str]
NO_FLOOR = Floor()


class Fleet:
    """Nodes that take part, in the order of the question: those to be judged, and those that history vouches for."""

    def __init__(self, question: Question) -> None:
        self.question = question
        self.index = {
            node: index
            for index, node in enumerate(dict.fromkeys((*question.nodes, *question.known_good)))
        }
        self.nodes = tuple(self.index)
        self.domains = DomainMap(question.domains)
        self.positions = {node: self.domains.position(node) for node in self.nodes}
        self.classes = {node: question.hardware_classes.get(node, "") for node in self.nodes}
        self._nearest = {
            node: f"in {position[0]}" if position and position[0] else f"alone {node}"
            for node, position in self.positions.items()
        }
        # Nodes in the same domains have one place; distances are between places.
        places = {
            position: place for place, position in enumerate(dict.fromkeys(self.positions.values()))
        }
        self._at = list(places)
        self._place = {node: places[position] for node, position in self.positions.items()}
        self._rows: dict[int, list[int]] = {}

    def pair(self, a: str, b: str) -> Pair:
        """Return two nodes in the order of the question: the name of their pair."""
        return (a, b) if self.index[a] < self.index[b] else (b, a)

    def distance(self, a: str, b: str) -> int:
        """Return 0 for nodes that share a domain of the nearest kind, 1 for the next..."""
        return self._row(self._place[a])[self._place[b]]

    def _row(self, place: int) -> list[int]:
        row = self._rows.get(place)
        if row is None:
            row = [distance(self._at[place], other) for other in self._at]
            self._rows[place] = row
        return row

    def distances(self) -> tuple[int, ...]:
        """Return the distances that occur between nodes, the nearest first."""
        num_at = Counter(self._place.values())
        apart = {
            away: True
            for place in num_at
            for other, away in enumerate(self._row(place))
            if other != place or num_at[place] > 1
        }
        return tuple(sorted(apart))

    def crosses(self, a: str, b: str) -> bool:
        """Whether two nodes have different domains of the nearest kind."""
        return self.distance(a, b) > 0

    def nearest_domain(self, node: str) -> str:
        """Return a name for a node's domain of the nearest kind; for the node alone where it has none."""
        return self._nearest[node]

    def floor(self, node: str) -> Floor:
        """Return the floor of a node's hardware class."""
        return self.question.floors.get(self.classes[node], NO_FLOOR)

    def pair_floor(self, pair: Pair) -> float | None:
        """Return the lower floor of two nodes' classes; None if one has none."""
        floors = [self.floor(node).pair for node in pair]
        known = [floor for floor in floors if floor is not None]
        return min(known) if len(known) == len(floors) else None
