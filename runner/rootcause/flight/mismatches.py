"""Ranks that call collectives otherwise than their peers: another operation or size, or another order. Pure.

Where two ranks contradict each other, what the siblings of their group do decides, or what each of the two did in its earlier
steps (`Collective.habit`); else neither is named.
"""

from runner.facts.messages.rank_stacks import MAX_COLLECTIVES, Collective
from runner.rootcause.flight.wait_graph import WaitGraph

# Operations in which ranks may give parts of different sizes. Substrings of torch's names, in lower case.
UNEVEN = ("all_to_all", "alltoall", "scatter", "gather", "coalesced", "_v")
# Except for these, in which one odd size among equal ones is a mistake.
EVEN = (
    "_all_gather_base",
    "all_gather",
    "_reduce_scatter_base",
    "all_gather_into_tensor",
    "all_gather_single",
)

# Pairs of ranks that contradict each other and are judged; chosen.
MAX_PAIRS = 64

Mismatch = tuple[int, Collective, list[int], str]
Disorder = tuple[int, Collective, list[int]]


def mismatched(graph: WaitGraph) -> list[Mismatch]:
    """Return the ranks that wait in another operation than the others at that place, those others, and their operation."""
    for group in graph.groups:
        places: dict[int, dict[str, list[int]]] = {}
        for rank, place in graph.groups[group].items():
            if place.waits_at:
                at = places.setdefault(place.waits_at, {})
                at.setdefault(_signature(place), []).append(rank)
        for number, signatures in places.items():
            usual = _usual(graph, group, number, signatures) if len(signatures) > 1 else None
            if usual is not None:
                return [
                    (rank, graph.groups[group][rank], signatures[usual], usual)
                    for signature, ranks in signatures.items()
                    if signature != usual
                    for rank in ranks
                ]
    return []


def contradict_each_other(graph: WaitGraph) -> bool:
    """Whether any ranks wait in different operations at one place, or came to two collectives in different orders."""
    for own in graph.groups.values():
        at: dict[int, str] = {}
        for place in own.values():
            if place.waits_at and at.setdefault(place.waits_at, _signature(place)) != _signature(
                place
            ):
                return True
    return bool(_contradictions(graph))


def _signature(place: Collective) -> str:
    """Return the operation and, where all ranks give the same, its sizes."""
    name = place.operation.lower()
    is_even = name in EVEN or not any(part in name for part in UNEVEN)
    return f"{place.operation} {place.shape}".rstrip() if is_even else place.operation


def _usual(
    graph: WaitGraph, group: str, number: int, signatures: dict[str, list[int]]
) -> str | None:
    """Return which of the signatures at a place of a group is right; None: that is not clear."""
    most = max(signatures, key=lambda each: len(signatures[each]))
    num_others = sum(len(ranks) for each, ranks in signatures.items() if each != most)
    if len(signatures[most]) > num_others and len(signatures[most]) > 1:
        return most
    return _of_siblings(graph, group, number, signatures) or _of_habit(graph, group, signatures)


def _of_siblings(
    graph: WaitGraph, group: str, number: int, signatures: dict[str, list[int]]
) -> str | None:
    """Return the signature that all groups of the same size and description have at this place, if two ranks or more show it."""
    found: dict[str, int] = {}
    for name, own in graph.groups.items():
        if name == group or graph.kind(name) != graph.kind(group):
            continue
        for place in own.values():
            signature = _signature_at(place, number)
            if signature:
                found[signature] = found.get(signature, 0) + 1
    ((only, count),) = found.items() if len(found) == 1 else (("", 0),)
    return only if only in signatures and count > 1 else None


def _signature_at(place: Collective, number: int) -> str:
    """Return the signature of an operation of a group by its number; "" where it is not listed."""
    if number == (place.waits_at or place.sequence) and place.operation:
        return _signature(place)
    back = place.sequence - number
    if not 0 <= back < len(place.recent):
        return ""
    operation, _, shape = place.recent[-1 - back].partition(" ")
    return _signature(Collective(group="", sequence=0, operation=operation, shape=shape))


def _of_habit(graph: WaitGraph, group: str, signatures: dict[str, list[int]]) -> str | None:
    """Return the signature whose ranks do as in their earlier steps, if those of all others do not."""
    own = graph.groups[group]
    habits = {each: [own[rank].habit for rank in ranks] for each, ranks in signatures.items()}
    usual = [each for each, of in habits.items() if "usual" in of and "unusual" not in of]
    others_depart = all(
        all(habit == "unusual" for habit in of) for each, of in habits.items() if each not in usual
    )
    return usual[0] if len(usual) == 1 and others_depart else None


