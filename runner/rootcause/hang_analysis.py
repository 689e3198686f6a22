"""Dossier: who is missing in a gang that hangs, from where its ranks stood. Pure; names nobody it is not sure of.

1. Where torch's flight recorder was read of all ranks: those who wait for nothing, if they never came to a collective that others
   wait in; or one that waits in another operation than most of its group, at the same place in its sequence.
2. Ranks that wait for others in a function known for it (`waits`) are there. Whoever is not there while they wait is missing, be
   the waiters in different calls: one rank, or fewer ranks than wait, all of one node.
3. Where that tells nobody from the others, a rank that stands elsewhere than most others of its pipeline stage is missing: it
   waits in another collective because it skipped one, or never came to any. Not when somebody waits for one peer only: ranks of a
   pipeline stand in different places as a matter of course. Nor when it waits and the others are at work: they are late, not it.
Else nobody is named, and the evidence says how the ranks divide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from runner.decide.decision import Decision
from runner.decide.state.cluster_state import Attempt
from runner.facts.messages import records as r
from runner.facts.messages.rank_stacks import MAX_STANDS, MAX_STANDS_KEPT, PEERS, RankStack, merged
from runner.facts.messages.signals import RanksTerminated
from runner.rootcause.blocking_calls import blocking_of, caller_of, may_wait, split, wait_of

# that are told of ranks that divide; chosen
MAX_GROUPS = 4
# by number, of one group; chosen
MAX_RANKS_TOLD = 8
# characters of one place in words; chosen
MAX_WORDS = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """What the stands say. `node` is None when nobody is named; `rank` also when several ranks of a node are missing."""

    evidence: str
    node: str | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class _Gang:
    """The ranks of a gang: who stood where, and which node each belongs to."""

    nodes: Sequence[str]
    ranks_per_node: int
    stages: int
    # of ranks that were read
    stands: dict[int, RankStack]
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


# ---- what nodes tell ------------------------------------------------------------------------------------------------


def own_stands(draft: Decision, attempt: Attempt, gone: RanksTerminated) -> tuple[RankStack, ...]:
    """Return where a node's ranks stood, of its own ranks only and no more than may be kept."""
    if not gone.stands or gone.node not in attempt.nodes:
        return ()
    size = draft.run_of(attempt.attempt).spec.ranks_per_node
    first = attempt.nodes.index(gone.node) * size
    own = [
        replace(stand, ranks=tuple(rank for rank in stand.ranks if first <= rank < first + size))
        for stand in gone.stands[:MAX_STANDS]
    ]
    return tuple(stand for stand in own if stand.ranks)


def note_missing(draft: Decision, attempt: Attempt, node: str, stands: Sequence[RankStack]) -> None:
    """Once no other node of the gang is waited for, say who is missing. It explains; what is done stays done."""
    incident = draft.state.incidents.get(attempt.incident or "")
    if incident is None or not (stands or attempt.stands):
        return
    nodes = draft.state.nodes
    if any(
        name != node
        and nodes[name].uncleared == attempt.attempt
        # of one in doubt nobody knows when it will speak
        and nodes[name].state == "active"
        for name in attempt.nodes
    ):
        return
    spec = draft.run_of(attempt.attempt).spec
    missing = judge(
        merged([*attempt.stands, *stands], most=MAX_STANDS_KEPT),
        nodes=attempt.nodes,
        ranks_per_node=spec.ranks_per_node,
        pipeline=spec.pipeline,
        has_gpus=any(_has_gpus(draft, name) for name in attempt.nodes),
    )
    if missing is None or missing.evidence in incident.evidence:
        return
    # Whoever was stopped, or was seen to be blocked, is known without this.
    named = incident.fault == "no_progress" and incident.node is None
    draft.add(
        r.IncidentAmended(
            incident=incident.incident,
            evidence=missing.evidence,
            node=missing.node if named else None,
            rank=missing.rank if named else None,
        )
    )


def _has_gpus(draft: Decision, name: str) -> bool:
    hardware = draft.state.hardware.get(draft.state.nodes[name].hardware)
    return hardware is not None and any(part.startswith("gpu:") for part in hardware.parts)


# ---- who is missing -------------------------------------------------------------------------------------------------


def judge(
    stands: Sequence[RankStack],
    *,
    nodes: Sequence[str],
    ranks_per_node: int,
    pipeline: int = 1,
    has_gpus: bool = False,
) -> Missing | None:
    """Say who is missing, or how the ranks divide; None when nothing was read.

    `nodes` in the order of their ranks; `pipeline`: stages, through which ranks count last. `has_gpus`: a rank that sleeps below
    a line of the user's may wait for its GPU, and that for the others.
    """
    num_ranks = len(nodes) * ranks_per_node
    stages = pipeline if pipeline > 0 and num_ranks % pipeline == 0 else 1
    read = {
        rank: stand
        for stand in stands
        if stand.frames or stand.collectives or stand.state in ("T", "D")
        for rank in stand.ranks
        if 0 <= rank < num_ranks
    }
    if not read:
        return None
    gang = _Gang(nodes, ranks_per_node, stages, dict(sorted(read.items())), has_gpus)
    missing = _behind(gang) or _astray(gang) or _not_there(gang) or _elsewhere(gang)
    if not missing:
        return Missing(evidence=_divided(gang))
    rank = missing[0] if len(missing) == 1 else None
    return Missing(evidence=_named(gang, missing), node=gang.node_of(missing[0]), rank=rank)


