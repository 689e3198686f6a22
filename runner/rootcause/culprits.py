"""Culprits: the rank, GPU or node that a verdict names; none where the others report the same of themselves."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

from runner.facts.causes import Culprit
from runner.facts.matches import Match

# Of a sequence number.
MAX_DIGITS = 19
# Collectives that a late rank may lag behind; chosen.
NEAR_SEQUENCES = 8
# Ranks that bring the same size to a call, at least, where another size is a mistake; chosen.
LEAST_ALIKE = 3
# Between a line that names a GPU and one about its fault; chosen.
NEAR_LINES = 3
_T = TypeVar("_T")
_PCI_ADDRESS = re.compile(r"\b[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]\b")


def culprit_of(root: Match, same: Sequence[Match], placed: Sequence[Match]) -> Culprit | None:
    """Return what failed; `same`: the matches of the same fault."""
    if root.layer in ("device", "link", "consequence") and (gpu := _gpu(root, placed)):
        return Culprit(kind="gpu", id=gpu)
    if root.fault == "nccl_timeout":
        return _late_rank(placed)
    peer = _only(match.named["peer"] for match in same if "peer" in match.named)
    if root.fault == "nccl_network" and peer is not None:
        return Culprit(kind="node", id=peer)
    if root.scope == "node" and (node := root.named.get("node") or root.named.get("named")):
        return Culprit(kind="node", id=node)
    if root.scope in ("storage", "fabric", "scheduler"):
        return None
    rank = _only_rank_affected(root, same, placed)
    return Culprit(kind="rank", id=str(rank)) if rank is not None else None


def _gpu(root: Match, placed: Sequence[Match]) -> str:
    """Return the GPU named in the root match, or just above it."""
    if gpu := root.named.get("gpu"):
        return gpu
    if address := _PCI_ADDRESS.search(root.text):
        return address[0]
    for match in placed:
        is_near = match.file == root.file and 0 <= root.line - match.line <= NEAR_LINES
        if match.role == "names-gpu" and is_near:
            return match.named.get("gpu", "")
    return ""


def _late_rank(placed: Sequence[Match]) -> Culprit | None:
    """Return the one rank that missed a collective: by name, or because its last one came before."""
    late = [match.named["late"] for match in placed if "late" in match.named]
    if (rank := _only(late)) is not None:
        return Culprit(kind="rank", id=rank)
    reached = {
        match.rank: int(sequence)
        for match in reversed(placed)
        if match.role == "waited-in-vain"
        and match.rank is not None
        and (sequence := match.named.get("sequence", "")).isascii()
        and sequence.isdigit()
        and len(sequence) < MAX_DIGITS
    }
    if late or len(reached) < 2:
        return None
    if (alone := _other_size(placed)) is not None:
        return Culprit(kind="rank", id=str(alone))
    first = min(reached.values())
    behind = [rank for rank, sequence in reached.items() if sequence == first]
    others = _only(sequence for sequence in reached.values() if sequence != first)
    # Groups of ranks count apart from each other: only one that was just behind all the others is late.
    if len(behind) != 1 or others is None or others - first > NEAR_SEQUENCES:
        return None
    return Culprit(kind="rank", id=str(behind[0]))


def _other_size(placed: Sequence[Match]) -> int | None:
    """Return the one rank that brings another size to a call than all the others, of which there are enough to be the group."""
    calls: dict[tuple[str, str], dict[int, str]] = {}
    for match in placed:
        size = match.named.get("numel", "")
        if match.role == "waited-in-vain" and match.rank is not None and size:
            call = (match.named.get("sequence", ""), match.named.get("operation", ""))
            calls.setdefault(call, {}).setdefault(match.rank, size)
    if len(calls) != 1:
        # Of other groups, or of ranks that are at another place.
        return None
    sizes = next(iter(calls.values()))
    num = Counter(sizes.values())
    if len(num) != 2 or len(sizes) <= LEAST_ALIKE or min(num.values()) != 1:
        return None
    return next(rank for rank, size in sizes.items() if num[size] == 1)


def _only_rank_affected(root: Match, same: Sequence[Match], placed: Sequence[Match]) -> int | None:
    """Return the rank that its launcher saw fail first; else the only one affected of several that wrote.

    A fault of the program or its settings affects all ranks: which of them is shown first means nothing.
    """
    if (failed := _failed_first(placed)) is not None:
        return failed
    wrote = dict.fromkeys(match.rank for match in placed if match.rank is not None)
    if root.scope == "user" or len(wrote) < 2:
        return None
    return _only(match.rank for match in same if match.rank is not None)


def _failed_first(placed: Sequence[Match]) -> int | None:
    """Return the rank that a launcher's summary calls the root cause, or the only one that it names."""
    named = [match for match in placed if match.role == "names-rank" and match.rank is not None]
    for root in placed:
        if root.role == "root-cause":
            below = [match for match in named if match.file == root.file and match.line > root.line]
            if below:
                return min(below, key=lambda match: match.line).rank
    return _only(match.rank for match in named)


def _only(values: Iterable[_T]) -> _T | None:
    """Return the value that all of these are; None if they differ, and for none."""
    distinct = list(dict.fromkeys(values))
    return distinct[0] if len(distinct) == 1 else None
