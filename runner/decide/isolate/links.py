"""A node's link, by its pairs: which of them clear it, and which speak against it.

A rate is the least of both ends' and the path's. So a good pair clears both its nodes, and a bad one speaks against a node only if
the other end is good elsewhere. A good pair offsets bad ones that are as far or farther. It offsets nearer ones that would be too
slow even where it is; a rate in between may be enough for a far path and too slow for a near one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from runner.decide.isolate.edges import Edges
from runner.decide.isolate.fleet import Fleet
from runner.decide.isolate.readings import PairTally, Readings, pair_class

# More bad readings than good ones that blame a node or a path. Where one reading in eighty is bad by noise, three are so once in
# half a million. Chosen; bench/results/isolation.txt measures it.
LEAD = 3
# How far a near rate is below the least of a far pair, so that a good far pair contradicts it: three standard deviations of 5 %
# noise. Chosen, not measured.
CLEAR_RATIO = 0.15

# `suspect`: more readings are needed. `mixed`: likewise, although it has good pairs.
LinkState = Literal["good", "bad", "suspect", "mixed", "untested"]


@dataclass(slots=True)
class Link:
    """A node's pairs, counted by partners."""

    num_good: int = 0
    # The partner of the nearest good pair, and its distance; None: there is none.
    good_with: str | None = None
    good_distance: int | None = None
    num_bad: int = 0
    # Partner -> how often it counts against the node.
    against: dict[str, int] = field(default_factory=dict)
    # Of what speaks against it in its domain of the nearest kind, and out of it.
    num_near_against: int = 0
    num_far_against: int = 0
    # Signs against it that no good pair offsets, and others; edges of domains count once.
    num_signs: int = 0
    num_offset: int = 0
    num_results: int = 0
    # Of them, those that said nothing.
    num_empty: int = 0

    @property
    def state(self) -> LinkState:
        """Return how far the link is judged."""
        if self.num_signs >= LEAD:
            return "bad"
        if self.num_good:
            return "mixed" if self.num_signs or self.num_offset > self.num_good else "good"
        return "suspect" if self.num_bad else "untested"


def link_of(node: str, readings: Readings, *, fleet: Fleet, edges: Edges, most_by_one: int) -> Link:
    """Count a node's pairs. `most_by_one`: how much one partner may count."""
    link, partners = Link(), readings.partners[node]
    for partner, tally in partners.items():
        link.num_results += tally.num_results
        link.num_empty += tally.incomparable + tally.unmeasured
        lead = tally.lead_against(node)
        if tally.is_good:
            link.num_good += min(1 - tally.lead, most_by_one)
            apart = fleet.distance(node, partner)
            if link.good_distance is None or apart < link.good_distance:
                link.good_distance, link.good_with = apart, partner
        elif lead > 0:
            link.num_bad += 1
            if partner in edges.vouched or node in tally.failed_at:
                link.against[partner] = min(lead, most_by_one)
    if link.against:
        link.num_far_against = sum(fleet.crosses(node, partner) for partner in link.against)
        link.num_near_against = len(link.against) - link.num_far_against
        offset = _offset(node, link, partners, readings, fleet)
        left = {each: signs for each, signs in link.against.items() if each not in offset}
        link.num_signs = edges.num_signs(node, left)
        link.num_offset = edges.num_signs(node, offset)
    return link


def _offset(
    node: str, link: Link, partners: Mapping[str, PairTally], readings: Readings, fleet: Fleet
) -> dict[str, int]:
    """Return the partners against a node that its good pairs may offset."""
    if link.good_with is None:
        return {}
    reached = fleet.distance(node, link.good_with)
    limit = readings.limits.get(pair_class(fleet, (node, link.good_with)))
    least = (1 - CLEAR_RATIO) * limit.least if limit is not None else 0.0
    return {
        partner: signs
        for partner, signs in link.against.items()
        if fleet.distance(node, partner) >= reached or partners[partner].least_rate < least
    }