def _waits(stand: RankStack) -> bool:
    """Whether a rank waits for others. One that was stopped does not, wherever it stands: it would not go on if they came."""
    is_in_one = any(each.waits_at for each in stand.collectives)
    return stand.state != "T" and (is_in_one or wait_of(stand.frames) is not None)


def _are_all_known(gang: _Gang) -> bool:
    """Whether of each rank it is known in which collectives it is, or else that it waits."""
    return len(gang.stands) == gang.num_ranks and all(
        stand.collectives or _waits(stand) for stand in gang.stands.values()
    )


def _behind(gang: _Gang) -> list[int]:
    """Return those who never came to a collective that others of its group wait in, if they are all who wait for nothing."""
    furthest: dict[str, int] = {}
    for stand in gang.stands.values():
        for each in stand.collectives:
            furthest[each.group] = max(furthest.get(each.group, 0), each.waits_at)
    idle = [rank for rank, stand in gang.stands.items() if not _waits(stand)]
    if not idle or not _are_all_known(gang) or gang.common_node(idle) is None:
        return []
    are_behind = all(
        any(each.sequence < furthest[each.group] for each in gang.stands[rank].collectives)
        for rank in idle
    )
    return idle if are_behind else []


def _astray(gang: _Gang) -> list[int]:
    """Return those who wait in another operation than most ranks that are as far in the same group: they left one out."""
    if not _are_all_known(gang):
        return []
    places: dict[tuple[str, int], dict[str, list[int]]] = {}
    for rank, stand in gang.stands.items():
        for each in stand.collectives:
            if each.waits_at and each.group != PEERS and _waits(stand):
                at = places.setdefault((each.group, each.waits_at), {})
                at.setdefault(each.operation, []).append(rank)
    for operations in places.values():
        most = max(operations.values(), key=len)
        apart = [rank for ranks in operations.values() if ranks is not most for rank in ranks]
        if apart and len(apart) < len(most) and gang.common_node(apart) is not None:
            return sorted(apart)
    return []


def _not_there(gang: _Gang) -> list[int]:
    """Return those who do not wait while the others do; nobody when that is not clear."""
    absent = [rank for rank, stand in gang.stands.items() if not _waits(stand)]
    num_waiting = len(gang.stands) - len(absent)
    if not absent or not num_waiting or 2 * len(gang.stands) <= gang.num_ranks:
        # of most ranks nothing is known
        return []
    if any(_is_open(gang, rank) for rank in absent):
        return []
    is_few = len(absent) == 1 or (
        len(absent) < num_waiting and gang.common_node(absent) is not None
    )
    return absent if is_few else []


def _is_open(gang: _Gang, rank: int) -> bool:
    """Whether a rank may wait all the same, where Python shows no frame: most of all for a GPU, which waits for the others."""
    stand = gang.stands[rank]
    sleeps = stand.state not in ("R", "D", "T")
    if stand.state == "T" or _waits(stand):
        return False
    return may_wait(stand.frames) or (gang.has_gpus and sleeps and not stand.collectives)


def _elsewhere(gang: _Gang) -> list[int]:
    """Return those who stand elsewhere than most of their stage; nobody when that is not clear."""
    if any(wait_of(stand.frames) == "peer" for stand in gang.stands.values()):
        return []
    for place in (_line, _function):
        apart = _apart(gang, place)
        if apart is not None:
            return apart if apart and _are_to_blame(gang, apart) else []
    return []


def _are_to_blame(gang: _Gang, apart: Sequence[int]) -> bool:
    """Whether it is these who are missing: they are of one node, and do not wait while the others may be at work."""
    others_may_wait = all(
        may_wait(stand.frames) for rank, stand in gang.stands.items() if rank not in apart
    )
    if any(_is_open(gang, rank) for rank in apart):
        return False
    waiting = any(_waits(gang.stands[rank]) for rank in apart)
    return gang.common_node(apart) is not None and (others_may_wait or not waiting)


def _apart(gang: _Gang, place: Callable[[RankStack], tuple[str, ...]]) -> list[int] | None:
    """Return the ranks that are not with the majority of their stage; None where a stage has none."""
    size, apart = gang.num_ranks // gang.stages, list[int]()
    for first in range(0, gang.num_ranks, size):
        groups: dict[tuple[str, ...], list[int]] = {}
        for rank in range(first, first + size):
            if rank in gang.stands:
                groups.setdefault(place(gang.stands[rank]), []).append(rank)
        most = max(groups.values(), key=len, default=[])
        if 2 * len(most) <= size:
            return None
        apart += [rank for ranks in groups.values() if ranks is not most for rank in ranks]
    return sorted(apart)


