"""Nodes: what follows from a node's state alone, asked by everybody who decides about nodes."""

from __future__ import annotations

from runner.decide.decision import Decision
from runner.decide.state.cluster_state import OUT, Attempt, Node, Run, State
from runner.facts.messages import records as r
from runner.facts.specs.cluster import ClusterSpec

LIVE = ("preparing", "prepared", "launching", "running", "asked", "stopping")


def is_up(node: Node) -> bool:
    """Whether its agent is heard, as far as is known: it is in service, and not under suspicion for silence."""
    return not node.ended and (node.state in ("spare", "active", "checking") or node.held)


def has_left(node: Node) -> bool:
    """Whether nothing of ours runs on it any more: it may be out of service besides."""
    return node.state == "left" or (node.state in OUT and node.ended)


def free_state(cluster: ClusterSpec, *, unchecked: bool) -> r.NodeStateName:
    """Return what a node without ranks is: a spare, unless it has yet to pass its checks."""
    return "checking" if unchecked and cluster.checks else "spare"


def live_attempt(draft: Decision, node: Node) -> tuple[Run, Attempt] | None:
    """Return the run and attempt that this node serves or still has to be cleared of, while that attempt lives."""
    for name in (node.attempt, node.uncleared):
        attempt = draft.state.attempt_of(name) if name is not None else None
        if attempt is not None and attempt.state in LIVE and node.node in attempt.nodes:
            return draft.run_of(attempt.attempt), attempt
    return None


def run_served(state: State, node: Node) -> Run | None:
    """Return the run whose gang this node is part of, or was until just now, the next attempt being still to be planned."""
    for run in state.runs.values():
        attempt = run.attempt
        if attempt is None or node.node not in attempt.nodes:
            continue
        if attempt.state != "ended" or run.state == "active":
            return run
    return None
