"""Ranks that call collectives otherwise than their peers: another operation or size, or another order. Pure.

Where two ranks contradict each other, what the siblings of their group do decides, or what each of the two did in its earlier
steps (`Collective.habit`); else neither is named.
"""

from collections.abc import Sequence

from runner.facts.messages.rank_stacks import Collective
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

Mismatch = tuple[int, Collective, list[int], str]


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
        if name == group or _kind(graph, name) != _kind(graph, group):
            continue
        for place in own.values():
            signature = _signature_at(place, number)
            if signature:
                found[signature] = found.get(signature, 0) + 1
    ((only, count),) = found.items() if len(found) == 1 else (("", 0),)
    return only if only in signatures and count > 1 else None


def _kind(graph: WaitGraph, group: str) -> tuple[str, int]:
    return group.partition(" #")[0].partition(" ")[2], len(graph.members[group])


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


def out_of_order(graph: WaitGraph) -> list[tuple[int, Collective, list[int]]]:
    """Return the ranks that wait elsewhere than the others of a circle of waits, their places, and who waits for them."""
    circle = _circle(graph)
    if not circle:
        return []
    heads = {rank: graph.pending(rank)[0] for rank in circle}
    departing = [rank for rank in circle if heads[rank].habit == "unusual"]
    others = [rank for rank in circle if rank not in departing]
    if departing:
        are_usual = any(heads[rank].habit == "usual" for rank in others)
        named = departing if are_usual and len(departing) <= len(others) else []
    else:
        named = _closing(graph, circle)
    awaited = graph.awaited_by()
    return [
        (rank, heads[rank], [wait.rank for wait in awaited[rank] if wait.kind == "behind"])
        for rank in named
    ]


def _circle(graph: WaitGraph) -> list[int]:
    """Return the ranks that wait for each other, each for another that has not begun what it waits in."""
    edges = _behind_edges(graph)
    reach = {rank: _reached(edges, rank) for rank in edges}
    return [rank for rank in edges if rank in reach[rank]]


def _behind_edges(graph: WaitGraph) -> dict[int, list[int]]:
    edges: dict[int, list[int]] = {rank: [] for rank in graph.waiting}
    for wait in graph.edges:
        if wait.kind == "behind" and wait.awaited in edges and wait.rank in edges:
            edges[wait.rank].append(wait.awaited)
    return edges


def _reached(edges: dict[int, list[int]], start: int, without: int = -1) -> dict[int, None]:
    found: dict[int, None] = {}
    left = [start]
    while left:
        for other in edges[left.pop()]:
            if other not in found and other != without:
                found[other] = None
                left.append(other)
    return found


def _closing(graph: WaitGraph, circle: Sequence[int]) -> list[int]:
    """Return the only rank without which no circle is left, if it contradicts two others or more."""
    edges = _behind_edges(graph)
    closing = [
        rank
        for rank in circle
        if not any(
            other in _reached(edges, other, without=rank) for other in circle if other != rank
        )
    ]
    if len(closing) != 1:
        return []
    (rank,) = closing
    contradicted = [other for other in edges[rank] if rank in edges[other]]
    return closing if len(contradicted) > 1 else []
