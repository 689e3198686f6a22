"""How far each node and path is judged by the readings so far: good, bad, or what it still needs."""

from typing import Literal

from runner.decide.isolate.edges import Edges
from runner.decide.isolate.fleet import Fleet, Pair
from runner.decide.isolate.links import LEAD, link_of
from runner.decide.isolate.readings import AloneTally, Readings

# Readings of a node alone, or of one pair, and of a node in pairs; then it stays undecided. Chosen, not measured.
MAX_READINGS = 7
MAX_PAIRS = 8
# Measurements without a value, or without peers, after which no more are asked for. Chosen, not measured.
MAX_EMPTY = 3

# Nodes of a domain without any good pair, from which on the domain is suspected and none of its nodes. Chosen, not measured.
MIN_DOMAIN_NODES = 3

# `suspect`: more readings are needed. `incomparable`: more would not help.
ComputeState = Literal["good", "bad", "suspect", "incomparable", "undecided"]


def compute_state(tally: AloneTally) -> ComputeState:
    """Return how far a node is judged by its results alone. A wrong result is no noise: one is enough."""
    if tally.wrong or tally.lead >= LEAD:
        return "bad"
    if tally.good and tally.lead <= 0:
        return "good"
    if tally.num_results >= MAX_READINGS or (tally.unmeasured >= MAX_EMPTY and not tally.bad):
        return "undecided"
    return "incomparable" if tally.incomparable and not tally.bad else "suspect"


class States:
    """States of all nodes and paths, of one set of readings."""

    def __init__(self, fleet: Fleet, readings: Readings) -> None:
        self.fleet = fleet
        self.readings = readings
        self.compute = {node: compute_state(readings.alone[node]) for node in fleet.nodes}
        # Those that may be measured in pairs.
        self.able = {
            node: True for node, state in self.compute.items() if state in ("good", "incomparable")
        }
        good_pairs = [pair for pair, tally in readings.pairs.items() if tally.is_good]
        # Without a good pair, references are those that history vouches for.
        self.is_by_history = not good_pairs
        self.vouched = dict.fromkeys(node for pair in good_pairs for node in pair)
        if self.is_by_history:
            self.vouched = self._known_good()
        edges = Edges(fleet, vouched=self.vouched, good_pairs=good_pairs)
        # With fewer than three partners in all, each counts more than once.
        self.most_by_one = -(-LEAD // max(1, min(LEAD, len(self.able) - 1)))
        self.links = {
            node: link_of(
                node,
                readings,
                fleet=fleet,
                edges=edges,
                most_by_one=self.most_by_one,
            )
            for node in fleet.nodes
        }
        self.link_states = {node: link.state for node, link in self.links.items()}

    def _known_good(self) -> dict[str, None]:
        """Return the nodes that history vouches for, and that are not bad with each other."""
        known = dict.fromkeys(self.fleet.question.known_good)
        at_odds = {
            node: True
            for pair, tally in self.readings.pairs.items()
            if tally.lead > 0 and all(each in known for each in pair)
            for node in pair
        }
        return dict.fromkeys(node for node in known if node not in at_odds)

    def is_good(self, node: str) -> bool:
        """Whether a node is good alone and in pairs, as far as it can be compared."""
        return node in self.able and self.link_states[node] == "good"

    @property
    def is_all_good(self) -> bool:
        """Whether nothing bad was found."""
        return all(map(self.is_good, self.fleet.nodes)) and not self.suspect_paths()

    def suspect_paths(self) -> list[Pair]:
        """Return pairs that are bad although both ends have good pairs."""
        states = self.link_states
        return [
            pair
            for pair, tally in self.readings.pairs.items()
            if tally.lead > 0 and all(states[node] in ("good", "mixed") for node in pair)
        ]

    def dark_domains(self) -> dict[tuple[str, str], list[str]]:
        """Return the domains (kind, name) without any good pair, and their nodes, if others have good pairs.

        What is wrong with all nodes of a domain is not told apart from the domain.
        """
        found: dict[tuple[str, str], list[str]] = {}
        if self.is_by_history:
            return found
        for kind, names in self.fleet.question.domains.items():
            for name, members in names.items():
                nodes = [node for node in members if node in self.able]
                is_dark = all(self.link_states[node] in ("suspect", "bad") for node in nodes)
                if is_dark and MIN_DOMAIN_NODES <= len(nodes) < len(self.able):
                    found[kind, name] = nodes
        return found

    def is_bad_path(self, pair: Pair) -> bool:
        """Whether a path is to blame for a pair."""
        is_bad = self.readings.pairs[pair].lead >= LEAD
        return is_bad and all(self.link_states[node] == "good" for node in pair)

    def domains_beyond(self) -> dict[str, dict[str, list[Pair]]]:
        """Return, by domain of the nearest kind and other domain, the measured pairs of good nodes across their edge."""
        fleet = self.fleet
        beyond: dict[str, dict[str, list[Pair]]] = {}
        for pair in self.readings.pairs:
            if fleet.crosses(*pair) and all(self.is_good(node) for node in pair):
                a, b = (fleet.nearest_domain(node) for node in pair)
                beyond.setdefault(a, {}).setdefault(b, []).append(pair)
                beyond.setdefault(b, {}).setdefault(a, []).append(pair)
        return beyond

    def domains_cut_off(self) -> dict[str, int]:
        """Return the domains of the nearest kind from which only bad paths lead to two or more others, and how many do."""
        found = {}
        for name, others in self.domains_beyond().items():
            pairs = [pair for each in others.values() for pair in each]
            num_bad = sum(self.is_bad_path(pair) for pair in pairs)
            has_good = any(self.readings.pairs[pair].is_good for pair in pairs)
            bad_to = [
                other for other, each in others.items() if any(self.is_bad_path(p) for p in each)
            ]
            if len(bad_to) > 1 and not has_good:
                found[name] = num_bad
        return found
