"""Who is odd among copies and masters of the same numbers."""

import pytest

from trainer.integrity.majority import Verdict, Vote, minority_ranks, verdicts_of

GOOD, BAD, WORSE = 11, 22, 33


def copy(rank: int, digest: int, tensor: int = 0) -> Vote:
    """A replica's copy."""
    return Vote(rank, tensor, False, digest)


def master(rank: int, digest: int, tensor: int = 0) -> Vote:
    """An owner's fp32 values."""
    return Vote(rank, tensor, True, digest)


@pytest.mark.parametrize(
    ("votes", "expected"),
    [
        ([copy(0, GOOD), copy(1, GOOD), master(0, GOOD)], []),
        ([copy(0, GOOD), copy(1, BAD), master(0, GOOD)], [("weight", (1,))]),
        ([copy(0, BAD), copy(1, GOOD), master(0, GOOD)], [("weight", (0,))]),
        ([copy(0, GOOD), copy(1, GOOD), master(0, BAD)], [("master", (0,))]),
        ([copy(0, BAD), copy(1, GOOD), master(0, WORSE)], [("weight", ())]),
        ([copy(7, GOOD), master(7, BAD)], [("master", (7,))]),
        (
            [copy(0, BAD), copy(1, GOOD), copy(2, GOOD), copy(3, GOOD), master(3, BAD)],
            [("master", (3,))],
        ),
        (
            [copy(0, GOOD), copy(1, BAD), copy(2, WORSE), copy(3, GOOD), master(3, GOOD)],
            [("weight", (1, 2))],
        ),
    ],
    ids=[
        "all agree",
        "a copy elsewhere",
        "the owner's own copy",
        "the owner's master",
        "three answers",
        "a rank alone with its master",
        "a copy that equals an odd master only followed it",
        "two odd copies",
    ],
)
def test_the_minority_is_odd(
    votes: list[Vote], expected: list[tuple[str, tuple[int, ...]]]
) -> None:
    """More than half of the voters are right; without such a majority no rank is named, unless there is only one."""
    found = verdicts_of(votes)
    assert [(verdict.what, verdict.ranks) for verdict in found] == expected
    assert all(bool(verdict.ranks) is not bool(verdict.suspects) for verdict in found)


def test_tensor_ranks_that_drifted_apart() -> None:
    """A wrong master leads the copies of its own index on the tensor axis; where two sides are equal, no rank is named."""
    side = [copy(0, GOOD), master(0, GOOD), copy(2, GOOD), copy(4, GOOD, 2), master(4, GOOD, 2)]
    odd = [copy(1, BAD, 1), copy(3, BAD, 1), master(1, BAD, 1)]
    assert verdicts_of([*side, *odd]) == [Verdict("master", (1,))]
    equal = [copy(0, GOOD), master(0, GOOD), copy(1, BAD, 1), master(1, BAD, 1)]
    assert verdicts_of(equal) == [Verdict("weight", (), suspects=(0, 1))]


def test_odd_ranks() -> None:
    """None when all agree, empty without a majority, else the minority; a rank that contradicts itself is the odd one of two."""
    assert minority_ranks([(0, GOOD), (1, GOOD)]) is None
    assert minority_ranks([(0, GOOD), (1, BAD)]) == ()
    assert minority_ranks([(0, GOOD), (1, BAD), (2, GOOD)]) == (1,)
    assert minority_ranks([(0, GOOD), (1, BAD), (0, GOOD), (1, GOOD)]) == (1,)
