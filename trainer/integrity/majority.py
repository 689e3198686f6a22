"""Majority vote: copies of the same numbers vote by their digests, and the minority is wrong. Pure, standard library only.

A part of a parameter has a voter for each rank that holds a copy in the model, and one for each owner, whose fp32 values,
rounded to the model's format, must equal the copies. So two replicas are three voters, and one of them can be overruled.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

WEIGHT, MASTER, MOMENT, GRADIENT = "weight", "master", "moment", "gradient"


class Vote(NamedTuple):
    """One voter's digest. `tensor`: the rank's index on the tensor axis; `master`: an owner's fp32 values, not a copy."""

    rank: int
    tensor: int
    master: bool
    digest: int


class Verdict(NamedTuple):
    """What is in the minority, and on which ranks; where there is no majority no rank is, and one of the `suspects` is wrong."""

    what: str
    ranks: tuple[int, ...]
    suspects: tuple[int, ...] = ()


def verdicts_of(votes: Sequence[Vote]) -> list[Verdict]:
    """Return which copies or masters of one part of a parameter are in the minority; empty when all agree.

    A copy that agrees with a wrong master of its own index on the tensor axis only followed it and is not named. Where the only
    copy and its master disagree, their rank is wrong for certain, but not which of the two: it counts as the master.
    """
    right, agreed = majority(vote.digest for vote in votes)
    if agreed:
        return []
    if right is None:
        ranks = _ranks(votes)
        return [Verdict(MASTER, ranks) if len(ranks) == 1 else Verdict(WEIGHT, (), ranks)]
    minority = [vote for vote in votes if vote.digest != right]
    masters = [vote for vote in minority if vote.master]
    leaders = {(vote.tensor, vote.digest) for vote in masters}
    copies = [v for v in minority if not v.master and (v.tensor, v.digest) not in leaders]
    groups = ((MASTER, masters), (WEIGHT, copies))
    return [Verdict(what, _ranks(group)) for what, group in groups if group]


def minority_ranks(digests: Iterable[tuple[int, Hashable]]) -> tuple[int, ...] | None:
    """Return the ranks in the minority, sorted; empty when there is no majority, None when all agree."""
    pairs = list(digests)
    right, agreed = majority(digest for _, digest in pairs)
    if agreed:
        return None
    return () if right is None else tuple(sorted({r for r, digest in pairs if digest != right}))


def majority(digests: Iterable[Hashable]) -> tuple[Hashable | None, bool]:
    """Return the digest of more than half of the voters (None: there is none), and whether all agree."""
    counts = Counter(digests)
    if not counts:
        return None, True
    most, number = counts.most_common(1)[0]
    return (most if 2 * number > counts.total() else None), len(counts) == 1


def _ranks(votes: Iterable[Vote]) -> tuple[int, ...]:
    return tuple(sorted({vote.rank for vote in votes}))
