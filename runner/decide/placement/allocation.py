"""Allocation: which nodes a run gets for its next attempt, and which are reserved for others.

Runs are served in order: higher priority first, among equals the one started first. Between two attempts, runs of the same or
lower priority cannot take a run's nodes. A spare goes to the first run in order that lost a node, even if a later one has been
planned with it but not launched. Running gangs are never ended in favour of another run.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from runner.decide.placement.launch_plans import is_usable
from runner.decide.placement.topology import DomainMap, Domains, fill, gang_shape
from runner.decide.state.cluster_state import Attempt, Node, Run, State
from runner.facts.specs.run import RunSpec
from runner.facts.wording import join_words

# Attempts that have nodes and have not launched.
PLANNED = ("preparing", "prepared")
# Nodes, or runs, that a reason names; chosen, not measured.
MAX_NAMED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The nodes that a run can have now."""

    # In rank order; None: not enough.
    nodes: list[str] | None = None
    # Planned attempts of other runs that must end first.
    withdraw: list[Attempt] = field(default_factory=list)
    # All it may take, enough or not.
    usable: list[str] = field(default_factory=list)
    # Reserved for other runs; with these it would have enough.
    reserved: dict[str, Run] = field(default_factory=dict)


def in_order(runs: Iterable[Run]) -> list[Run]:
    """Return the runs that need nodes, or have some, in the order in which they are served."""
    return sorted((run for run in runs if run.is_alive), key=_rank)


def choose_nodes(state: State, run: Run, domains: Domains) -> Allocation:
    """Return the nodes for the run's next attempt.

    A node that served keeps its place, so that ranks stay where their data is cached. A vacant place goes to the spare named for
    the leaving node, or else to the spare nearest to the place's neighbours.
    """
    allocator = _Allocator(state, domains)
    kept, yielding, reserved = allocator.claims(run)
    without = {**kept, **reserved, **yielding}
    usable = [
        name for name in allocator.usable(run.spec) if name not in kept and name not in reserved
    ]
    nodes = allocator.pick(run, without=without)
    if nodes is not None:
        return Allocation(nodes=nodes, usable=usable)
    # Preempt planned runs, the last in order first, of no more nodes than needed.
    giving = [name for name in reversed(yielding) if name in usable]
    lacking = run.spec.nodes - len(usable) + len(giving)
    for name in giving[:lacking]:
        del without[name]
    nodes = allocator.pick(run, without=without)
    if nodes is None:
        enough = len(usable) + len(reserved) >= run.spec.nodes
        return Allocation(usable=usable, reserved=reserved if enough else {})
    taken = {yielding[name].run: yielding[name].attempt for name in nodes if name in yielding}
    withdraw = [each for each in taken.values() if each is not None and each.state in PLANNED]
    return Allocation(nodes=nodes, withdraw=withdraw, usable=usable)


def _rank(run: Run) -> tuple[int, int]:
    return (-run.spec.priority, run.run)