def _line(stand: RankStack) -> tuple[str, ...]:
    """Return what ranks at the same line of the same call have in common."""
    if not stand.frames or stand.state == "T":
        return stand.state, stand.wchan
    return _innermost(stand), caller_of(stand.frames)


def _function(stand: RankStack) -> tuple[str, ...]:
    """Return what ranks in the same function have in common, at whatever line."""
    if not stand.frames or stand.state == "T":
        return stand.state, stand.wchan
    return split(_innermost(stand)) + split(caller_of(stand.frames))


def _innermost(stand: RankStack) -> str:
    return blocking_of(stand.frames) or stand.frames[0]


# ---- in words -------------------------------------------------------------------------------------------------------


def _named(gang: _Gang, missing: Sequence[int]) -> str:
    others = {rank: stand for rank, stand in gang.stands.items() if rank not in missing}
    node = gang.node_of(missing[0])
    apart = _groups({rank: gang.stands[rank] for rank in missing})
    if len(missing) == 1:
        (place, _), *_ = apart
        who = f"rank {missing[0]} on {node} stands in {place}"
    else:
        who = f"{_ranks(missing)} on {node} stand{_places(apart)}"
    groups = _groups(others)
    verb = "wait" if all(_waits(stand) for stand in others.values()) else "stand"
    if len(others) == 1:
        (place, (other,)), *_ = groups
        rest = f"rank {other} on {gang.node_of(other)} {verb}s in {place}"
    else:
        rest = f"the other {len(others)} {verb}{_places(groups)}"
    return f"{who}, {rest}{_unread(gang)}"


def _divided(gang: _Gang) -> str:
    groups, num = _groups(gang.stands), len(gang.stands)
    if len(groups) > 1:
        return f"the ranks divide, and nobody is named{_places(groups)}{_unread(gang)}"
    verb = "wait" if all(_waits(stand) for stand in gang.stands.values()) else "stand"
    who = f"all {num} ranks {verb}" if num > 1 else f"{_ranks(list(gang.stands))} {verb}s"
    return f"{who}{_places(groups)}: who is missing does not show{_unread(gang)}"


def _groups(stands: dict[int, RankStack]) -> list[tuple[str, list[int]]]:
    """Return places in words with their ranks, the most ranks first."""
    groups: dict[str, list[int]] = {}
    # most ranks of a gang stand in the same way
    words: dict[object, str] = {}
    for rank, stand in stands.items():
        where = replace(stand, ranks=())
        said = words.get(where) or words.setdefault(where, _words(stand))
        groups.setdefault(said, []).append(rank)
    return sorted(groups.items(), key=lambda group: (-len(group[1]), group[1]))


def _places(groups: Sequence[tuple[str, list[int]]]) -> str:
    """Say in which place they are, or how many in which."""
    if len(groups) == 1:
        return f" in {groups[0][0]}"
    told = "; ".join(
        f"{len(ranks)} in {place} ({_ranks(ranks)})" for place, ranks in groups[:MAX_GROUPS]
    )
    more = sum(len(ranks) for _, ranks in groups[MAX_GROUPS:])
    return f": {told}" + (f"; {more} elsewhere" if more else "")


def _words(stand: RankStack) -> str:
    """Say where a rank stands: its innermost frame, and the user's own line that led there."""
    blocked = f"state {stand.state}" + (f" in {stand.wchan}" if stand.wchan else "")
    within = _collective(stand)
    if not stand.frames:
        return f"{blocked}{within}"
    inner, caller = _innermost(stand), caller_of(stand.frames)
    called = f" from {_short(caller)}" if caller and caller != inner else ""
    found_so = f" ({blocked})" if stand.state in ("T", "D") else ""
    return f"{_short(inner)}{called}{found_so}"[:MAX_WORDS] + within


def _collective(stand: RankStack) -> str:
    """Say which collective a rank waits in, or came to last; "" where no record was read."""
    if not stand.collectives:
        return ""
    last = stand.collectives[0]
    if last.group == PEERS:
        return f", in {last.operation} with a peer"
    verb = "in" if last.waits_at else "after"
    return f", {verb} {last.operation} {last.waits_at or last.sequence} of group {last.group}"


def _short(frame: str) -> str:
    file, _, rest = frame.partition(":")
    return f"{file.rpartition('/')[2]}:{rest}"


def _ranks(ranks: Sequence[int]) -> str:
    """Name ranks: `rank 3`, `ranks 0-3, 8`."""
    spans: list[list[int]] = []
    for rank in ranks:
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    told = ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in spans[:MAX_RANKS_TOLD])
    more = ", ..." if len(spans) > MAX_RANKS_TOLD else ""
    return f"rank{'s' * (len(ranks) > 1)} {told}{more}"


def _unread(gang: _Gang) -> str:
    unread = gang.num_ranks - len(gang.stands)
    return f"; {unread} could not be read" if unread else ""
