"""Spares: how many there should be, and the page when they run low."""

import math

from runner.decide.decision import Decision
from runner.decide.state.cluster_state import LAUNCHED, State
from runner.facts.messages import records as r
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.wording import counted

# Probability that the recommended spares are enough: as ByteRobust sizes its own.
ENOUGH = 0.99


def recommended_spares(cluster: ClusterSpec, nodes: int) -> int:
    """Return how many spares `nodes` serving nodes need, so that with 99 % probability each one out of service is replaced.

    The nodes that are out at one time are binomial: each is out for the share of time that its repairs take.
    """
    share = min(1.0, cluster.failures_per_1000_node_days / 1000 * cluster.repair_hours / 24)
    if share >= 1.0:
        return nodes
    # In logarithms: the probability that none of very many nodes is out is too small for a float.
    log_in, log_out = math.log1p(-share), math.log(share)
    below = 0.0
    for out in range(nodes + 1):
        ways = math.lgamma(nodes + 1) - math.lgamma(out + 1) - math.lgamma(nodes - out + 1)
        below += math.exp(ways + out * log_out + (nodes - out) * log_in)
        if below >= ENOUGH:
            return out
    return nodes


def serving(state: State) -> int:
    """Return how many nodes the runs of the cluster need; spares are recommended for so many."""
    return sum(run.spec.nodes for run in state.runs.values() if run.is_wanted)


def num_spares(state: State) -> int:
    """Return how many spares are not being drained, and are not kept for a run that is held."""
    kept: dict[str, None] = {}
    for run in state.runs.values():
        if run.hold is not None and not run.hold.releases_nodes and run.attempt is not None:
            kept |= dict.fromkeys(run.attempt.nodes)
    return sum(
        node.state == "spare" and node.pending_drain is None and node.node not in kept
        for node in state.nodes.values()
    )


def _may_be_more(state: State) -> bool:
    """Whether a node may become a spare soon: it is being probed, or checked."""
    return any(
        node.attempt is None
        and not node.devices_busy
        and node.pending_drain is None
        and node.state in ("joining", "checking", "suspect")
        for node in state.nodes.values()
    )


def settle(decision: Decision) -> None:
    """Record when the spares run low, and when there are enough again; not while a run is between two attempts.

    While a run waits for nodes, there are not enough.
    """
    state, wanted = decision.state, decision.policy.cluster.spares_low
    runs = [run for run in state.runs.values() if run.is_wanted]
    if wanted == 0 or state.closing:
        return
    settled = all(
        run.state in ("waiting", "paused")
        or (run.attempt is not None and run.attempt.state in LAUNCHED)
        for run in runs
    )
    if not settled or not (runs or state.spares_low):
        return
    spares = num_spares(state)
    enough = spares >= wanted and all(run.state != "waiting" for run in runs)
    if enough and (state.spares_low or not state.spares_reached):
        decision.add(r.SparesRecorded(low=False, spares=spares, wanted=wanted))
    elif spares < wanted and runs and state.spares_reached and not _may_be_more(state):
        decision.add(r.SparesRecorded(low=True, spares=spares, wanted=wanted))
        advice = recommended_spares(decision.policy.cluster, serving(state))
        left = f"spares: {spares} left, {wanted} wanted (spares_low)"
        nodes = counted(serving(state), "serving node")
        more = f"; {advice} recommended for {nodes}" if advice else ""
        decision.page(left + more)
