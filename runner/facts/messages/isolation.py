"""Isolation: which nodes, paths or domains are bad, by measurements of nodes alone and in pairs; values, and records of them.

`runner/decide/isolate` asks for rounds of measurements and judges their results. A rate is in the unit of its measurement: the
same for all nodes alone, and for all pairs; more is better.
"""

from collections.abc import Mapping
from typing import Literal

from msgspec import field

from runner.facts.wire import Value
from runner.facts.wording import counted, join_words

NodeVerdict = Literal["good", "bad", "undecided"]
# What of a node is bad: what it does alone, or what joins it to others.
Part = Literal["", "compute", "link"]
PathVerdict = Literal["bad", "transient", "undecided"]


class Floor(Value):
    """The least rates of a hardware class, whatever its peers do. None: none is known."""

    alone: float | None = None
    pair: float | None = None
    source: str = ""


class Question(Value):
    """What is to be judged, and what is known before any measurement.

    `domains` as in cluster.yaml: kind -> name -> nodes, the nearest kind first. `hardware_classes`: node -> class, "" where it is
    left out; nodes of one class are compared. `known_good`: nodes that history vouches for; they are measured and judged like the
    others, and are references where no pair is good. `floors`: by hardware class. `more_matchings`: as long as nothing bad is
    found, so many further rounds pair nodes that have not met: a path is found only where a pair crosses it.
    """

    nodes: tuple[str, ...]
    domains: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    hardware_classes: Mapping[str, str] = field(default_factory=dict)
    known_good: tuple[str, ...] = ()
    floors: Mapping[str, Floor] = field(default_factory=dict)
    more_matchings: int = 0


class AloneResult(Value):
    """What came of measuring one node alone in a round.

    `is_wrong`: it computed something else than the known result. `is_failed`: it crashed, hung, or did not answer in time.
    Neither, and no rate: nothing was measured, since the node was busy.
    """

    round: int
    node: str
    rate: float | None = None
    is_wrong: bool = False
    is_failed: bool = False


class PairResult(Value):
    """What came of measuring two nodes with each other in a round.

    `failed`: the end that failed; both where it does not show which. None, and no rate: nothing was measured.
    """

    round: int
    nodes: tuple[str, str]
    rate: float | None = None
    failed: tuple[str, ...] = ()


class Measure(Value):
    """The measurements that a round still lacks. All may run at the same time: no node is in two of them.

    Each needs a result; one that has none by its deadline is reported as failed.
    """

    round: int
    alone: tuple[str, ...] = ()
    pairs: tuple[tuple[str, str], ...] = ()


class JudgedNode(Value):
    """The verdict on a node. `part`: what of it is bad. `reason`: empty for a good one."""

    node: str
    verdict: NodeVerdict
    part: Part = ""
    reason: str = ""


class JudgedPath(Value):
    """A pair that was bad although both its nodes are good elsewhere.

    `transient`: it was good when it was measured again. `domains`: where it crosses from one domain to another, the nearest
    kind's two; empty inside a domain.
    """

    nodes: tuple[str, str]
    verdict: PathVerdict
    domains: tuple[str, ...] = ()
    reason: str = ""


class JudgedDomain(Value):
    """A domain that is bad itself: all its nodes are, or every path that leaves it."""

    kind: str
    name: str
    reason: str


class Judged(Value):
    """The end of an isolation. `notes`: what keeps it from a verdict, or speaks against a floor."""

    num_rounds: int
    nodes: tuple[JudgedNode, ...]
    paths: tuple[JudgedPath, ...] = ()
    domains: tuple[JudgedDomain, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Say what is bad, what is undecided, and what keeps the isolation from a verdict."""
        bad = [
            f"{each.node} is bad, its {each.part}: {each.reason}"
            for each in self.nodes
            if each.verdict == "bad"
        ]
        domains = [f"{each.kind} {each.name} is bad: {each.reason}" for each in self.domains]
        paths = [
            f"the path between {' and '.join(each.nodes)} is {each.verdict}: {each.reason}"
            for each in self.paths
            if each.verdict != "undecided"
        ]
        undecided = [each.node for each in self.nodes if each.verdict == "undecided"]
        open_ends = [f"undecided: {join_words(undecided)}"] if undecided else []
        found = [*bad, *domains, *paths, *open_ends, *self.notes]
        if not found:
            found = [f"{counted(len(self.nodes), 'node')} and the paths between them are good"]
        rounds = f" ({counted(self.num_rounds, 'round')})" if self.num_rounds else ""
        return "; ".join(found) + rounds


# ---- records --------------------------------------------------------------------------------------------------------


class EndResult(Value):
    """What one end of a pair found.

    `trouble`: what kept this end from a rate. `is_at_fault`: it failed itself. `is_silent`: it did not answer in time.
    `is_unmeasured`: nothing was measured, for a reason that is no fault of the node.
    """

    nodes: tuple[str, str]
    node: str
    rate: float | None = None
    trouble: str = ""
    is_at_fault: bool = False
    is_silent: bool = False
    is_unmeasured: bool = False


class IsolationWanted(Value, kind="isolation_wanted"):
    """Nodes are to be measured as soon as no rank runs on them: of a run, for an incident, or because a person asked for it.

    `python`: the interpreter on the nodes that a person named.
    """

    isolation: str
    nodes: tuple[str, ...]
    reason: str
    run: int | None = None
    incident: str | None = None
    request: str | None = None
    python: str = ""


class IsolationBegun(Value, kind="isolation_begun"):
    """The nodes that take part, one of each machine. `known_good`: those of them that history vouches for."""

    isolation: str
    nodes: tuple[str, ...]
    known_good: tuple[str, ...] = ()


class IsolationRoundBegun(Value, kind="isolation_round_begun"):
    """All that a round measures."""

    isolation: str
    measure: Measure


class IsolationMeasured(Value, kind="isolation_measured"):
    """Results: of a node alone, of a pair, or of one end of a pair whose other end has not answered yet."""

    isolation: str
    alone: AloneResult | None = None
    pair: PairResult | None = None
    end: EndResult | None = None
    # Of the node that was measured alone.
    hardware_class: str = ""
    # What kept a measurement from a rate.
    trouble: str = ""


class IsolationJudged(Value, kind="isolation_judged"):
    """An isolation is over: with a verdict, or with notes that say why there is none."""

    isolation: str
    judged: Judged
