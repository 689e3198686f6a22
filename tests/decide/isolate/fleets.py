"""Fleets for tests of isolation: their faults are exact, and they answer whatever an isolation asks for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from runner.decide.isolate.isolation import next_step
from runner.facts.messages.isolation import (
    AloneResult,
    Judged,
    JudgedNode,
    Measure,
    PairResult,
    Question,
)

Results = list[AloneResult | PairResult]
ALONE_RATE, PAIR_RATE = 100.0, 40.0


def named(*numbers: int) -> tuple[str, ...]:
    """Name nodes."""
    return tuple(f"n{number}" for number in numbers)


def leaves(nodes: int, width: int) -> dict[str, dict[str, tuple[str, ...]]]:
    """Make leaf switches of nodes, numbered through."""
    starts = range(0, nodes, width)
    return {
        "leaf": {f"leaf{at}": named(*range(at, min(at + width, nodes))) for at in starts},
    }


@dataclass(slots=True, kw_only=True)
class Fleet:
    """Rates as shares of a healthy one, by node and by pair; 0: it fails."""

    question: Question
    compute: Mapping[str, float] = field(default_factory=dict)
    wrong: Sequence[str] = ()
    links: Mapping[str, float] = field(default_factory=dict)
    paths: Mapping[frozenset[str], float] = field(default_factory=dict)
    # Measurements that noise halves: subject and round.
    halved: Sequence[tuple[object, int]] = ()
    # Nodes that are too busy to be measured alone.
    busy: Sequence[str] = ()
    # Ends that a failed pair names.
    failed_end: str = ""

    def results(self, step: Measure) -> Results:
        """Measure what a round asks for."""
        return [self.alone(node, step.round) for node in step.alone] + [
            self.pair(pair, step.round) for pair in step.pairs
        ]

    def alone(self, node: str, number: int) -> AloneResult:
        """Measure a node alone."""
        if node in self.busy:
            return AloneResult(round=number, node=node)
        share = self.compute.get(node, 1.0) * self._noise(node, number)
        return AloneResult(
            round=number,
            node=node,
            rate=ALONE_RATE * share if share else None,
            is_wrong=node in self.wrong,
            is_failed=not share,
        )

    def pair(self, pair: tuple[str, str], number: int) -> PairResult:
        """Measure two nodes with each other."""
        parts = [self.links.get(node, 1.0) for node in pair]
        share = min(*parts, self.paths.get(frozenset(pair), 1.0)) * self._noise(pair, number)
        if share:
            return PairResult(round=number, nodes=pair, rate=PAIR_RATE * share)
        failed = (self.failed_end,) if self.failed_end in pair else pair
        return PairResult(round=number, nodes=pair, failed=failed)

    def _noise(self, subject: object, number: int) -> float:
        return 0.5 if (subject, number) in self.halved else 1.0

    def judged(self) -> tuple[Judged, Results, list[Measure]]:
        """Play rounds until there is a verdict; return it, all results and all rounds."""
        results: Results = []
        rounds: list[Measure] = []
        while True:
            step = next_step(self.question, results)
            if isinstance(step, Judged):
                return step, results, rounds
            rounds.append(step)
            results += self.results(step)


def bad(judged: Judged) -> dict[str, str]:
    """Return the nodes that are blamed, and for what."""
    return {each.node: each.part for each in judged.nodes if each.verdict == "bad"}


def verdict_on(judged: Judged, node: str) -> JudgedNode:
    """Return the verdict on one node."""
    return next(each for each in judged.nodes if each.node == node)