class _Allocator:
    """The claims of all runs on nodes, in one state."""

    def __init__(self, state: State, domains: Domains) -> None:
        self._state = state
        self._domains = domains

    @cached_property
    def _where(self) -> DomainMap:
        return DomainMap(self._domains)

    @cached_property
    def _nodes(self) -> list[Node]:
        """Nodes in order of preference: spares named for another node's place come last."""
        state = self._state
        named = {
            node.pending_drain.spare: True for node in state.nodes.values() if node.pending_drain
        }
        return sorted(state.nodes.values(), key=lambda node: (node.node in named, node.index))

    def usable(self, spec: RunSpec) -> list[str]:
        """Return all nodes that could take ranks of this run now."""
        return [node.node for node in self._nodes if is_usable(self._state, node, spec)]

    def claims(self, run: Run) -> tuple[dict[str, Run], dict[str, Run], dict[str, Run]]:
        """Return the nodes that others keep from this run, that they would yield to it, and spares reserved for others.

        All in the order of the runs that have them.
        """
        kept: dict[str, Run] = {}
        yielding: dict[str, Run] = {}
        reserved: dict[str, Run] = {}
        own = dict.fromkeys(run.attempt.nodes if run.attempt is not None else (), run)
        for other in in_order(self._state.runs.values()):
            if other.run == run.run or not other.is_wanted or _has_released(other):
                continue
            claimed = kept if _may_keep(other, against=run) else yielding
            for name in other.attempt.nodes if other.attempt is not None else ():
                if name not in kept and name not in yielding and name not in reserved:
                    claimed[name] = other
            if _rank(other) < _rank(run):
                wanted = self._wanted(other, without={**kept, **yielding, **reserved, **own})
                reserved |= dict.fromkeys(wanted, other)
        return kept, yielding, reserved

    def _wanted(self, other: Run, *, without: Mapping[str, Run]) -> list[str]:
        """Return the spares that a run needs for nodes that it lost or may lose; none if they do not suffice for it."""
        if other.stop_requests or other.hold is not None or self._state.closing:
            return []
        before = other.attempt.nodes if other.attempt is not None else []
        serving = [name for name in before if self._may_serve_on(name, other)]
        sure = [name for name in serving if not self._may_be_lost(name, other)]
        if len(sure) == other.spec.nodes:
            return []
        free = [name for name in self.usable(other.spec) if name not in without]
        if len(free) < other.spec.nodes - len(serving):
            return []
        doubtful = [name for name in serving if name not in sure]
        # Only so many doubtful nodes are kept.
        enough = max(0, other.spec.nodes - len(sure) - len(free))
        stays = dict.fromkeys(sure + doubtful[:enough])
        places = [name if name in stays else None for name in before]
        filled = self._filled(other, places, [name for name in free if name not in stays])
        return [name for name in filled or () if name not in stays]

    def _may_serve_on(self, name: str, other: Run) -> bool:
        """Whether a node of a run may serve its next attempt."""
        node = self._state.nodes[name]
        fits = node.pending_drain is None and node.slots >= other.spec.ranks_per_node
        return fits and not node.devices_busy and node.state in ("spare", "active", "suspect")

    def _may_be_lost(self, name: str, other: Run) -> bool:
        """Whether a node may be lost: it is silent alone, or has yet to confirm that it is clear."""
        node, attempt = self._state.nodes[name], other.attempt
        is_stopping = attempt is not None and attempt.state == "stopping"
        owes = is_stopping and node.ranks_may_run is not None
        return owes or (node.state == "suspect" and name not in self._state.correlated_silence)

    def pick(self, run: Run, *, without: Mapping[str, Run]) -> list[str] | None:
        """Choose nodes for a run among those outside `without`; None if too few."""
        free = [name for name in self.usable(run.spec) if name not in without]
        if len(free) < run.spec.nodes:
            return None
        apart = [name for name in free if name not in run.avoid]
        free = apart if len(apart) >= run.spec.nodes else free
        may_use = dict.fromkeys(free)
        before = run.attempt.nodes if run.attempt is not None else []
        places = [name if name in may_use else None for name in before]
        stays = dict.fromkeys(name for name in places if name is not None)
        return self._filled(run, places, [name for name in free if name not in stays])

    def _filled(self, run: Run, places: list[str | None], spares: list[str]) -> list[str] | None:
        """Return places in rank order, vacant ones filled with spares, named spares first; None if too few."""
        before = run.attempt.nodes if run.attempt is not None else []
        left = dict.fromkeys(spares)
        for place, name in enumerate(before):
            leaving = self._state.nodes[name].pending_drain
            if places[place] is None and leaving is not None and leaving.spare in left:
                places[place] = leaving.spare
                del left[leaving.spare]
        places = places + [None] * (run.spec.nodes - len(places))
        return fill(places, list(left), gang_shape(run.spec.nodes, run.spec.pipeline), self._where)


def _may_keep(other: Run, *, against: Run) -> bool:
    """Whether a run keeps its nodes from another: always while its gang runs, and from all later runs.

    From earlier ones of its own priority, too, unless it waits itself: else both would wait for each other's nodes.
    """
    attempt = other.attempt
    is_running = attempt is not None and attempt.state not in (*PLANNED, "ended")
    equal = other.spec.priority == against.spec.priority and other.state == "active"
    return is_running or equal or other.hold is not None or _rank(other) < _rank(against)


def _has_released(other: Run) -> bool:
    """Whether a person paused a run and let others have its nodes; no sooner than its gang has ended."""
    attempt, hold = other.attempt, other.hold
    is_idle = attempt is None or attempt.state in (*PLANNED, "ended")
    return hold is not None and hold.releases_nodes and is_idle


def holders_of_nodes(state: State, run: Run) -> str:
    """Return which other runs have nodes that this one could use; "" when none has."""
    phrases = []
    for other in in_order(state.runs.values()):
        attempt = other.attempt
        if other.run == run.run or attempt is None:
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
    """Return a run's number, name and priority."""
    return f"run {run.run} {run.spec.name} (priority {run.spec.priority})"


def listed(names: list[str]) -> str:
    """Return some names, and the number of the others."""
    return join_words(names, most=MAX_NAMED)
