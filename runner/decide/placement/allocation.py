"""Choice: which nodes a run gets for its next attempt, and which it must leave to others.

Runs come in an order: those of higher priority first, among equals the one that was started first. What a run has between two
attempts stays its own against all of its priority or less; a spare goes to the first in order that lost a node, even if another
was quicker but has not launched. Gangs that run are never ended for the sake of another run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from runner.decide.placement.launch_plans import is_usable
from runner.decide.placement.topology import Domains, Map, fill, gang_shape
from runner.decide.state.cluster_state import Attempt, Node, Run, State
from runner.facts.specs.run import RunSpec
from runner.facts.wording import join_words

# attempts that have nodes and have not told them yet
PLANNED = ("preparing", "prepared")
# nodes, or runs, that a reason names; chosen, not measured
MAX_NAMED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """What a run can have now."""

    # in rank order; None: not enough
    nodes: list[str] | None = None
    # their planned attempts must end first
    withdraw: list[Run] = field(default_factory=list)
    # that it may take, enough or not
    usable: list[str] = field(default_factory=list)
    meant: dict[str, Run] = field(
        default_factory=dict
        # it would do with these, which others may need
    )


def in_order(runs: Iterable[Run]) -> list[Run]:
    """Return those runs that still want nodes, or have some, in the order in which they are served."""
    return sorted((run for run in runs if _is_alive(run)), key=_rank)


def choose_nodes(state: State, run: Run, domains: Domains) -> Allocation:
    """Return the nodes for the run's next attempt.

    A node that served keeps its place, so that ranks stay where their data is cached; the spare named for a leaving node, or
    else the nearest to the place's neighbours, takes the place of one that left.
    """
    choosing = _Choosing(state, domains)
    kept, yielding, meant = choosing.claims(run)
    without = {**kept, **meant, **yielding}
    usable = [name for name in choosing.usable(run.spec) if name not in kept and name not in meant]
    nodes = choosing.pick(run, without=without)
    if nodes is not None:
        return Allocation(nodes=nodes, usable=usable)
    # Those that have to give something up: the last in order first, and no more of it than is needed.
    giving = [name for name in reversed(yielding) if name in usable]
    lacking = run.spec.nodes - len(usable) + len(giving)
    for name in giving[:lacking]:
        del without[name]
    nodes = choosing.pick(run, without=without)
    if nodes is None:
        enough = len(usable) + len(meant) >= run.spec.nodes
        return Allocation(usable=usable, meant=meant if enough else {})
    taken = {yielding[name].run: yielding[name] for name in nodes if name in yielding}
    withdraw = [other for other in taken.values() if _planned(other) is not None]
    return Allocation(nodes=nodes, withdraw=withdraw, usable=usable)


def _rank(run: Run) -> tuple[int, int]:
    return (-run.spec.priority, run.run)


def _is_alive(run: Run) -> bool:
    return run.state in ("active", "waiting") or (
        run.attempt is not None and run.attempt.state != "ended"
    )


def _planned(run: Run) -> Attempt | None:
    attempt = run.attempt
    return attempt if attempt is not None and attempt.state in PLANNED else None


class _Choosing:
    """One look at who wants what."""

    def __init__(self, state: State, domains: Domains) -> None:
        self._state = state
        self._domains = domains

    @cached_property
    def _where(self) -> Map:
        return Map(self._domains)

    @cached_property
    def _nodes(self) -> list[Node]:
        """Nodes in order of preference: those that are meant for another's place come last."""
        state = self._state
        named = {node.leaving.spare: True for node in state.nodes.values() if node.leaving}
        return sorted(state.nodes.values(), key=lambda node: (node.node in named, node.index))

    def usable(self, spec: RunSpec) -> list[str]:
        """Return all nodes that could take ranks of this run now."""
        return [node.node for node in self._nodes if is_usable(self._state, node, spec)]

    def claims(self, run: Run) -> tuple[dict[str, Run], dict[str, Run], dict[str, Run]]:
        """Return the nodes others keep from this run, those they would have to yield to it, and spares meant for others.

        All in the order of the runs that have them.
        """
        kept: dict[str, Run] = {}
        yielding: dict[str, Run] = {}
        meant: dict[str, Run] = {}
        own = dict.fromkeys(run.attempt.nodes if run.attempt is not None else (), run)
        for other in in_order(self._state.runs.values()):
            if other.run == run.run or other.state not in ("active", "waiting"):
                continue
            held = kept if _may_keep(other, against=run) else yielding
            for name in other.attempt.nodes if other.attempt is not None else ():
                if name not in kept and name not in yielding and name not in meant:
                    held[name] = other
            if _rank(other) < _rank(run):
                wanted = self._wanted(other, without={**kept, **yielding, **meant, **own})
                meant |= dict.fromkeys(wanted, other)
        return kept, yielding, meant

    def _wanted(self, other: Run, *, without: Mapping[str, Run]) -> list[str]:
        """Return the spares that a run needs for nodes it lost, and those it may need; none if they do not suffice for it."""
        if other.stop_requests or self._state.closing:
            return []
        before = other.attempt.nodes if other.attempt is not None else []
        serving = [name for name in before if self._may_serve_on(name, other)]
        sure = [name for name in serving if not self._is_in_doubt(name, other)]
        if len(sure) == other.spec.nodes:
            return []
        free = [name for name in self.usable(other.spec) if name not in without]
        if len(free) < other.spec.nodes - len(serving):
            return []
        doubtful = [name for name in serving if name not in sure]
        # for so few doubts only
        enough = max(0, other.spec.nodes - len(sure) - len(free))
        stays = dict.fromkeys(sure + doubtful[:enough])
        places = [name if name in stays else None for name in before]
        filled = self._filled(other, places, [name for name in free if name not in stays])
        return [name for name in filled or () if name not in stays]

    def _may_serve_on(self, name: str, other: Run) -> bool:
        """Whether a node of a run may be there for its next attempt."""
        node = self._state.nodes[name]
        fits = node.leaving is None and node.slots >= other.spec.ranks_per_node
        return fits and not node.held and node.state in ("spare", "active", "suspect")

    def _is_in_doubt(self, name: str, other: Run) -> bool:
        """Whether it may turn out to be lost: it is silent by itself, or has yet to say that it is clear."""
        node, attempt = self._state.nodes[name], other.attempt
        owes = attempt is not None and attempt.state == "stopping" and node.uncleared is not None
        return owes or (node.state == "suspect" and name not in self._state.silent_en_masse)

    def pick(self, run: Run, *, without: Mapping[str, Run]) -> list[str] | None:
        """Choose nodes for a run among those that are not kept from it."""
        free = [name for name in self.usable(run.spec) if name not in without]
        if len(free) < run.spec.nodes:
            return None
        may_use = dict.fromkeys(free)
        before = run.attempt.nodes if run.attempt is not None else []
        places = [name if name in may_use else None for name in before]
        stays = dict.fromkeys(name for name in places if name is not None)
        return self._filled(run, places, [name for name in free if name not in stays])

    def _filled(self, run: Run, places: list[str | None], spares: list[str]) -> list[str] | None:
        """Return places in rank order, vacant ones filled with spares, named ones first; None if they do not suffice."""
        before = run.attempt.nodes if run.attempt is not None else []
        left = dict.fromkeys(spares)
        for place, name in enumerate(before):
            leaving = self._state.nodes[name].leaving
            if places[place] is None and leaving is not None and leaving.spare in left:
                places[place] = leaving.spare
                del left[leaving.spare]
        places = places + [None] * (run.spec.nodes - len(places))
        return fill(places, list(left), gang_shape(run.spec.nodes, run.spec.pipeline), self._where)


