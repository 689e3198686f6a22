"""What detectors do per heartbeat does not grow with the fleet: counted, not timed."""

import random
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from runner.detect.detector import NodeSilence
from runner.detect.heartbeat_timeout import HeartbeatTimeout
from runner.detect.registry import DetectorRegistry
from runner.detect.start_times import StartTimes
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat, StartPhase
from runner.facts.watch import WatchedAttempt, WatchList

LIMIT = 5.0


class Counted(tuple[str, ...]):
    """Names of nodes that count how often they are walked, or searched, from end to end."""

    walks = 0

    def __iter__(self) -> Iterator[str]:
        """Walk."""
        type(self).walks += 1
        return super().__iter__()

    def __contains__(self, name: object) -> bool:
        """Search."""
        type(self).walks += 1
        return super().__contains__(name)


def heartbeat(node: str, *, start: bool = False) -> Heartbeat:
    """Make a heartbeat of a rank at work; `start`: it reports its start phases, too."""
    phases = {"load": StartPhase(seconds=1.0, rank=0)} if start else {}
    return Heartbeat(
        node=node,
        incarnation=1,
        attempt=AttemptId(1, 1, 0),
        ranks_alive=(0,),
        phases={"0": "step"},
        last_step=3,
        start_phases=phases,
    )


def test_heartbeats_of_a_calm_fleet_walk_over_no_nodes() -> None:
    """500 nodes with a heartbeat a second are walked over about once per heartbeat timeout, not per heartbeat or tick."""
    names = Counted(f"n{number}" for number in range(500))
    gang = WatchedAttempt(
        attempt=AttemptId(1, 1, 0),
        nodes=names,
        since=0.0,
        start_seconds=600.0,
        progress_seconds=600.0,
        reports_steps=True,
    )
    watch = WatchList(nodes=names, lost_nodes=Counted(("n900", "n901")), attempts=(gang,))
    detectors = DetectorRegistry(LIMIT)
    detectors.watch(watch)
    detectors.tick(0.0)
    heartbeats = [heartbeat(name, start=True) for name in names]
    Counted.walks, found = 0, []
    for second in range(20):
        for index, message in enumerate(heartbeats):
            now = second + index / 500
            found += detectors.on_heartbeat(message, now)
            if index % 50 == 0:
                found += detectors.tick(now)
    # How the gang started, once all nodes had reported it.
    assert len(found) == 1
    # 10,000 heartbeats and 200 ticks: some walks to begin with and for the start times, and then a few per limit.
    assert Counted.walks <= 10 + 20 / LIMIT * 4


def fresh(watch: WatchList) -> WatchList:
    """Return an equal watch list that is another object."""
    return replace(
        watch, nodes=(*watch.nodes[:1], *watch.nodes[1:]), instance_ids=dict(watch.instance_ids)
    )


@pytest.mark.parametrize("seed", range(8))
def test_skipping_checks_finds_the_same_at_the_same_time(seed: int) -> None:
    """A detector that gets a new watch list each turn, and so checks each time, finds the same and is due no sooner."""
    dice = random.Random(seed)
    names = tuple(f"n{number}" for number in range(12))
    domains = {"rack": {"r1": names[:4], "r2": names[4:8]}}
    watch = WatchList(nodes=names, domains=domains)
    skipping, looking = HeartbeatTimeout(NodeSilence(LIMIT)), HeartbeatTimeout(NodeSilence(LIMIT))
    quiet_until = dict.fromkeys(names, 0.0)
    results: list[tuple[float, list[object], list[object]]] = []
    now = 0.0
    for _ in range(1500):
        now += dice.random() * 0.2
        if dice.random() < 0.02:
            some = domains["rack"]["r1"] if dice.random() < 0.3 else dice.sample(names, 3)
            quiet_until |= dict.fromkeys(some, now + dice.random() * 12)
        if dice.random() < 0.01:
            nodes = tuple(name for name in names if dice.random() < 0.9)
            watch = replace(watch, nodes=nodes, lost_nodes=tuple(set(names) - set(nodes)))
        if dice.random() < 0.005:
            skipping.shift(0.0)
            looking.shift(0.0)
        for name in dice.sample(names, 2):
            if quiet_until[name] <= now:
                resumed = skipping.on_heartbeat(heartbeat(name), watch, now)
                assert resumed == looking.on_heartbeat(heartbeat(name), fresh(watch), now)
        found: list[object] = [*skipping.tick(watch, now)]
        results.append((now, found, [*looking.tick(fresh(watch), now)]))
        ours, theirs = skipping.due_at(watch), looking.due_at(fresh(watch))
        assert ours == theirs or (ours is not None and theirs is not None and now < ours < theirs)
    assert all(ours == theirs for _, ours, theirs in results)
    assert any(ours for _, ours, _ in results)


def test_the_last_of_many_nodes_to_report_its_start_is_not_searched_for() -> None:
    """Whether a node belongs to the gang is looked up."""
    names = Counted(f"n{number}" for number in range(300))
    gang = WatchedAttempt(
        attempt=AttemptId(1, 1, 0),
        nodes=names,
        since=0.0,
        start_seconds=60.0,
        progress_seconds=60.0,
    )
    watch, starts = WatchList(nodes=names, attempts=(gang,)), StartTimes()
    starts.tick(watch, 0.0)
    Counted.walks = 0
    for name in list(names)[:-1]:
        assert starts.on_heartbeat(heartbeat(name, start=True), watch, 1.0) == []
    # our own
    assert Counted.walks == 1
