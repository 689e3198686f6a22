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

WaitKind = Literal["behind", "busy", "unknown"]
# What a group is for, and how many ranks it has.
Kind = tuple[str, int]
Places = Mapping[int, Sequence[Collective]]

# torch's group of all ranks, where a record does not list ranks.
WORLD = "0 default_pg"
# Places in which a rank waits that are followed: Megatron-LM's have ten. Chosen.
MAX_OPEN = 16
# Waits of one kind that a place has, all waits, and ranks of all groups that are followed. Chosen for gangs of 16,000 ranks.
MIN_AWAITED, MAX_AWAITED, MAX_EDGES, MAX_MEMBERS = 16, 256, 250_000, 1_000_000


@dataclass(frozen=True, slots=True)
class Wait:
    """One rank waits for another; `place` is that of the first."""

    rank: int
    awaited: int
    kind: WaitKind
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
    # Rank -> the places in which it waits, in the order in which it began them.
    _pending: dict[int, list[Collective]] = field(init=False)
    # Rank -> description and size of a group -> the rank's own group of that kind.
    _own_groups: dict[int, dict[Kind, str]] = field(init=False)

    def __post_init__(self) -> None:
        self.groups = _by_group(self.places)
        self._pending = {
            rank: [place for place in own if place.waits_at][:MAX_OPEN]
            for rank, own in self.places.items()
        }
        self.members, left = {}, MAX_MEMBERS
        for name in self.groups:
            self.members[name] = self._members_of(name, left)
            left -= len(self.members[name])
        self._own_groups = {}
        for name, own in self.groups.items():
            for rank in own:
                self._own_groups.setdefault(rank, {}).setdefault(self.kind(name), name)
        most = max(MIN_AWAITED, min(MAX_AWAITED, MAX_EDGES // max(len(self.places), 1)))
        awaited: dict[tuple[str, int], list[tuple[int, WaitKind]]] = {}
        self.edges = [
            wait for rank in self.places for wait in _ordered(self._edges_of(rank, awaited, most))
        ]

    @property
    def waiting(self) -> list[int]:
        """Return the ranks that wait in something."""
        return [rank for rank, pending in self._pending.items() if pending]

    @property
    def missing(self) -> list[int]:
        """Return the ranks without a record."""
        return [rank for rank in range(self.num_ranks) if rank not in self.places]

    def pending(self, rank: int) -> list[Collective]:
        """Return the places in which a rank waits, in the order in which it began them."""
        return self._pending.get(rank, [])

    def kind(self, group: str) -> Kind:
        """Return what a group is for, "" where that is not known, and how many ranks it has."""
        return description_of(group), len(self.members[group])

    def own_place(self, rank: int, group: str) -> Collective | None:
        """Return a rank's place in a group, or in its own group of that kind."""
        own = self.groups[group].get(rank)
        if own is not None or not description_of(group):
            return own
        name = self._own_groups.get(rank, {}).get(self.kind(group))
        return self.groups[name][rank] if name is not None else None

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

    def _members_of(self, group: str, most: int) -> tuple[int, ...]:
        """Return a group's ranks: those that a record lists, if they are no more than `most`, or those that recorded it."""
        own = self.groups[group]
        listed = next((place.members for place in own.values() if place.members), "")
        ranks = ranks_in(listed, below=self.num_ranks)
        if not ranks and group == WORLD:
            ranks = tuple(range(self.num_ranks))
        return ranks if ranks and len(ranks) <= most else tuple(sorted(own))

    def _edges_of(
        self, rank: int, awaited: dict[tuple[str, int], list[tuple[int, WaitKind]]], most: int
    ) -> Iterator[Wait]:
        """Yield a rank's waits. `awaited` keeps for each collective which ranks are waited for, of each kind at most so many."""
        pending, num_edges = self.pending(rank), 0
        for place in pending:
            if place.is_between_peers:
                yield from self._edges_to_peer(rank, place)
                continue
            if num_edges > 2 * most:
                # The first ones decide.
                return
            if place.group not in self.groups:
                continue
            key = place.group, place.waits_at
            if key not in awaited:
                awaited[key] = self._awaited_in(place, most)
            others = [(other, kind) for other, kind in awaited[key] if other != rank]
            num_edges += len(others)
            yield from (Wait(rank, other, kind, place) for other, kind in others)
            if not others and place is pending[0] and not self.is_member_known(place.group):
                # Another rank of the group may be among those without a record.
                yield from (Wait(rank, other, "unknown", place) for other in self.missing[:most])

    def _awaited_in(self, place: Collective, most: int) -> list[tuple[int, WaitKind]]:
        """Return the ranks that are waited for in a collective, and how; of each kind those that wait for none first."""
        found: dict[WaitKind, list[int]] = {"behind": [], "unknown": [], "busy": []}
        for other in self.members[place.group]:
            kind = self._kind(place, other)
            if kind is not None:
                found[kind].append(other)
        return [
            (other, kind)
            for kind, ranks in found.items()
            for other in sorted(ranks, key=lambda rank: bool(self.pending(rank)))[:most]
        ]

    def _kind(self, place: Collective, other: int) -> WaitKind | None:
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


def description_of(group: str) -> str:
    """Return what a group is for: its name without its number and hash."""
    return group.partition(" #")[0].partition(" ")[2]


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
