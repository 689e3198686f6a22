"""Trials of a scenario: what the algorithm and dlrover's rounds say of each fleet, counted."""

import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from bench.isolation import dlrover
from bench.isolation.model import LINK_FAULTS, Scenario, World, draw
from runner.decide.isolate.isolation import next_step
from runner.facts.messages.isolation import AloneResult, Judged, Measure, PairResult, Question

SEED = 16


@dataclass(slots=True)
class Counts:
    """Sums over trials. Nodes are counted by what they are (good, bad) and by what was said of them."""

    trials: int = 0
    # In which any good node was called bad.
    trials_at_fault: int = 0
    nodes: Counter[tuple[str, str]] = field(default_factory=Counter)
    # Found by the wrong part: the link of a node that computes slowly, or the reverse.
    wrong_part: int = 0
    rounds: Counter[int] = field(default_factory=Counter)
    # Broken paths that a measurement crossed: all of them, and those that were named; paths that were named and are sound.
    paths_seen: int = 0
    paths_found: int = 0
    wrong_paths: int = 0
    num_paths: int = 0

    def add(self, other: "Counts") -> None:
        """Add the counts of other trials."""
        self.trials += other.trials
        self.trials_at_fault += other.trials_at_fault
        self.nodes += other.nodes
        self.wrong_part += other.wrong_part
        self.rounds += other.rounds
        self.paths_seen += other.paths_seen
        self.paths_found += other.paths_found
        self.wrong_paths += other.wrong_paths
        self.num_paths += other.num_paths

    def add_nodes(self, world: World, bad: Iterable[str], undecided: Iterable[str]) -> None:
        """Count one trial's verdict on nodes."""
        self.trials += 1
        verdicts = dict.fromkeys(undecided, "undecided") | dict.fromkeys(bad, "bad")
        wrong = False
        for node in world.nodes:
            truth, verdict = "bad" if node in world.faults else "good", verdicts.get(node, "good")
            self.nodes[truth, verdict] += 1
            wrong = wrong or (truth, verdict) == ("good", "bad")
        self.trials_at_fault += wrong

    @property
    def num_nodes(self) -> int:
        """Judged nodes, good and bad."""
        return sum(self.nodes.values())

    def of(self, truth: str, verdict: str) -> float:
        """Return the share of all nodes that are good, or bad, of which a verdict was said."""
        of_truth = sum(count for (each, _), count in self.nodes.items() if each == truth)
        return self.nodes[truth, verdict] / of_truth if of_truth else 0.0

    @property
    def wrong_share(self) -> float:
        """Of all judged nodes."""
        return self.nodes["good", "bad"] / self.num_nodes

    @property
    def undecided_share(self) -> float:
        """Of all judged nodes."""
        return (self.nodes["good", "undecided"] + self.nodes["bad", "undecided"]) / self.num_nodes

    @property
    def median_rounds(self) -> float:
        """Of all trials."""
        return statistics.median(self.rounds.elements())


def isolate(
    question: Question, measure: Callable[[Measure], Iterable[AloneResult | PairResult]]
) -> tuple[Judged, list[AloneResult | PairResult]]:
    """Measure what is asked for until there is a verdict; return it, and all results."""
    results: list[AloneResult | PairResult] = []
    step = next_step(question, results)
    while isinstance(step, Measure):
        results += measure(step)
        step = next_step(question, results, asked=step)
    return step, results


def run(scenario: Scenario, trials: range) -> tuple[Counts, Counts, Counts]:
    """Return counts of ours, and of dlrover's rounds by its own rule and by our limit, on the same fleets."""
    ours, theirs, theirs_by_our_limit = Counts(), Counts(), Counts()
    for trial in trials:
        # Each trial has its own seed, so that any can be repeated alone.
        seed = f"{SEED} {scenario.name} {trial}"
        world = draw(scenario, random.Random(seed))
        judged, results = isolate(world.question(), world.results)
        _count(ours, world, judged, results)
        # The same fleet, measured with chance of its own.
        world.dice = random.Random(f"{seed} dlrover")
        by_its_own, by_our_limit = dlrover.bad_nodes(world)
        theirs.add_nodes(world, by_its_own, ())
        theirs_by_our_limit.add_nodes(world, by_our_limit, ())
    return ours, theirs, theirs_by_our_limit


def _count(
    counts: Counts, world: World, judged: Judged, results: Iterable[AloneResult | PairResult]
) -> None:
    counts.add_nodes(
        world,
        [each.node for each in judged.nodes if each.verdict == "bad"],
        [each.node for each in judged.nodes if each.verdict == "undecided"],
    )
    counts.rounds[judged.num_rounds] += 1
    for each in judged.nodes:
        if each.verdict == "bad" and each.node in world.faults:
            is_link = world.faults[each.node][0] in LINK_FAULTS
            counts.wrong_part += is_link != (each.part == "link")
    pairs = {each.nodes for each in results if isinstance(each, PairResult)}
    counts.num_paths += len(pairs)
    bad_paths = {path.nodes for path in judged.paths if path.verdict == "bad"}
    counts.wrong_paths += sum(not world.is_on_path(*pair) for pair in bad_paths)
    sound = [pair for pair in pairs if not any(node in world.faults for node in pair)]
    if world.path_fault and any(world.is_on_path(*pair) for pair in sound):
        counts.paths_seen += 1
        counts.paths_found += any(world.is_on_path(*pair) for pair in bad_paths)
