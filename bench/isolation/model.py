"""The model: a fleet with faults and noise, which answers the measurements that an isolation asks for."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from runner.facts.messages.isolation import AloneResult, Measure, PairResult, Question

# Of a healthy rate: a slow part has a share of it, drawn evenly. Chosen; `SHARES` of the benchmark has others.
SLOW_SHARES = (0.1, 0.7)
# Noise as issue 16 states it: standard deviation of the logarithm, and the share of measurements that are halved.
SPREAD, HALVED_SHARE = 0.05, 0.01
# Nodes of a leaf switch; of fleets of up to 16 nodes.
LEAF_NODES, SMALL_LEAF_NODES, SMALL_FLEET = 8, 4, 16
# Between leaves, of the rate inside one.
ACROSS_SHARE = 0.8
# Trials with faults in which a path is broken, too.
PATH_SHARE = 1 / 3

Fault = Literal["slow link", "dead link", "slow compute", "wrong result"]
FAULTS: tuple[Fault, ...] = ("slow link", "dead link", "slow compute", "wrong result")
LINK_FAULTS: tuple[Fault, ...] = ("slow link", "dead link")
PathFault = Literal["", "pair", "leaves", "leaf"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What trials have in common. `num_bad` None: drawn from 1 to a third of the nodes."""

    name: str
    nodes: int
    num_bad: int | None = None
    # Of trials that have faults at all.
    fault_share: float = 1.0
    has_noise: bool = True
    has_paths: bool = True
    faults: tuple[Fault, ...] = FAULTS
    slow_shares: tuple[float, float] = SLOW_SHARES


@dataclass(slots=True)
class World:
    """One fleet with its faults. All chance comes from `dice`."""

    scenario: Scenario
    dice: random.Random
    nodes: tuple[str, ...] = ()
    leaf: dict[str, int] = field(default_factory=dict)
    # Bad node -> fault, and the share of the rate that is left.
    faults: dict[str, tuple[Fault, float]] = field(default_factory=dict)
    path_fault: PathFault = ""
    path_ends: tuple[str, str] = ("", "")
    path_share: float = 1.0

    def question(self) -> Question:
        """Return what an isolation is asked about this fleet."""
        leaves: dict[str, tuple[str, ...]] = {}
        for node in self.nodes:
            name = f"leaf{self.leaf[node]}"
            leaves[name] = (*leaves.get(name, ()), node)
        return Question(nodes=self.nodes, domains={"leaf": leaves})

    def is_on_path(self, a: str, b: str) -> bool:
        """Whether the broken path lies between two nodes."""
        if not self.path_fault:
            return False
        first, second = self.path_ends
        if self.path_fault == "pair":
            return {a, b} == {first, second}
        if self.path_fault == "leaves":
            return {self.leaf[a], self.leaf[b]} == {self.leaf[first], self.leaf[second]}
        return (self.leaf[a] == self.leaf[first]) != (self.leaf[b] == self.leaf[first])

    def fault(self, node: str) -> Fault | None:
        """Return what is wrong with a node."""
        return self.faults[node][0] if node in self.faults else None

    def compute_share(self, node: str) -> float:
        """Return what is left of a node's rate alone."""
        return self.faults[node][1] if self.fault(node) == "slow compute" else 1.0

    def pair_share(self, a: str, b: str) -> float:
        """Return what is left of a pair's rate: the least of both ends' and the path's; 0: it fails."""
        shares = [1.0 if self.leaf[a] == self.leaf[b] else ACROSS_SHARE]
        shares += [self.faults[node][1] for node in (a, b) if self.fault(node) in LINK_FAULTS]
        if self.is_on_path(a, b):
            shares.append(self.path_share)
        return min(shares)

    def noise(self) -> float:
        """Return the factor of one measurement."""
        if not self.scenario.has_noise:
            return 1.0
        halved = 0.5 if self.dice.random() < HALVED_SHARE else 1.0
        return self.dice.lognormvariate(0.0, SPREAD) * halved

    def results(self, step: Measure) -> Iterator[AloneResult | PairResult]:
        """Measure what a round asks for."""
        for node in step.alone:
            is_wrong = self.fault(node) == "wrong result"
            rate = 100.0 * self.compute_share(node) * self.noise()
            yield AloneResult(round=step.round, node=node, rate=rate, is_wrong=is_wrong)
        for a, b in step.pairs:
            share = self.pair_share(a, b)
            if share > 0:
                yield PairResult(round=step.round, nodes=(a, b), rate=40.0 * share * self.noise())
            else:
                yield PairResult(round=step.round, nodes=(a, b), failed=self._failed(a, b))

    def _failed(self, a: str, b: str) -> tuple[str, ...]:
        """Return the end that failed in half of the cases, else both: it does not show."""
        dead = [node for node in (a, b) if self.fault(node) == "dead link"]
        return (dead[0],) if len(dead) == 1 and self.dice.random() < 0.5 else (a, b)


def draw(scenario: Scenario, dice: random.Random) -> World:
    """Make a fleet with faults."""
    width = SMALL_LEAF_NODES if scenario.nodes <= SMALL_FLEET else LEAF_NODES
    nodes = tuple(f"n{index}" for index in range(scenario.nodes))
    world = World(scenario, dice, nodes=nodes)
    world.leaf = {node: index // width for index, node in enumerate(nodes)}
    if dice.random() >= scenario.fault_share:
        return world
    most = max(1, scenario.nodes // 3)
    num_bad = dice.randint(1, most) if scenario.num_bad is None else scenario.num_bad
    for node in dice.sample(nodes, num_bad):
        fault = dice.choice(scenario.faults)
        share = 0.0 if fault == "dead link" else dice.uniform(*scenario.slow_shares)
        world.faults[node] = fault, share
    if scenario.has_paths and dice.random() < PATH_SHARE:
        _break_path(world, dice)
    return world


def _break_path(world: World, dice: random.Random) -> None:
    choices: list[PathFault] = ["pair", "leaves", "leaf"]
    first = dice.choice(world.nodes)
    world.path_fault = dice.choice(choices)
    is_inside = world.path_fault == "pair"
    others = [
        node
        for node in world.nodes
        if node != first and (world.leaf[node] == world.leaf[first]) == is_inside
    ]
    if not others:
        world.path_fault = ""
        return
    world.path_ends = first, dice.choice(others)
    world.path_share = 0.0 if dice.random() < 0.5 else dice.uniform(*world.scenario.slow_shares)
