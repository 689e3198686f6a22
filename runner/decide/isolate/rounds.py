"""The measurements of the next round, by the states of nodes and paths so far."""

from collections.abc import Iterable, Sequence

from runner.decide.isolate.fleet import Pair
from runner.decide.isolate.links import LEAD
from runner.decide.isolate.node_states import (
    MAX_EMPTY,
    MAX_PAIRS,
    MAX_READINGS,
    States,
)
from runner.decide.isolate.pairs import (
    References,
    Wanted,
    match_across,
    match_all,
    match_at,
    match_in_turn,
    match_untried,
)
from runner.facts.messages.isolation import Measure

# Pairs of a node without any reference; then no node can be blamed. Chosen, not measured.
MAX_WITHOUT_REFERENCE = 2
# Pairs of good nodes that make peers at a distance: they have enough even without one of them. Chosen.
PEER_PAIRS = 3


def plan_round(states: States, number: int) -> Measure | None:
    """Return the measurements of round `number`; None if no more would help."""
    fleet = states.fleet
    if number == 0:
        return Measure(round=0, alone=fleet.nodes) if fleet.nodes else None
    alone = tuple(node for node, state in states.compute.items() if state == "suspect")
    if states.readings.pairs:
        pairs = _Pairing(states).pairs()
    else:
        pairs = match_all(fleet, list(states.able))
    if not (alone or pairs) and number <= 1 + fleet.question.more_matchings and states.is_all_good:
        pairs = match_in_turn(fleet, fleet.nodes, states.readings.partners)
    return Measure(round=number, alone=alone, pairs=tuple(pairs)) if alone or pairs else None