def out_of_order(graph: WaitGraph) -> list[Disorder]:
    """Return the ranks that began two collectives in another order than their peers: rank, place, and who waits for it."""
    found: dict[int, Disorder] = {}
    innocent, undecided = dict[int, None](), list[tuple[int, int]]()
    for one, other in _contradictions(graph)[:MAX_PAIRS]:
        named = _departing(graph, one, other)
        if named is None:
            undecided.append((one, other))
            continue
        right = other if named == one else one
        innocent[right] = None
        known = found.setdefault(named, (named, _head(graph, named), []))
        known[2].append(right)
    is_clear = all(rank not in innocent for rank in found) and all(
        one in found or other in found for one, other in undecided
    )
    return list(found.values()) if is_clear else []


def _contradictions(graph: WaitGraph) -> list[tuple[int, int]]:
    """Return pairs of ranks of which each waits in a collective that the other has yet to come to, behind its own."""
    found: dict[tuple[int, int], None] = {}
    heads = {rank: _head(graph, rank) for rank in graph.places}
    for edge in graph.edges:
        one, other = edge.rank, edge.awaited
        if edge.kind == "unknown" or edge.place.is_between_peers or other not in graph.places:
            continue
        mine, its = heads[one], heads[other]
        is_pair = bool(mine.waits_at and its.waits_at) and edge.place is mine
        if is_pair and _comes_later(graph, one, its) and _comes_later(graph, other, mine):
            found[min(one, other), max(one, other)] = None
    return list(found)


def _head(graph: WaitGraph, rank: int) -> Collective:
    """Return the first collective in which a rank waits; without a number: it waits in none."""
    heads = (place for place in graph.pending(rank) if not place.is_between_peers)
    return next(heads, Collective(group="", sequence=0))


def _comes_later(graph: WaitGraph, rank: int, place: Collective) -> bool:
    """Whether a rank of the group has yet to begin a collective, or began it after the one in which it waits."""
    if rank not in graph.members.get(place.group, ()) or _head(graph, rank).group == place.group:
        return False
    its = graph.groups[place.group].get(rank)
    return its is None or its.sequence < place.waits_at or its.waits_at == place.waits_at


def _departing(graph: WaitGraph, one: int, other: int) -> int | None:
    """Return which of two ranks departs from the order of the other ranks and from its habit; None: that is not clear."""
    first, second = _head(graph, one), _head(graph, other)
    orders = [
        order
        for rank in graph.places
        if rank not in (one, other) and (order := _order(graph, rank, first, second))
    ]
    by_votes = None
    if orders and all(order == orders[0] for order in orders):
        # The others come to what `one` waits in before what `other` waits in: so `other` departs.
        by_votes = other if orders[0] == "first" else one
    by_habit = _unusual(first, second, one, other)
    if by_votes is not None and by_habit is not None:
        return by_votes if by_votes == by_habit else None
    return by_habit if not orders else by_votes


def _unusual(first: Collective, second: Collective, one: int, other: int) -> int | None:
    if (first.habit, second.habit) == ("unusual", "usual"):
        return one
    return other if (first.habit, second.habit) == ("usual", "unusual") else None


def _order(graph: WaitGraph, rank: int, first: Collective, second: Collective) -> str:
    """Return which of two collectives, or of those of its own groups of these kinds, a rank came to first; "": not clear."""
    at = [_progress(graph, rank, place) for place in (first, second)]
    if None in at or at[0] == at[1]:
        return ""
    return "first" if (at[0] or 0) < (at[1] or 0) else "second"


def _progress(graph: WaitGraph, rank: int, place: Collective) -> int | None:
    """Return 0 if a rank has completed the collective of this number, n if it waits in it in its n-th place, more before it.

    None where it has begun it, and waits in an earlier one of the group: when it began it is not known.
    """
    its = graph.own_place(rank, place.group)
    if its is None:
        return None
    if its.sequence < place.waits_at:
        return MAX_COLLECTIVES + 1
    if not its.waits_at or its.waits_at > place.waits_at:
        return 0
    return graph.pending(rank).index(its) + 1 if its.waits_at == place.waits_at else None
