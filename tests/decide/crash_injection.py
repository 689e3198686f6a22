"""Crash injection: one scenario played again and again, with one fault of the supervisor or its store at a time, at every place.

Faults: the supervisor dies before or after a change of the store is done, or around an act or an outcome; the store refuses
a change, or does it and loses the acknowledgment.

A scenario is played once; at every place a child process branches off, which has the fault and plays on to the end.
"""

import contextlib
import gc
import os
import pickle
from dataclasses import dataclass, field, replace
from typing import NoReturn
from zlib import crc32

from runner.facts.messages import records as r
from runner.simulate.world import World
from runner.store.memory.faults import Faults, StoreFault
from runner.store.memory.store import MemoryStore
from tests.decide.invariants import Watching, check_end
from tests.decide.scenario import Scenario
from tests.suite.share import Share

# Until then all scenarios with the same cluster and runs go alike, except for deeds that come sooner.
START_SECONDS = 2.0
# Longer than any single fault delays a scenario.
MARGIN_SECONDS = 10.0
# One place in so many has a fault, where not all have one.
STRIDE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where one fault is injected, and which."""

    # Number of the change of the store, from 1.
    operation: int = 0
    fault: StoreFault | None = None
    # Number of the moment around an act or outcome, from 1.
    point: int | None = None

    def __str__(self) -> str:
        if self.fault is None:
            return f"death at point {self.point}"
        return f"{self.fault.value} at operation {self.operation}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a scenario ended, as far as a fault of the supervisor must not change it."""

    runs: tuple[tuple[int, str], ...]
    launched: tuple[str, ...]
    requests: tuple[tuple[str, str], ...]
    nodes: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The results of all faults in one scenario."""

    scenario: str
    num_faults: int = 0
    num_recoveries: int = 0
    failures: tuple[str, ...] = ()


def shape(scenario: Scenario) -> str:
    """Name what the start of a scenario depends on: scenarios of one shape start alike."""
    return repr((scenario.cluster, scenario.echo_seconds, scenario.runs))


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """The result of one fault: how the scenario ended, or what went wrong."""

    place: Place
    ending: Ending | None
    num_recoveries: int = 0
    failure: str = ""


@dataclass(slots=True, kw_only=True)
class Branching(Faults):
    """No faults, and at each place a child process that goes on with one, waited for before the play goes on without.

    `turn`: every third place, and one kind of fault for an operation of the store, kinds and places taking turns from there;
    None: everything. Of these, only places in the share, by the scenario's name and their own. Nothing branches before
    `is_open`, nor in a child.
    """

    scenario: str
    share: Share
    turn: int | None
    is_open: bool
    # Where this child process had its fault.
    own: Place | None = None
    branches: list[Branch] = field(default_factory=list)
    # A child's, to its parent.
    pipe: int = -1

    def next(self, method: str, name: str) -> StoreFault | None:
        """Count an operation; in a child that branches off here, return its fault."""
        super(Branching, self).next(method, name)
        operation, kinds = len(self.operations), tuple(StoreFault)
        if self.turn is not None:
            turn, is_left_out = divmod(self.turn + operation, STRIDE)
            kinds = () if is_left_out else (kinds[turn % len(kinds)],)
        for fault in kinds:
            if self._branches_off(Place(operation=operation, fault=fault)):
                return fault
        return None

    def dies_at(self, point: int) -> bool:
        """Say whether the supervisor dies at a moment around an act or outcome: in the child that branches off here."""
        is_left_out = self.turn is not None and (self.turn + point) % STRIDE
        return not is_left_out and self._branches_off(Place(point=point))

    def _branches_off(self, place: Place) -> bool:
        if not self.is_open or self.own is not None:
            return False
        if not self.share.has(f"{self.scenario}: {place}"):
            return False
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            self.own, self.pipe = place, writer
            return True
        os.close(writer)
        with open(reader, "rb") as output:
            report = output.read()
        os.waitpid(pid, 0)
        nothing = Branch(place=place, ending=None, failure="its process died")
        self.branches.append(pickle.loads(report) if report else nothing)
        return False


def inject_all(
    scenario: Scenario, *, share: Share, with_start: bool = True, with_everything: bool = True
) -> Report:
    """Play the scenario undisturbed, and from every place of a share on with every fault.

    Without `with_start`, places in its start are left out, since another scenario of the same shape has had them. Without
    `with_everything`, every third place has one kind of fault: places and kinds take turns, each scenario begins with another.
    """
    gc.collect()
    # A collection in a child would touch, and so copy, every page.
    gc.freeze()
    # Half as many heartbeats take a good part less time; they change nothing, so few faults could hide in them.
    scenario = replace(scenario, cluster={"heartbeat_seconds": 2.0, **scenario.cluster})
    turn = None if with_everything else crc32(scenario.name.encode())
    faults = Branching(scenario=scenario.name, share=share, turn=turn, is_open=with_start)
    try:
        expected, world = _play(scenario, faults)
    except BaseException as error:
        if faults.own is None:
            raise
        _report(
            faults,
            Branch(place=faults.own, ending=None, failure=f"{type(error).__name__}: {error}"),
        )
    if faults.own is not None:
        _report(
            faults,
            Branch(place=faults.own, ending=expected, num_recoveries=world.supervisor.instance_id),
        )
    failures = []
    for branch in faults.branches:
        if branch.ending != expected:
            why = branch.failure or f"{branch.ending}\ninstead of\n{expected}"
            failures.append(f"{branch.place}: {why}")
    return Report(
        scenario=scenario.name,
        num_faults=len(faults.branches),
        num_recoveries=sum(branch.num_recoveries for branch in faults.branches),
        failures=tuple(failures),
    )


def _report(faults: Branching, branch: Branch) -> NoReturn:
    """Send this child's result to the parent, and end the child without any exit handler."""
    try:
        with contextlib.suppress(OSError), open(faults.pipe, "wb") as pipe:
            pickle.dump(branch, pipe)
    finally:
        os._exit(0)


