"""Habits: whether an operation comes where the rank's earlier steps had it. Steps of a training loop repeat their collectives."""

from collections.abc import Sequence

# Operations before it that must have been the same; the longest of these that occurred often enough counts. Chosen.
CONTEXTS = (24, 12, 6, 3)
# Times that the same operations came before; chosen.
MIN_OCCURRENCES = 3


def habit_at(operations: Sequence[str], at: int) -> str:
    """Return "usual", "unusual" or "" for the operation at an index.

    What followed the same operations before must always have been the same. Another operation is unusual if the rank has had it
    before: one that is new may be the first of its kind, such as an evaluation's.
    """
    for size in CONTEXTS:
        followers = _followers(operations, at, size)
        if len(followers) < MIN_OCCURRENCES:
            continue
        if any(each != followers[0] for each in followers):
            return ""
        if operations[at] == followers[0]:
            return "usual"
        return "unusual" if operations[at] in operations[:at] else ""
    return ""


def _followers(operations: Sequence[str], at: int, size: int) -> list[str]:
    """Return what followed where the same `size` operations came before."""
    if at < size:
        return []
    context = tuple(operations[at - size : at])
    return [
        operations[end]
        for end in range(size, at)
        if operations[end - 1] == context[-1] and tuple(operations[end - size : end]) == context
    ]
