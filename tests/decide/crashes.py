"""Crash injection: one story played again and again, with one fault of the supervisor or its store at a time, at every place.

Faults: the supervisor dies before or after a change of the store is done, or around an act or an outcome; the store refuses
a change, or does it and loses the acknowledgment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from zlib import crc32

from runner.facts import records as r
from runner.simulate.world import World
from runner.store.faults import Fault, Faults
from runner.store.memory import MemoryStore
from tests.decide.invariants import Watching, check, check_end
from tests.decide.script import Scenario

# Until then every story on the same cluster and with the same runs goes alike, but for deeds that come sooner.
START_SECONDS = 2.0
MARGIN_SECONDS = 10.0  # longer than any single fault delays a story


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where and how one fault strikes."""

    operation: int = 0  # number of the change of the store, from 1
    fault: Fault | None = None
    point: int | None = None  # number of the moment around an act or outcome, from 1

    def __str__(self) -> str:
        if self.fault is None:
            return f"death at point {self.point}"
        return f"{self.fault.value} at operation {self.operation}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a story ended, as far as a fault of the supervisor must not change it."""

    runs: tuple[tuple[int, str], ...]
    launched: tuple[str, ...]
    requests: tuple[tuple[str, str], ...]
    nodes: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What came of all the faults in one story."""

    scenario: str
    num_faults: int = 0
    num_recoveries: int = 0
    failures: tuple[str, ...] = ()


def shape(scenario: Scenario) -> str:
    """Name what the start of a story depends on: stories of one shape start alike."""
    return repr((scenario.cluster, scenario.echo_seconds, scenario.runs))


def inject_all(
    scenario: Scenario, *, with_start: bool = True, with_each_kind: bool = True
) -> Report:
    """Play the story undisturbed, then once for every fault at every place.

    Without `with_start`, places in its start are left out, since another story of the same shape has had them. Without
    `with_each_kind`, an operation of the store gets one kind of fault: the kinds take turns, each story begins with another.
    """
    # Half as many heartbeats take a good part less time; they change nothing, so few faults could hide in them.
    scenario = replace(scenario, cluster={"heartbeat_seconds": 2.0, **scenario.cluster})
    faults = Faults()
    started: list[tuple[int, int]] = []
    expected, world = _play(scenario, faults=faults, point=None, started=started)
    begin = (0, 0) if with_start else started[0]
    failures, num_faults, num_recoveries = [], 0, 0
    turn = None if with_each_kind else crc32(scenario.name.encode())
    for place in _places(begin, (len(faults.operations), world.lead.points), turn):
        num_faults += 1
        plan = {place.operation: place.fault} if place.fault is not None else {}
        try:
            found, world = _play(scenario, faults=Faults(plan=plan), point=place.point)
            check(found == expected, f"{found}\ninstead of\n{expected}")
            num_recoveries += world.lead.life
        except Exception as error:  # noqa: BLE001 - every failure is one line of the report
            failures.append(f"{place}: {type(error).__name__}: {error}")
    return Report(
        scenario=scenario.name,
        num_faults=num_faults,
        num_recoveries=num_recoveries,
        failures=tuple(failures),
    )


def _places(
    begin: tuple[int, int], end: tuple[int, int], turn: int | None = None
) -> Iterator[Place]:
    """Yield every fault past `begin` up to `end`: (operations, points); with `turn`, one kind for each operation."""
    kinds = tuple(Fault)
    for operation in range(begin[0] + 1, end[0] + 1):
        dealt = kinds if turn is None else (kinds[(turn + operation) % len(kinds)],)
        for fault in dealt:
            yield Place(operation=operation, fault=fault)
    for point in range(begin[1] + 1, end[1] + 1):
        yield Place(point=point)


def _play(
    scenario: Scenario,
    *,
    faults: Faults,
    point: int | None,
    started: list[tuple[int, int]] | None = None,
) -> tuple[Ending, World]:
    """Play once, watched; the faults go on counting from one life of the supervisor to the next.

    `started` gets the numbers of operations and points that the story's start had.
    """
    store = MemoryStore()
    world = scenario.build(
        watcher=Watching(scenario.policy),
        store=store,
        open_store=lambda _life: store.another(faults=faults),
    )
    world.lead.crash_at = point
    if started is not None:
        soon = min([time for time, _ in scenario.deeds if time > 0] + [START_SECONDS])
        world.at(soon, lambda: started.append((len(faults.operations), world.lead.points)))
    world.run_until(max(time for time, _ in scenario.deeds) + 3.0)
    while world.now < scenario.until + MARGIN_SECONDS and not _is_at_rest(world, scenario.until):
        world.run_until(world.now + 1.0)
    check_end(world)
    return _ending(world, scenario.may_differ), world


def _is_at_rest(world: World, until: float) -> bool:
    """Whether nothing more is going to happen: all runs are over, and nothing is under way or in doubt.

    A node given up may be heard again, as long as the story and a fault's delay last.
    """
    state = world.state
    settled = ("spare", "lost") if world.now >= until + MARGIN_SECONDS / 2 else ("spare",)
    return (
        world.lead.is_up
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
    # Whoever starts a supervisor on a cluster that was shut down opens it again; that, too, is as it should be.
    reopened = any(isinstance(record, r.Opened) for record in records)
    state = world.state
    return Ending(
        runs=tuple((run.run, run.state) for run in state.runs.values()),
        launched=() if "attempts" in may_differ else tuple(sorted(launched)),
        requests=tuple((request.id, request.state) for request in state.requests.values()),
        nodes=tuple(
            (node.node, "left" if reopened else node.state) for node in state.nodes.values()
        ),
    )