def _play(scenario: Scenario, faults: Branching) -> tuple[Ending, World]:
    """Play once, with invariants checked; faults count on across restarts of the supervisor."""
    store = MemoryStore()
    world = scenario.build(
        watcher=Watching(scenario.policy),
        store=store,
        open_store=lambda _id: store.another(faults=faults),
    )
    world.supervisor.dies_at = faults.dies_at
    soon = min([time for time, _ in scenario.deeds if time > 0] + [START_SECONDS])
    world.at(soon, lambda: setattr(faults, "is_open", True))
    world.run_until(max(time for time, _ in scenario.deeds) + 3.0)
    while world.now < scenario.until + MARGIN_SECONDS and not _is_at_rest(world, scenario.until):
        world.run_until(world.now + 1.0)
    check_end(world)
    return _ending(world, scenario.may_differ), world


def _is_at_rest(world: World, until: float) -> bool:
    """Whether nothing more is going to happen: all runs are over, and nothing is under way or in doubt.

    The heartbeats of a node given up may resume, as long as the scenario and a fault's delay last.
    """
    state = world.state
    settled = ("spare", "lost") if world.now >= until + MARGIN_SECONDS / 2 else ("spare",)
    return (
        world.supervisor.is_up
        and bool(state.runs)
        and not state.closing
        and not state.actions
        and all(run.ended_at is not None for run in state.runs.values())
        and all(run.attempt is None or run.attempt.state == "ended" for run in state.runs.values())
        and all(node.state in settled for node in state.nodes.values())
    )


def _ending(world: World, may_differ: tuple[str, ...]) -> Ending:
    records = [record for entry in world.entries for record in entry.records]
    launched = [
        str(record.attempt)
        for record in records
        if isinstance(record, r.AttemptChanged) and record.state == "launching"
    ]
    # A supervisor that starts on a closed cluster reopens it, as it should.
    reopened = any(isinstance(record, r.ClusterReopened) for record in records)
    state = world.state
    return Ending(
        runs=tuple((run.run, run.state) for run in state.runs.values()),
        launched=() if "attempts" in may_differ else tuple(sorted(launched)),
        requests=tuple((request.id, request.state) for request in state.requests.values()),
        nodes=tuple(
            (node.node, "left" if reopened else node.state) for node in state.nodes.values()
        ),
    )
