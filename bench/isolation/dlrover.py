"""dlrover's check of nodes, by its published source: two rounds of pairs, and a node is normal if either was.

The first round pairs neighbours, an odd node makes a group of three. The second sorts nodes by the time of the first and pairs the
fastest with the slowest. A group's time is that of its slowest node's computation and of their exchange, which it does not tell
apart; results are not compared with anything. Two rules: its own (failed in both rounds, or at least time beyond twice the
median), and ours for rates in place of its limit.
"""

import math
import statistics
from collections.abc import Sequence

from bench.isolation.model import World
from runner.decide.isolate.peers import peer_limit

# A straggler's time in medians of all.
STRAGGLER_RATIO = 2.0


def bad_nodes(world: World) -> tuple[set[str], set[str]]:
    """Return the nodes that two rounds blame: by its own rule, and by our limit for rates."""
    nodes = list(world.nodes)
    groups = [nodes[at : at + 2] for at in range(0, len(nodes), 2)]
    if len(groups) > 1 and len(groups[-1]) == 1:
        groups[-2] += groups.pop()
    first = _times(world, groups)
    ordered = sorted(nodes, key=lambda node: first[node])
    middle = len(ordered) // 2
    groups = [[ordered[at], ordered[-1 - at]] for at in range(middle)]
    if len(ordered) % 2:
        groups[-1].append(ordered[middle])
    second = _times(world, groups)
    return _by_times(nodes, first, second), _by_limit(nodes, first, second)


def _times(world: World, groups: Sequence[Sequence[str]]) -> dict[str, float]:
    times: dict[str, float] = {}
    for group in groups:
        pairs = [(a, b) for at, a in enumerate(group) for b in group[at + 1 :]]
        exchange = min((world.pair_share(a, b) for a, b in pairs), default=1.0)
        compute = min(world.compute_share(node) for node in group)
        seconds = 1 / exchange + 1 / compute if exchange > 0 else math.inf
        seconds /= world.noise()
        times.update(dict.fromkeys(group, seconds))
    return times


def _by_times(nodes: list[str], first: dict[str, float], second: dict[str, float]) -> set[str]:
    least = {node: min(first[node], second[node]) for node in nodes}
    finite = [seconds for seconds in least.values() if math.isfinite(seconds)]
    limit = STRAGGLER_RATIO * statistics.median(finite) if finite else math.inf
    return {node for node, seconds in least.items() if seconds > limit or math.isinf(seconds)}


def _by_limit(nodes: list[str], first: dict[str, float], second: dict[str, float]) -> set[str]:
    bad_in = []
    for times in (first, second):
        rates = [1 / seconds for seconds in times.values() if math.isfinite(seconds)]
        least = peer_limit(rates).least if rates else 0.0
        bad_in.append(
            {node for node in nodes if math.isinf(times[node]) or 1 / times[node] < least}
        )
    return bad_in[0] & bad_in[1]
