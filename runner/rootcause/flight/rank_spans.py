"""Spans of rank numbers: `0-3,8`, or with a stride `0-24/8`. Short for the groups of any layout of a model."""

import re
from collections.abc import Iterable, Sequence

# Characters of one text, and ranks that one may name. Chosen.
MAX_TEXT, MAX_RANKS = 200, 1_000_000

_SPAN = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?:/(\d{1,9}))?)?")


def spans_of(ranks: Iterable[int]) -> str:
    """Write ranks, in rising order, as spans; "" for none, or where that takes more than MAX_TEXT characters."""
    listed = sorted(set(ranks))
    spans, at = list[str](), 0
    while at < len(listed):
        stride = listed[at + 1] - listed[at] if at + 1 < len(listed) else 1
        end = at
        while end + 1 < len(listed) and listed[end + 1] - listed[end] == stride:
            end += 1
        if end - at == 1 and stride > 1:
            end = at
        spans.append(_span(listed[at], listed[end], stride))
        at = end + 1
    text = ",".join(spans)
    return text if len(text) <= MAX_TEXT else ""


def _span(first: int, last: int, stride: int) -> str:
    if first == last:
        return str(first)
    return f"{first}-{last}" + (f"/{stride}" if stride > 1 else "")


def ranks_in(text: str, *, below: int = 0) -> tuple[int, ...]:
    """Return the ranks that spans name; none where the text is no spans, names more than MAX_RANKS, or one not `below` (0: any)."""
    found = list[int]()
    for part in text.split(",") if text else []:
        match = _SPAN.fullmatch(part)
        if match is None:
            return ()
        first, last = int(match[1]), int(match[2] or match[1])
        is_beyond = 0 < below <= last
        if is_beyond or last - first > MAX_RANKS or len(found) > MAX_RANKS:
            return ()
        found += range(first, last + 1, max(int(match[3] or 1), 1))
    return tuple(found)


def describe_ranks(ranks: Sequence[int], *, most: int = 8) -> str:
    """Name ranks: `rank 3`, `ranks 0-3, 8`, at most so many spans."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    listed = ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans[:most])
    more = ", ..." if len(spans) > most else ""
    return f"rank{'s' * (len(ranks) > 1)} {listed}{more}"
