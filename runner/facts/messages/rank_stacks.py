"""Stacks of ranks that hung, short enough to travel and to be compared."""

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from runner.facts.wire import Value

# Different stacks of one node that are reported. Chosen.
MAX_RANK_STACKS = 64
# Of one attempt; ranks beyond count as not read. Chosen: one for each of 16,384 ranks.
MAX_RANK_STACKS_KEPT = 16_384
# Places in process groups that are kept of one attempt: 32 for each of 1,024 ranks, 2 for each of 16,384. Chosen.
MAX_PLACES_KEPT = 32_768
# Characters of all frames of one. Chosen.
MAX_RANK_STACK = 300
# Places of one rank in process groups that are reported: Megatron-LM's ranks are in 13 to 30 groups. Chosen.
MAX_COLLECTIVES = 64
# In place of a group: sends and receives whose peer or group is not known.
PEERS = "peers"


class Collective(Value):
    """How far a rank is in one process group, by torch's flight recorder.

    `sequence` counts the group's collectives that the rank has begun, so it is equal on all its ranks, unless one is behind.
    `waits_at`: the first of them that is not over, which is `operation`; 0: all are, and `operation` was the last; no operation:
    the group's counters alone are known. `shape` has the sizes and types of its inputs, `recent` the last operations up to
    `sequence`. `members`: the group's ranks as spans (`0-3,8`), "" where the record does not list them. `habit`: whether
    `operation` follows where the rank's earlier steps had it ("usual"), elsewhere ("unusual"), or nothing is known ("").
    `may_have_failed`: the rank began nothing after `operation`, of which gloo records that it ended, not how.

    A send or receive that is not over has the global rank of its `peer`; its numbers count the rank's own, and are not equal on
    others. Where the peer is not known its group is `PEERS`; `PEERS` at 0 means that the recorder shows no sends and receives
    though the rank uses them.
    """

    group: str
    sequence: int
    operation: str = ""
    waits_at: int = 0
    shape: str = ""
    members: str = ""
    peer: int = -1
    habit: str = ""
    recent: tuple[str, ...] = ()
    may_have_failed: bool = False

    @property
    def is_between_peers(self) -> bool:
        """Whether this is a send or a receive, and no collective."""
        return self.peer >= 0 or self.group == PEERS


class RankStack(Value):
    """The stack that some ranks have in common.

    `state` is the letter of the main thread before anything of ours stopped it, `wchan` where in the kernel it waited.
    `frames` are its Python frames, the innermost first, each `file:function:line`; none: they could not be read. All of it
    comes from a rank, so it is hostile text, printable ASCII, and is compared and shown only. `collectives`: first what it waits
    in, in the order in which it began them, then the other groups, the last used first; empty: nothing was recorded.
    """

    ranks: tuple[int, ...]
    state: str = ""
    wchan: str = ""
    frames: tuple[str, ...] = ()
    collectives: tuple[Collective, ...] = ()


def merged(rank_stacks: Iterable[RankStack], *, most: int) -> list[RankStack]:
    """Merge equal stacks, in order of their first rank.

    Of more than `most` kinds what was recorded of collectives is left out, which splits ranks the most; then the last of them.
    """
    found = _together(rank_stacks)
    if len(found) > most:
        found = _together(without_records(found))
    return sorted(found, key=lambda rank_stack: rank_stack.ranks)[:most]


def gathered(kept: Sequence[RankStack], added: Iterable[RankStack]) -> list[RankStack]:
    """Add the stacks of one more node to those of a gang, at most `MAX_RANK_STACKS_KEPT`.

    Of more than `MAX_PLACES_KEPT` places each rank keeps half of its own, until they fit: those it waits in, and the last used.
    """
    found = [*kept, *added][:MAX_RANK_STACKS_KEPT]
    while sum(len(stack.collectives) for stack in found) > MAX_PLACES_KEPT:
        longest = max(len(stack.collectives) for stack in found)
        found = [
            replace(stack, collectives=stack.collectives[: longest // 2])
            if len(stack.collectives) > longest // 2
            else stack
            for stack in found
        ]
    return found


def without_records(rank_stacks: Iterable[RankStack]) -> list[RankStack]:
    """Return stacks as they are known without a flight recorder."""
    return [replace(rank_stack, collectives=()) for rank_stack in rank_stacks]


def _together(rank_stacks: Iterable[RankStack]) -> list[RankStack]:
    ranks: dict[RankStack, list[int]] = {}
    for rank_stack in rank_stacks:
        ranks.setdefault(replace(rank_stack, ranks=()), []).extend(rank_stack.ranks)
    return [replace(rank_stack, ranks=tuple(sorted(of))) for rank_stack, of in ranks.items()]
