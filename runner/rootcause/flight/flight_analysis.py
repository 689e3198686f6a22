"""Find the ranks that a gang waits for, from the flight records of its ranks. Pure; a doubtful case names no rank.

1. *Stuck*: a rank waits in a collective that needs every rank's part (`SYMMETRIC`) and that its peers have completed. They had its
   part, so what holds it is its own: its GPU, or its link.
2. *Behind*: a rank waits for nothing, and has not begun what others wait in. Or it waits for what its peers wait for as well,
   and has begun at most half as much as they.
3. *Mismatched*: ranks of a group wait in different operations, or in different sizes of one, at the same place of its sequence:
   the fewer, or those that depart from the group's siblings or from their own habit (`mismatches`).
4. *Out of order*: ranks wait for each other in a circle, and one alone closes it or departs from its habit.
5. *Unrecorded*: all that wait, wait for few ranks whose records are missing, and no two contradict each other.
Otherwise no rank is named: all may wait in the same collective, since the network or a GPU failed.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from runner.facts.messages.rank_stacks import PEERS, Collective
from runner.rootcause.flight.mismatches import contradict_each_other, mismatched, out_of_order
from runner.rootcause.flight.rank_spans import describe_ranks
from runner.rootcause.flight.wait_graph import Places, Wait, WaitGraph, description_of

# Operations that no rank completes without the part of every other. Substrings of torch's names, in lower case.
SYMMETRIC = (
    "all_reduce",
    "allreduce",
    "all_gather",
    "allgather",
    "reduce_scatter",
    "all_to_all",
    "barrier",
)
# Of the ranks of a gang, those without a record that may be named: one in so many, or one. Chosen.
MISSING_SHARE = 8
# By rule. Chosen: no case of the tests has named a wrong rank.
CONFIDENCE = {
    "stuck": 0.95,
    "behind": 0.95,
    "mismatched": 0.9,
    "out of order": 0.9,
    "unrecorded": 0.8,
}
# What a rank that lags has begun, of what a peer has begun and not completed, at most. Chosen.
MAX_LAG_RATIO = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class CulpritRank:
    """A rank that others wait for: in which group and operation, and why it is named."""

    rank: int
    reason: str
    rule: str
    group: str = ""
    operation: str = ""
    sequence: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FlightVerdict:
    """What flight records show. No culprits: `summary` says what the ranks wait in; `is_hang` whether any waits at all."""

    culprits: tuple[CulpritRank, ...]
    summary: str
    is_hang: bool = True

    @property
    def ranks(self) -> tuple[int, ...]:
        """Return the ranks of the culprits."""
        return tuple(culprit.rank for culprit in self.culprits)

    @property
    def confidence(self) -> float:
        """Return how sure it is that the culprits are right, or without any, that the gang hangs: as its weakest rule."""
        return min((CONFIDENCE[culprit.rule] for culprit in self.culprits), default=0.5)


def find_awaited_ranks(
    places: Places, *, num_ranks: int = 0, waiting: Collection[int] = ()
) -> FlightVerdict:
    """Return the ranks that others wait for and that wait for none. `waiting`: those that other evidence shows to wait."""
    graph = WaitGraph(dict(sorted(places.items())), num_ranks)
    if not graph.waiting:
        return FlightVerdict(
            culprits=(), summary="no rank waits in a recorded collective", is_hang=False
        )
    found = _stuck(graph)
    found += _behind(graph, waiting, tuple(culprit.rank for culprit in found))
    if not found:
        found = _mismatched(graph) or _out_of_order(graph) or _unrecorded(graph, waiting)
    return FlightVerdict(
        culprits=tuple(sorted(found, key=lambda culprit: culprit.rank)), summary=_summary(graph)
    )


# ---- rules


def _stuck(graph: WaitGraph) -> list[CulpritRank]:
    found: dict[int, CulpritRank] = {}
    for group, own in graph.groups.items():
        by_number: dict[int, list[int]] = {}
        for rank, place in own.items():
            if place.waits_at:
                by_number.setdefault(place.waits_at, []).append(rank)
        for number, ranks in by_number.items():
            done = [rank for rank, place in own.items() if _has_completed(place, number)]
            verb = "has" if len(done) == 1 else "have"
            others = f"{describe_ranks(done)} {verb} completed" if done else "no other rank is in"
            for rank in ranks if _are_held_by_themselves(graph, group, ranks, len(done)) else ():
                reason = f"rank {rank} waits in {_described(own[rank])}, which {others}"
                found.setdefault(rank, _culprit(rank, own[rank], reason, rule="stuck"))
    return list(found.values())


def _are_held_by_themselves(
    graph: WaitGraph, group: str, ranks: Sequence[int], num_done: int
) -> bool:
    """Whether no other rank can hold up those that wait at one place of a group, of which so many have completed it."""
    own, members, place = graph.groups[group], graph.members[group], graph.groups[group][ranks[0]]
    if graph.is_member_known(group) and len(ranks) == 1 and num_done == len(members) - 1:
        # In a group of its own a rank may wait for an earlier operation.
        return num_done > 0 or graph.pending(ranks[0])[0] is place
    # A chunk may be lost on its way to several: at least as many have completed it as have not.
    is_begun_by_all = all(each.sequence >= place.waits_at for each in own.values())
    is_symmetric = all(_is_symmetric(own[rank].operation) for rank in ranks)
    return is_symmetric and is_begun_by_all and num_done > 0 and 2 * num_done >= len(own)


def _has_completed(place: Collective, number: int) -> bool:
    is_over = place.sequence >= number and not 0 < place.waits_at <= number
    return is_over and not (place.may_have_failed and place.sequence == number)


def _is_symmetric(operation: str) -> bool:
    name = operation.lower()
    return any(each in name for each in SYMMETRIC)


def _behind(
    graph: WaitGraph, waiting: Collection[int], stuck: Collection[int]
) -> list[CulpritRank]:
    awaited = graph.awaited_by()
    idle = dict[int, list[Wait]]()
    excluded = dict.fromkeys((*waiting, *stuck))
    has_failures = bool(graph.missing) or _has_failed_calls(graph)
    for rank, places in graph.places.items():
        edges = [wait for wait in awaited.get(rank, ()) if wait.kind == "behind"]
        # Its last call may have failed, and the rank may be a victim of another that is gone.
        is_doubtful = has_failures and any(place.may_have_failed for place in places)
        if edges and not graph.pending(rank) and rank not in excluded and not is_doubtful:
            idle[rank] = edges
    if not _are_few(graph, idle):
        return []
    found = [_described_lag(rank, edges) for rank, edges in idle.items()]
    lagging = _lagging(graph, (*idle, *stuck, *waiting))
    return found + (lagging if len(lagging) < len(graph.waiting) / 2 else [])


def _has_failed_calls(graph: WaitGraph) -> bool:
    """Whether a call ended for which a rank of the group has not come: it failed."""
    least = {
        name: min(place.sequence for place in own.values()) for name, own in graph.groups.items()
    }
    return any(
        place.may_have_failed and _is_symmetric(place.operation) and least[name] < place.sequence
        for name, own in graph.groups.items()
        for place in own.values()
    )


def _are_few(graph: WaitGraph, idle: Collection[int]) -> bool:
    """Whether ranks that wait for nothing are fewer than those that wait, and cannot wait for each other unseen."""
    hides_peers = any(
        place.group == PEERS and not place.waits_at for rank in idle for place in graph.places[rank]
    )
    if len(idle) > 1 and hides_peers:
        return False
    return len(idle) <= 1 or len(idle) < len(graph.waiting)


def _described_lag(rank: int, edges: Sequence[Wait]) -> CulpritRank:
    """Name a rank by the collective that the most ranks wait in for it."""
    by_place: dict[tuple[str, int, str], list[Wait]] = {}
    for wait in edges:
        key = (wait.place.group, wait.place.waits_at, wait.place.operation)
        by_place.setdefault(key, []).append(wait)
    most = max(by_place.values(), key=len)
    place, who = most[0].place, describe_ranks([wait.rank for wait in most])
    verb = "waits" if len(most) == 1 else "wait"
    if place.is_between_peers:
        counterpart = "receive" if place.operation == "send" else "send"
        reason = f"rank {rank} has not posted the {counterpart} that {who} {verb} for in group {place.group}"
    else:
        reason = f"rank {rank} has not enqueued {_described(place)} that {who} {verb} in"
    return _culprit(rank, place, reason, rule="behind")


def _lagging(graph: WaitGraph, others: Collection[int]) -> list[CulpritRank]:
    """Name ranks where two peers or more have begun twice as much with the same operations open: so these do not hold them."""
    num_open = {rank: _num_open(graph, rank) for rank in graph.waiting}
    ordered = sorted(num_open.values())
    least_ahead = ordered[-2] if len(ordered) > 1 else 0
    excluded = dict.fromkeys(others)
    candidates = [
        rank
        for rank, number in num_open.items()
        if rank not in excluded and number <= MAX_LAG_RATIO * least_ahead
    ]
    if not candidates or len(candidates) > max(1, len(num_open) // MISSING_SHARE):
        return []
    open_kinds = {rank: _open_kinds(graph, rank) for rank in num_open}
    found = []
    for rank in candidates:
        same = [
            other for other in num_open if other != rank and open_kinds[rank] <= open_kinds[other]
        ]
        lag = _lag(graph, rank, same, num_open)
        found += [lag] if lag is not None else []
    return found


def _lag(
    graph: WaitGraph, rank: int, same: Sequence[int], num_open: Mapping[int, int]
) -> CulpritRank | None:
    """Name a rank if those that have the `same` operations open are all ahead of it in one of its groups, or in their own."""
    for place in graph.places[rank]:
        if place.is_between_peers or not place.operation:
            continue
        known = [(other, graph.own_place(other, place.group)) for other in same]
        ahead = [other for other, its in known if its is not None and its.sequence > place.sequence]
        are_all = len(ahead) == sum(its is not None for _, its in known)
        most = min((num_open[other] for other in ahead), default=0)
        if len(ahead) > 1 and are_all and num_open[rank] <= MAX_LAG_RATIO * most:
            reason = (
                f"rank {rank} has begun {place.sequence} collectives of group {place.group} and"
                f" {describe_ranks(ahead)} more, though it waits for nothing that they do not wait for"
            )
            return _culprit(rank, place, reason, rule="behind")
    return None


def _num_open(graph: WaitGraph, rank: int) -> int:
    return sum(
        1 if place.is_between_peers else place.sequence - place.waits_at + 1
        for place in graph.pending(rank)
    )


def _open_kinds(graph: WaitGraph, rank: int) -> frozenset[tuple[str, int, str, bool]]:
    """Return what a rank has open: of groups by what they are for, or where that is not known by their names."""
    return frozenset(
        (
            description_of(place.group) or place.group,
            place.waits_at,
            place.operation,
            place.is_between_peers,
        )
        for place in graph.pending(rank)
    )


def _mismatched(graph: WaitGraph) -> list[CulpritRank]:
    found = mismatched(graph)
    return [
        _culprit(
            rank,
            place,
            f"rank {rank} waits in {_described(place)} {place.shape}".rstrip()
            + f" where {describe_ranks(others)} {'waits' if len(others) == 1 else 'wait'}"
            f" in {usual}",
            rule="mismatched",
        )
        for rank, place, others, usual in found
    ]


def _out_of_order(graph: WaitGraph) -> list[CulpritRank]:
    return [
        _culprit(
            rank,
            place,
            f"rank {rank} waits in {_described(place)}, out of order:"
            f" {describe_ranks(others)} {'waits' if len(others) == 1 else 'wait'} for it elsewhere",
            rule="out of order",
        )
        for rank, place, others in out_of_order(graph)
    ]


def _unrecorded(graph: WaitGraph, waiting: Collection[int]) -> list[CulpritRank]:
    """Return the ranks without a record, if they are few and all that wait lead to them."""
    awaited = graph.awaited_by()
    missing = [rank for rank in graph.missing if rank in awaited and rank not in waiting]
    are_few = 0 < len(missing) <= max(1, graph.num_ranks // MISSING_SHARE)
    alone = _awaited_alone(graph, missing)
    if (
        not are_few
        or (len(missing) > 1 and len(alone) < len(missing))
        or contradict_each_other(graph)
    ):
        return []
    reaching = graph.reaching(missing)
    if any(rank not in reaching for rank in graph.waiting):
        return []
    # A rank that waits for nothing may be what the others wait for.
    if any(
        not graph.pending(rank) and rank not in waiting for rank in graph.places if rank in awaited
    ):
        return []
    return [
        CulpritRank(
            rank=rank,
            rule="unrecorded",
            reason=f"rank {rank} left no record, and {describe_ranks(reaching)}"
            f" {'waits' if len(reaching) == 1 else 'wait'} for it",
        )
        for rank in missing
    ]


def _awaited_alone(graph: WaitGraph, missing: Sequence[int]) -> list[int]:
    """Return the ranks of which each is the only one without a record that some rank waits for, first of all."""
    awaited: dict[int, list[int]] = {}
    for edge in graph.edges:
        if edge.kind == "unknown" and edge.place is graph.pending(edge.rank)[0]:
            awaited.setdefault(edge.rank, []).append(edge.awaited)
    only = {ranks[0] for ranks in awaited.values() if len(ranks) == 1}
    return [rank for rank in missing if rank in only]


# ---- sentences


def _culprit(rank: int, place: Collective, reason: str, *, rule: str) -> CulpritRank:
    return CulpritRank(
        rank=rank,
        reason=reason,
        rule=rule,
        group=place.group,
        operation=place.operation,
        sequence=place.waits_at or place.sequence,
    )


def _described(place: Collective) -> str:
    """Return `#128 all_reduce of group 3 dp`."""
    return f"#{place.waits_at or place.sequence} {place.operation} of group {place.group}"


def _summary(graph: WaitGraph) -> str:
    """Return what most ranks wait in first."""
    heads: dict[str, list[int]] = {}
    for rank in graph.waiting:
        heads.setdefault(_described(graph.pending(rank)[0]), []).append(rank)
    ordered = sorted(heads.items(), key=lambda head: (-len(head[1]), head[1]))
    listed = [
        f"{describe_ranks(ranks)} {'waits' if len(ranks) == 1 else 'wait'} in {head}"
        for head, ranks in ordered[:3]
    ]
    more = sum(len(ranks) for _, ranks in ordered[3:])
    return "; ".join(listed) + (f"; {more} more wait elsewhere" if more else "")
