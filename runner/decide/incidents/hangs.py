"""Hangs: once the nodes of a gang have reported their stacks, its incident names the missing ranks."""

from collections.abc import Sequence

from msgspec.structs import replace

from runner.decide.decision import Decision
from runner.decide.state.cluster_state import Attempt
from runner.facts.messages.rank_stacks import MAX_RANK_STACKS, RankStack, gathered
from runner.facts.messages.signals import RanksTerminated
from runner.rootcause.hang_analysis import find_missing_ranks


def own_rank_stacks(
    decision: Decision, attempt: Attempt, terminated: RanksTerminated
) -> tuple[RankStack, ...]:
    """Return the stacks that a node reports of its own ranks, no more than may be kept."""
    if not terminated.rank_stacks or terminated.node not in attempt.nodes:
        return ()
    size = decision.run_of(attempt.attempt).spec.ranks_per_node
    first = attempt.nodes.index(terminated.node) * size
    own = [
        replace(stack, ranks=tuple(rank for rank in stack.ranks if first <= rank < first + size))
        for stack in terminated.rank_stacks[:MAX_RANK_STACKS]
    ]
    return tuple(stack for stack in own if stack.ranks)


def amend_with_missing_ranks(
    decision: Decision, attempt: Attempt, node: str, stacks: Sequence[RankStack]
) -> None:
    """Once `node` is the last that reports, name the missing ranks. It explains; actions already issued stand."""
    incident = decision.state.incidents.get(attempt.incident or "")
    if incident is None or not (stacks or attempt.rank_stacks):
        return
    others = [decision.state.nodes[name] for name in attempt.nodes if name != node]
    # A node in doubt may never report, so it is not waited for.
    if any(x.ranks_may_run == attempt.attempt and x.state == "active" for x in others):
        return
    spec = decision.run_of(attempt.attempt).spec
    nodes, hardware = decision.state.nodes, decision.state.hardware
    machines = [hardware.get(nodes[name].hardware) for name in attempt.nodes]
    parts = [part for known in machines if known is not None for part in known.parts]
    missing = find_missing_ranks(
        gathered(attempt.rank_stacks, stacks),
        nodes=attempt.nodes,
        ranks_per_node=spec.ranks_per_node,
        pipeline=spec.pipeline,
        has_gpus=any(part.startswith("gpu:") for part in parts),
    )
    if missing is None or missing.evidence in incident.evidence:
        return
    # A stopped or blocked rank is named without this, and stays named.
    is_unnamed = incident.fault == "no_progress" and incident.node is None
    decision.amend(
        incident,
        missing.evidence,
        node=missing.node if is_unnamed else None,
        rank=missing.rank if is_unnamed else None,
    )