class _Pairing:
    """The pairs of one round after the first; each node that is taken is no longer free."""

    def __init__(self, states: States) -> None:
        self._states = states
        self._fleet = states.fleet
        self._partners = states.readings.partners
        self._free = dict(states.able)
        self._in_dark = {node: True for each in states.dark_domains().values() for node in each}
        self._pairs: list[Pair] = []

    def pairs(self) -> list[Pair]:
        """Pair suspects with references, then with each other; then bad paths again; then domains that no pair has left."""
        states = self._states
        subjects = [node for node in states.able if self._needs_pairs(node)]
        references = [node for node in states.able if self._may_refer(node)]
        if not references:
            few = [
                node for node in subjects if states.links[node].num_results < MAX_WITHOUT_REFERENCE
            ]
            self._match_untried(few, self._fleet.distances())
            return self._pairs
        paths = self._open_paths()
        on_paths = {node: True for pair in paths for node in pair}
        self._pair_with_references(
            sorted(subjects, key=dict.fromkeys(references).__contains__),
            References(self._fleet, references, last=on_paths),
        )
        for pair in paths:
            if all(node in self._free for node in pair):
                self._take([pair])
        self._cross_domains()
        return self._pairs

    def _open_paths(self) -> list[Pair]:
        """Return the paths that another measurement may clear or blame; none out of a domain that is cut off as a whole."""
        states, fleet = self._states, self._fleet
        cut_off = states.domains_cut_off()
        return [
            pair
            for pair in states.suspect_paths()
            if states.readings.pairs[pair].lead < LEAD
            and states.readings.pairs[pair].num_results < MAX_READINGS
            and not (
                fleet.crosses(*pair) and any(fleet.nearest_domain(node) in cut_off for node in pair)
            )
        ]

    def _needs_pairs(self, node: str) -> bool:
        link = self._states.links[node]
        is_open = link.state not in ("good", "bad") and not (
            link.num_bad >= LEAD and node in self._in_dark
        )
        return is_open and link.num_results < MAX_PAIRS and link.num_empty < MAX_EMPTY

    def _may_refer(self, node: str) -> bool:
        states = self._states
        is_good = states.is_by_history or states.link_states[node] == "good"
        return node in states.vouched and is_good

    def _take(self, pairs: list[Pair]) -> None:
        for pair in pairs:
            for node in pair:
                del self._free[node]
        self._pairs += pairs

    def _pair_with_references(self, subjects: list[str], pool: References) -> None:
        """Give each subject a reference of its own, if possible at a distance for which there are peers."""
        apart = self._fleet.distances()
        measured = self._calibrated(apart)
        for node in subjects:
            # One that seeks a reference elsewhere waits for the distance to have peers.
            if not self._seeks_elsewhere(node) or len(measured) > 1 or len(apart) == 1:
                self._pair_with_reference(node, pool, measured)
        if any(node in self._free for node in subjects):
            self._calibrate(apart)
        known = self._calibrated(apart)
        for distances in (known, apart):
            for node in subjects:
                self._pair_with_reference(node, pool, distances)
            self._match_untried(subjects, distances)

    def _pair_with_reference(self, node: str, pool: References, distances: Sequence[int]) -> None:
        if node not in self._free:
            return
        wanted = Wanted(
            distances=self._reach(node, distances),
            spent=self._spent(node),
            partners=self._partners[node],
            elsewhere=self._seeks_elsewhere(node),
        )
        reference = pool.find(node, wanted, self._free)
        if reference is not None:
            self._take([self._fleet.pair(node, reference)])

    def _match_untried(self, subjects: Iterable[str], distances: Sequence[int]) -> None:
        """Pair those that found no reference with each other: a good pair clears both."""
        reach = {node: self._reach(node, distances) for node in subjects if node in self._free}
        self._take(match_untried(self._fleet, reach, self._partners))

    def _reach(self, node: str, distances: Sequence[int]) -> Sequence[int]:
        """Return the distances at which a pair says something about a node."""
        link = self._states.links[node]
        if link.state == "mixed" and link.num_signs:
            # What speaks against it is nearer than its good pairs: only a near one can clear it.
            return [each for each in distances if each < (link.good_distance or 0)]
        return distances

    def _seeks_elsewhere(self, node: str) -> bool:
        """Whether the next reference is to be elsewhere, which tells a node from what it shares with its neighbours.

        One elsewhere is enough, and comes after a near one.
        """
        link = self._states.links[node]
        return link.state == "suspect" and link.num_near_against > 0 and not link.num_far_against

    def _spent(self, node: str) -> dict[str, bool]:
        """Return the partners that could say nothing more about a node."""
        most = self._states.most_by_one
        return {
            partner: True
            for partner, tally in self._partners[node].items()
            if not 0 < tally.lead_against(node) < most
        }

    def _peer_pairs(self, distance: int) -> int:
        """Return how many pairs of good nodes at a distance are measured, or are in this round."""
        states, fleet = self._states, self._fleet
        pairs = dict.fromkeys((*states.readings.pairs, *self._pairs))
        return sum(
            fleet.distance(*pair) == distance and all(states.is_good(node) for node in pair)
            for pair in pairs
        )

    def _calibrated(self, apart: Sequence[int]) -> Sequence[int]:
        """Return the distances at which a pair has peers: the nearest, and others with enough pairs of good nodes."""
        enough = [each for each in apart[1:] if self._peer_pairs(each) >= PEER_PAIRS]
        return (*apart[:1], *enough)

    def _calibrate(self, apart: Sequence[int]) -> None:
        """Measure pairs of good nodes at distances at which pairs lack peers."""
        for distance in apart[1:]:
            good = [node for node in self._free if self._states.is_good(node)]
            most = PEER_PAIRS - self._peer_pairs(distance)
            self._take(match_at(self._fleet, good, self._partners, distance=distance, most=most))

    def _cross_domains(self) -> None:
        """Pair good nodes of domains that no good pair leaves with nodes of two others: then it shows which one is bad."""
        states, fleet = self._states, self._fleet
        beyond = states.domains_beyond()
        tallies = states.readings.pairs
        left = {
            name: True
            for name, others in beyond.items()
            if len(others) > 1
            or any(tallies[pair].is_good for pairs in others.values() for pair in pairs)
        }
        left |= {
            fleet.nearest_domain(node): True
            for pair in self._pairs
            if fleet.crosses(*pair) and all(states.is_good(node) for node in pair)
            for node in pair
        }
        good = [node for node in self._free if states.is_good(node)]
        inside = [node for node in good if fleet.nearest_domain(node) not in left]
        others = [node for node in good if fleet.nearest_domain(node) in left]
        tried = {(a, b): len(pairs) for a, each in beyond.items() for b, pairs in each.items()}
        if fleet.distances() != (0,):
            self._take(match_across(fleet, inside, others, tried))