def _may_keep(other: Run, *, against: Run) -> bool:
    """Whether a run keeps its nodes from another: always while a gang of it lives, and from all that come after it.

    From one of its own priority that came before it, too, unless it waits itself: else both would wait for each other's nodes.
    """
    attempt = other.attempt
    lives = attempt is not None and attempt.state not in (*PLANNED, "ended")
    equal = other.spec.priority == against.spec.priority and other.state == "active"
    return lives or equal or _rank(other) < _rank(against)


def holders_of_nodes(state: State, run: Run) -> str:
    """Say which other runs have nodes that this one could use; "" when none has."""
    phrases = []
    for other in in_order(state.runs.values()):
        attempt = other.attempt
        if other.run == run.run or attempt is None:
            continue
        if attempt.state == "ended" and other.state not in ("active", "waiting"):
            continue
        fitting = [
            name
            for name in attempt.nodes
            if state.nodes[name].slots >= run.spec.ranks_per_node
            and state.nodes[name].state in ("spare", "active", "suspect")
        ]
        if fitting:
            phrases.append(f"{called(other)} has {listed(fitting)}")
    more = [f"and {len(phrases) - MAX_NAMED} more"] if len(phrases) > MAX_NAMED else []
    return "; ".join(phrases[:MAX_NAMED] + more)


def called(run: Run) -> str:
    """Name a run where it matters who comes first."""
    return f"run {run.run} {run.spec.name} (priority {run.spec.priority})"


def listed(names: list[str]) -> str:
    """Name some nodes, and count the others."""
    return join_words(names, most=MAX_NAMED)
