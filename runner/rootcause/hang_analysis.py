"""Find the missing ranks of a gang that hangs, from the stacks of its ranks. Pure; a doubtful case names no rank.

1. Recorded: by the records of torch's flight recorder, the others wait for these ranks, which wait for none (`flight_analysis`, as
   `stoker diagnose --flight`). They may be on several nodes. A rank without a record is named where its stack shows that it works.
2. Absent: a rank in a function of `blocking_calls` waits for others. A rank absent while others block is missing, even if they
   block in different calls: one rank, or fewer ranks than wait, all on one node.
3. At work: without GPUs, a rank that computes or sleeps by itself is missing while all others are idle in calls that may wait.
4. Stack outliers: where that separates no rank from the others, a rank whose stack differs from most of its pipeline stage is
   missing: it skipped a collective, or never reached any. Not if a rank waits for one peer only, since ranks of a pipeline
   normally differ. Nor if the outlier waits and the others work: they are late.
Otherwise no rank is named, and the evidence says how the ranks divide.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from runner.facts.messages.rank_stacks import RankStack
from runner.rootcause.blocking_calls import (
    blocking_frame,
    file_and_function,
    may_wait,
    peers_awaited,
    user_frame,
)
from runner.rootcause.flight.flight_analysis import FlightVerdict, find_awaited_ranks
from runner.rootcause.flight.rank_spans import describe_ranks

# Groups that the evidence lists; chosen.
MAX_GROUPS = 4
# Ranks whose reasons it gives; chosen.
MAX_REASONS = 8
# Characters that describe one stack; chosen.
MAX_DESCRIPTION = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingRanks:
    """What the stacks show. `ranks` are missing; `node` is theirs if they share one, `rank` is the only one of them."""

    evidence: str
    node: str | None = None
    rank: int | None = None
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Gang:
    """The ranks of a gang: the stack and the node of each."""

    nodes: Sequence[str]
    ranks_per_node: int
    stages: int
    # Of the ranks whose stacks were read.
    stacks: dict[int, RankStack]
    has_gpus: bool = False

    @property
    def num_ranks(self) -> int:
        return len(self.nodes) * self.ranks_per_node

    def node_of(self, rank: int) -> str:
        return self.nodes[rank // self.ranks_per_node]

    def common_node(self, ranks: Sequence[int]) -> str | None:
        """Return the node that all of these ranks are on, if it is one."""
        first = self.node_of(ranks[0])
        return first if all(self.node_of(rank) == first for rank in ranks) else None


def find_missing_ranks(
    stacks: Sequence[RankStack],
    *,
    nodes: Sequence[str],
    ranks_per_node: int,
    pipeline: int = 1,
    has_gpus: bool = False,
) -> MissingRanks | None:
    """Return the missing ranks, or how the ranks divide; None when no stack was read.

    `nodes` in the order of their ranks; `pipeline`: stages, through which ranks count last. `has_gpus`: a rank that sleeps below
    a line of user code may wait for its GPU, and the GPU for the other ranks.
    """
    num_ranks = len(nodes) * ranks_per_node
    stages = pipeline if pipeline > 0 and num_ranks % pipeline == 0 else 1
    read = {
        rank: stack
        for stack in stacks
        if stack.frames or stack.collectives or stack.state in ("T", "D")
        for rank in stack.ranks
        if 0 <= rank < num_ranks
    }
    if not read:
        return None
    gang = _Gang(nodes, ranks_per_node, stages, dict(sorted(read.items())), has_gpus)
    recorded = _recorded(gang)
    if recorded.culprits:
        return _missing(gang, recorded.ranks, [each.reason for each in recorded.culprits])
    missing = _absent(gang) or _at_work(gang) or _stack_outliers(gang)
    if not missing:
        return MissingRanks(evidence=_describe_division(gang))
    return _missing(gang, missing)


def _missing(gang: _Gang, ranks: Sequence[int], reasons: Sequence[str] = ()) -> MissingRanks:
    node = gang.common_node(ranks)
    # A rank without a stack has no place that could be described.
    is_described = node is not None and all(rank in gang.stacks for rank in ranks)
    places = _describe_missing(gang, ranks) if is_described else _describe_division(gang)
    more = ["..."] if len(reasons) > MAX_REASONS else []
    return MissingRanks(
        evidence="; ".join([*reasons[:MAX_REASONS], *more, places]),
        node=node,
        rank=ranks[0] if len(ranks) == 1 else None,
        ranks=tuple(ranks),
    )


def _is_waiting(stack: RankStack) -> bool:
    """Whether a rank waits for others. A stopped rank does not, whatever its stack: it would not go on if they came."""
    is_in_one = any(each.waits_at for each in stack.collectives)
    return stack.state != "T" and (is_in_one or peers_awaited(stack.frames) is not None)


def _recorded(gang: _Gang) -> FlightVerdict:
    """Return the ranks that others wait for by flight records. What a rank without a record does, only its stack can show."""
    places = {rank: stack.collectives for rank, stack in gang.stacks.items() if stack.collectives}
    waiting = [rank for rank in range(gang.num_ranks) if _may_wait_unrecorded(gang, rank)]
    return find_awaited_ranks(places, num_ranks=gang.num_ranks, waiting=waiting)


def _may_wait_unrecorded(gang: _Gang, rank: int) -> bool:
    """Whether a rank waits by its stack, or may do so where no record shows the contrary."""
    stack = gang.stacks.get(rank)
    if stack is None:
        return True
    if stack.collectives:
        return _is_waiting(stack) and not any(each.waits_at for each in stack.collectives)
    return _is_waiting(stack) or _may_be_waiting(gang, rank)


def _absent(gang: _Gang) -> list[int]:
    """Return the ranks that do not wait while the others do; empty when that is not clear."""
    absent = [rank for rank, stack in gang.stacks.items() if not _is_waiting(stack)]
    num_waiting = len(gang.stacks) - len(absent)
    # The stacks of most ranks must be known.
    if not absent or not num_waiting or 2 * len(gang.stacks) <= gang.num_ranks:
        return []
    if any(_may_be_waiting(gang, rank) for rank in absent):
        return []
    return absent if _are_few(gang, absent, num_waiting) else []


def _are_few(gang: _Gang, absent: Sequence[int], num_waiting: int) -> bool:
    """Whether the absent are one rank, or fewer ranks than wait, all on one node."""
    is_fewer = len(absent) < num_waiting
    return len(absent) == 1 or (is_fewer and gang.common_node(absent) is not None)


def _at_work(gang: _Gang) -> list[int]:
    """Return the ranks that compute or sleep by themselves while all others may wait; empty when that is not clear.

    Without GPUs, a rank that is idle in a call of the kind that may wait does wait: its work would be done by its own thread.
    """
    at_work = [rank for rank, stack in gang.stacks.items() if _works_by_itself(stack)]
    others = [stack for rank, stack in gang.stacks.items() if rank not in at_work]
    if gang.has_gpus or not at_work or not others or 2 * len(gang.stacks) <= gang.num_ranks:
        return []
    if not all(stack.state == "S" and may_wait(stack.frames) for stack in others):
        return []
    return at_work if _are_few(gang, at_work, len(others)) else []


def _works_by_itself(stack: RankStack) -> bool:
    """Whether a rank is outside all calls that wait, and computes, sleeps for a time of its own, or waits for a device."""
    is_busy = stack.state in ("R", "D", "T") or "nanosleep" in stack.wchan
    return is_busy and bool(stack.frames) and not may_wait(stack.frames)


def _may_be_waiting(gang: _Gang, rank: int) -> bool:
    """Whether a rank may wait where Python shows no frame, mostly for a GPU, which waits for other ranks."""
    stack = gang.stacks[rank]
    sleeps = stack.state not in ("R", "D", "T")
    if stack.state == "T" or _is_waiting(stack):
        return False
    return may_wait(stack.frames) or (gang.has_gpus and sleeps and not stack.collectives)


def _stack_outliers(gang: _Gang) -> list[int]:
    """Return the ranks whose stacks differ from most of their stage; empty when that is not clear."""
    if any(peers_awaited(stack.frames) == "peer" for stack in gang.stacks.values()):
        return []
    # At the same line of the same call; else in the same function, at any line.
    for place_of in (str, file_and_function):
        apart = _minority(gang, place_of)
        if apart is not None:
            return apart if apart and _are_missing(gang, apart) else []
    return []


def _are_missing(gang: _Gang, apart: Sequence[int]) -> bool:
    """Whether the outliers share a node, and do not wait while the others may be at work."""
    others_may_wait = all(
        may_wait(stack.frames) for rank, stack in gang.stacks.items() if rank not in apart
    )
    if any(_may_be_waiting(gang, rank) for rank in apart):
        return False
    waiting = any(_is_waiting(gang.stacks[rank]) for rank in apart)
    return gang.common_node(apart) is not None and (others_may_wait or not waiting)


def _minority(gang: _Gang, place_of: Callable[[str], Hashable]) -> list[int] | None:
    """Return the ranks outside the majority of their stage; None where a stage has no majority."""
    size, apart = gang.num_ranks // gang.stages, list[int]()
    for first in range(0, gang.num_ranks, size):
        groups: dict[Hashable, list[int]] = {}
        for rank in range(first, first + size):
            if rank in gang.stacks:
                groups.setdefault(_key(gang.stacks[rank], place_of), []).append(rank)
        most = max(groups.values(), key=len, default=[])
        if 2 * len(most) <= size:
            return None
        apart += [rank for ranks in groups.values() if ranks is not most for rank in ranks]
    return sorted(apart)


def _key(stack: RankStack, place_of: Callable[[str], Hashable]) -> Hashable:
    """Return what ranks at the same place have in common."""
    if not stack.frames or stack.state == "T":
        return stack.state, stack.wchan
    return place_of(_innermost(stack)), place_of(user_frame(stack.frames))


def _innermost(stack: RankStack) -> str:
    return blocking_frame(stack.frames) or stack.frames[0]


# ---- evidence


def _describe_missing(gang: _Gang, missing: Sequence[int]) -> str:
    others = {rank: stack for rank, stack in gang.stacks.items() if rank not in missing}
    node = gang.node_of(missing[0])
    apart = _by_description({rank: gang.stacks[rank] for rank in missing})
    if len(missing) == 1:
        (place, _), *_ = apart
        who = f"rank {missing[0]} on {node} is in {place}"
    else:
        who = f"{describe_ranks(missing)} on {node} are{_describe_groups(apart)}"
    groups = _by_description(others)
    is_one, wait = len(others) == 1, all(_is_waiting(stack) for stack in others.values())
    verb = _verb(wait=wait, is_one=is_one)
    if is_one:
        (place, (other,)), *_ = groups
        rest = f"rank {other} on {gang.node_of(other)} {verb} in {place}"
    else:
        rest = f"the other {len(others)} {verb}{_describe_groups(groups)}"
    return f"{who}, {rest}{_describe_unread(gang)}"


def _describe_division(gang: _Gang) -> str:
    groups, num = _by_description(gang.stacks), len(gang.stacks)
    if len(groups) > 1:
        return (
            f"the ranks divide, no rank is named{_describe_groups(groups)}{_describe_unread(gang)}"
        )
    wait = all(_is_waiting(stack) for stack in gang.stacks.values())
    ranks = f"all {num} ranks" if num > 1 else describe_ranks(list(gang.stacks))
    who = f"{ranks} {_verb(wait=wait, is_one=num == 1)}"
    return (
        f"{who}{_describe_groups(groups)}: the missing rank does not show{_describe_unread(gang)}"
    )


def _verb(*, wait: bool, is_one: bool) -> str:
    if wait:
        return "waits" if is_one else "wait"
    return "is" if is_one else "are"


def _by_description(stacks: dict[int, RankStack]) -> list[tuple[str, list[int]]]:
    """Return descriptions with their ranks, the most ranks first."""
    groups: dict[str, list[int]] = {}
    # Most ranks of a gang have the same stack.
    descriptions: dict[object, str] = {}
    for rank, stack in stacks.items():
        key = replace(stack, ranks=())
        text = descriptions.get(key) or descriptions.setdefault(key, _describe(stack))
        groups.setdefault(text, []).append(rank)
    return sorted(groups.items(), key=lambda group: (-len(group[1]), group[1]))


def _describe_groups(groups: Sequence[tuple[str, list[int]]]) -> str:
    """Return the only description, or how many ranks share each."""
    if len(groups) == 1:
        return f" in {groups[0][0]}"
    listed = "; ".join(
        f"{len(ranks)} in {place} ({describe_ranks(ranks)})" for place, ranks in groups[:MAX_GROUPS]
    )
    more = sum(len(ranks) for _, ranks in groups[MAX_GROUPS:])
    return f": {listed}" + (f"; {more} elsewhere" if more else "")


def _describe(stack: RankStack) -> str:
    """Return a rank's innermost frame, and the line of user code that led there."""
    blocked = f"state {stack.state}" + (f" in {stack.wchan}" if stack.wchan else "")
    within = _describe_collective(stack)
    if not stack.frames:
        return f"{blocked}{within}"
    inner, caller = _innermost(stack), user_frame(stack.frames)
    called = f" from {_without_folders(caller)}" if caller and caller != inner else ""
    state = f" ({blocked})" if stack.state in ("T", "D") else ""
    return f"{_without_folders(inner)}{called}{state}"[:MAX_DESCRIPTION] + within


def _describe_collective(stack: RankStack) -> str:
    """Return the collective that a rank waits in, or reached last; "" without a flight record."""
    if not stack.collectives:
        return ""
    last = stack.collectives[0]
    if last.is_between_peers:
        return f", in {last.operation} with a peer"
    verb = "in" if last.waits_at else "after"
    return f", {verb} {last.operation} {last.waits_at or last.sequence} of group {last.group}"


def _without_folders(frame: str) -> str:
    file, _, rest = frame.partition(":")
    return f"{file.rpartition('/')[2]}:{rest}"


def _describe_unread(gang: _Gang) -> str:
    unread = gang.num_ranks - len(gang.stacks)
    return f"; {unread} could not be read" if unread else ""
