"""Hang analysis names the missing rank by the recorded collectives, and never a rank that may only be a victim."""

import pytest

from runner.facts.messages.rank_stacks import MAX_RANK_STACKS, Collective, RankStack, merged
from runner.rootcause.hang_analysis import find_missing_ranks

WORK = ("loop.py:step:77", "train.py:main:9")


def recorded(rank: int, *collectives: tuple[str, int, str, bool], state: str = "S") -> RankStack:
    """Make the stack of a rank that sleeps below a user's line: only its recorded collectives are evidence."""
    records = tuple(
        Collective(
            group=group, sequence=sequence, operation=operation, waits_at=sequence * is_waiting
        )
        for group, sequence, operation, is_waiting in collectives
    )
    return RankStack(ranks=(rank,), state=state, frames=WORK, collectives=records)


def waiting(
    rank: int, sequence: int = 7, operation: str = "all_reduce", group: str = "0"
) -> RankStack:
    """Make the stack of a rank that waits in a collective."""
    return recorded(rank, (group, sequence, operation, True))


@pytest.mark.parametrize(
    ("apart", "culprit"),
    [
        # It never came.
        ([recorded(3, ("0", 6, "all_reduce", False))], ("n1", 3)),
        # It reached this one, and works: the others do not wait for this group's collective.
        ([recorded(3, ("0", 7, "all_reduce", False))], ("n1", 3)),
        # It lags, since it waits for another, which waits for none.
        (
            [
                recorded(3, ("0", 6, "all_reduce", False), ("2 tp", 9, "all_gather", True)),
                recorded(2, ("0", 6, "all_reduce", False), ("2 tp", 8, "all_gather", False)),
            ],
            ("n1", 2),
        ),
        # It left one out.
        ([waiting(3, 7, "barrier")], ("n1", 3)),
        # It has not completed what the others have, to which each gives a part.
        ([waiting(3, 6)], ("n1", 3)),
        # That shows nothing where the others may have gone on without it.
        ([waiting(3, 6, "broadcast")], None),
        # Of two nodes.
        ([waiting(3, 7, "barrier"), waiting(5, 7, "barrier")], (3, 5)),
        ([recorded(3, ("0", 6, "", False)), recorded(5, ("0", 6, "", False))], (3, 5)),
        # Stopped.
        ([recorded(3, ("0", 6, "all_reduce", True), state="T")], ("n1", 3)),
    ],
)
@pytest.mark.parametrize("has_gpus", [False, True])
def test_recorded_collectives_name_the_missing_rank_where_frames_do_not(
    apart: list[RankStack], culprit: tuple[str | int, int] | None, has_gpus: bool
) -> None:
    """Eight ranks are all at the same line, as ranks that wait for their GPU are."""
    own = {rank_stack.ranks[0]: rank_stack for rank_stack in apart}
    rank_stacks = [own.get(rank) or waiting(rank) for rank in range(8)]
    verdict = find_missing_ranks(
        rank_stacks, nodes=("n1", "n2"), ranks_per_node=4, has_gpus=has_gpus
    )
    assert verdict is not None
    if culprit is not None and isinstance(culprit[0], int):
        assert (verdict.node, verdict.rank, verdict.ranks) == (None, None, culprit)
    else:
        assert (verdict.node, verdict.rank) == (culprit or (None, None)), verdict.evidence
    assert "all_reduce 7 of group 0" in verdict.evidence


def named(
    rank_stacks: list[RankStack], *, nodes: int = 4, size: int = 1
) -> tuple[str | None, int | None]:
    """Return the node and rank that a gang's stacks name, on nodes with GPUs."""
    names = [f"n{number}" for number in range(1, nodes + 1)]
    verdict = find_missing_ranks(
        rank_stacks, nodes=names, ranks_per_node=size, pipeline=2, has_gpus=True
    )
    assert verdict is not None
    return verdict.node, verdict.rank


def test_a_rank_that_waits_for_a_peer_is_not_missing_from_the_collective_it_has_yet_to_reach() -> (
    None
):
    """Two stages, two replicas. Rank 0 is in a barrier of its own, so rank 2 gets nothing from it, and 1 and 3 wait for them."""
    lost = recorded(0, ("0 default_pg", 41, "barrier", True))
    fed = recorded(2, ("peers", 1, "recv 2<-0", True))
    others = [waiting(rank, 11, group=f"{rank % 2} dp") for rank in (1, 3)]
    assert named([lost, fed, *others]) == (None, None)
    # The same holds if rank 0 recorded nothing.
    assert named([RankStack(ranks=(0,), state="S", frames=WORK), fed, *others]) == (None, None)
    assert named([fed, *others]) == (None, None)


def test_the_root_of_a_gather_is_a_victim() -> None:
    """Rank 3 is stuck in the kernel. All others have sent their part and gone on; the root waits for rank 3's."""
    root = recorded(0, ("0", 103, "gather", True))
    others = [waiting(rank, 104) for rank in (1, 2, 4, 5, 6, 7)]
    stuck = RankStack(ranks=(3,), state="D", wchan="nfs_wait")
    assert named([root, *others], nodes=2, size=4) != ("n1", 0)
    assert named([root, *others, stuck], nodes=2, size=4) == ("n1", 3)


def test_a_record_without_collectives_names_no_rank_that_waits_for_a_gpu() -> None:
    """A recorder may be switched off, or be another backend's."""
    assert named([recorded(0), waiting(1), waiting(2), waiting(3)]) == (None, None)


def test_records_are_left_out_before_ranks_are() -> None:
    """In a large gang each rank may be in groups of its own."""
    many = [waiting(rank, group=f"{rank} tp") for rank in range(1024) if rank != 900]
    found = merged([*many, recorded(900, ("900 tp", 6, "", False))], most=MAX_RANK_STACKS)
    assert sum(len(rank_stack.ranks) for rank_stack in found) == 1024
    few = merged(many[:60], most=MAX_RANK_STACKS)
    assert all(rank_stack.collectives for rank_stack in few)
