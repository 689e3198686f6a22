"""The wait-for graph of ranks, from their places in process groups. Pure.

A rank waits for another in three ways: the other has not begun the collective (`behind`), posted no counterpart of a send or
receive (`behind`, too), or begun it but is still in an earlier one (`busy`). A rank without a record is `unknown` to those that
wait for it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from runner.facts.messages.rank_stacks import MAX_COLLECTIVES, Collective
from runner.rootcause.flight.rank_spans import ranks_in

Kind = Literal["behind", "busy", "unknown"]
Places = Mapping[int, Sequence[Collective]]

# torch's group of all ranks, where a record does not list ranks.
WORLD = "0 default_pg"


@dataclass(frozen=True, slots=True)
class Wait:
    """One rank waits for another; `place` is that of the first."""

    rank: int
    awaited: int
    kind: Kind
    place: Collective


@dataclass(slots=True)
class WaitGraph:
    """Ranks, what they wait in, and for which other ranks."""

    places: Places
    # Ranks of the gang; 0: not known.
    num_ranks: int = 0
    # Group -> rank -> its place; collectives only.
    groups: dict[str, dict[int, Collective]] = field(init=False)
    members: dict[str, tuple[int, ...]] = field(init=False)
    edges: list[Wait] = field(init=False)

    def __post_init__(self) -> None:
        self.groups = _by_group(self.places)
        self.members = {name: self._members_of(name) for name in self.groups}
        self.edges = [wait for rank in self.places for wait in _ordered(self._edges_of(rank))]

    @property
    def waiting(self) -> list[int]:
        """Return the ranks that wait in something."""
        return [rank for rank, places in self.places.items() if any(p.waits_at for p in places)]

    @property
    def missing(self) -> list[int]:
        """Return the ranks without a record."""
        return [rank for rank in range(self.num_ranks) if rank not in self.places]

    def pending(self, rank: int) -> list[Collective]:
        """Return the places in which a rank waits, in the order in which it began them."""
        return [place for place in self.places.get(rank, ()) if place.waits_at]

    def awaited_by(self) -> dict[int, list[Wait]]:
        """Return for each rank the waits of others for it."""
        found: dict[int, list[Wait]] = {}
        for wait in self.edges:
            found.setdefault(wait.awaited, []).append(wait)
        return found

    def reaching(self, targets: Sequence[int]) -> list[int]:
        """Return the ranks that wait for any of `targets`, directly or through others."""
        incoming = self.awaited_by()
        reached, left = dict.fromkeys(targets), list(targets)
        while left:
            for wait in incoming.get(left.pop(), ()):
                if wait.rank not in reached:
                    reached[wait.rank] = None
                    left.append(wait.rank)
        return [rank for rank in self.places if rank in reached and rank not in targets]

    def is_member_known(self, group: str) -> bool:
        """Whether all ranks of a group are known, and not only those that recorded it."""
        is_listed = any(place.members for place in self.groups[group].values())
        return is_listed or (group == WORLD and self.num_ranks > 0)

    def _members_of(self, group: str) -> tuple[int, ...]:
        own = self.groups[group]
        listed = next((place.members for place in own.values() if place.members), "")
        ranks = ranks_in(listed)
        if not ranks and group == WORLD:
            ranks = tuple(range(self.num_ranks))
        return ranks or tuple(sorted(own))

    def _edges_of(self, rank: int) -> Iterator[Wait]:
        pending = self.pending(rank)
        for place in pending:
            if place.is_between_peers:
                yield from self._edges_to_peer(rank, place)
            elif place.group in self.groups:
                edges = list(self._edges_to_members(rank, place))
                yield from edges
                if not edges and place is pending[0] and not self.is_member_known(place.group):
                    # Another rank of the group may be among those without a record.
                    yield from (Wait(rank, other, "unknown", place) for other in self.missing)

    def _edges_to_members(self, rank: int, place: Collective) -> Iterator[Wait]:
        for other in self.members[place.group]:
            kind = self._kind(place, other) if other != rank else None
            if kind is not None:
                yield Wait(rank, other, kind, place)

    def _kind(self, place: Collective, other: int) -> Kind | None:
        """Return how a rank that is in `place` waits for another of the group; None: it does not."""
        if other not in self.places:
            return "unknown"
        its = self.groups[place.group].get(other)
        if its is None:
            # Its list may have been cut.
            is_cut = len(self.places[other]) >= MAX_COLLECTIVES
            return "unknown" if is_cut else "behind"
        if its.sequence < place.waits_at:
            return "behind"
        if not its.waits_at or its.waits_at > place.waits_at:
            return None
        if its.waits_at < place.waits_at:
            return "busy"
        return None if self.pending(other)[0] is its else "busy"

    def _edges_to_peer(self, rank: int, place: Collective) -> Iterator[Wait]:
        if place.peer < 0:
            return
        if place.peer not in self.places:
            yield Wait(rank, place.peer, "unknown", place)
            return
        theirs = self.pending(place.peer)
        counterparts = [
            each
            for each in theirs
            if each.peer == rank and each.group == place.group and each.operation != place.operation
        ]
        if not counterparts:
            yield Wait(rank, place.peer, "behind", place)
        elif theirs[0] not in counterparts:
            yield Wait(rank, place.peer, "busy", place)


def _by_group(places: Places) -> dict[str, dict[int, Collective]]:
    """Return the places of collectives by group. A counter that may be of sends and receives is left out."""
    between_peers = {
        place.group: None for own in places.values() for place in own if place.is_between_peers
    }
    found: dict[str, dict[int, Collective]] = {}
    for rank, own in places.items():
        for place in own:
            is_ambiguous = not place.operation and place.group in between_peers
            if not place.is_between_peers and not is_ambiguous:
                found.setdefault(place.group, {})[rank] = place
    return found


def _ordered(edges: Iterator[Wait]) -> list[Wait]:
    """Return one wait for each awaited rank: the strongest, then the first."""
    strength = {"behind": 0, "unknown": 1, "busy": 2}
    best: dict[int, Wait] = {}
    for wait in edges:
        known = best.get(wait.awaited)
        if known is None or strength[wait.kind] < strength[known.kind]:
            best[wait.awaited] = wait
    return list(best.values())
