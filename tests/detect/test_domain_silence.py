"""Domains: nodes that fall silent with their rack are found as the rack, once it is sure, and soon."""

import random

import pytest

from runner.detect.detector import NodeSilence
from runner.detect.heartbeat_timeout import HeartbeatTimeout
from runner.detect.registry import DetectorRegistry
from runner.facts.faults import CorrelatedSilence, DomainSilence, Finding, HeartbeatResumed
from runner.facts.messages.signals import Heartbeat
from runner.facts.watch import WatchList

LIMIT = 5.0
Found = Finding | CorrelatedSilence | DomainSilence


def names(*numbers: int) -> tuple[str, ...]:
    """Name nodes."""
    return tuple(f"n{number}" for number in numbers)


def fleet(count: int, **domains: dict[str, tuple[str, ...]]) -> tuple[HeartbeatTimeout, WatchList]:
    """Make a detector that received heartbeats of nodes n1.. at time 0."""
    watch = WatchList(nodes=names(*range(1, count + 1)), domains=domains)
    silence = HeartbeatTimeout(NodeSilence(LIMIT))
    send_heartbeats(silence, watch, watch.nodes, 0.0)
    return silence, watch


def send_heartbeats(
    silence: HeartbeatTimeout, watch: WatchList, nodes: tuple[str, ...], now: float
) -> None:
    """Deliver a heartbeat of each node."""
    for node in nodes:
        silence.on_heartbeat(Heartbeat(node=node, incarnation=1), watch, now)


def play(
    silence: HeartbeatTimeout,
    watch: WatchList,
    last: dict[str, float],
    *,
    until: float,
    period: float = 1.0,
) -> list[tuple[float, Found]]:
    """Let each node send heartbeats until its last one, tick when due; return findings with times."""
    found: list[tuple[float, Found]] = []
    heartbeats = [
        (index * 0.001 + period * count, node)
        for index, node in enumerate(watch.nodes)
        for count in range(int(until / period) + 1)
    ]
    for time, node in sorted([*heartbeats, (until, "")]):
        while (due := silence.due_at(watch)) is not None and due <= time:
            looked = silence.tick(watch, due)
            found += [(due, item) for item in looked]
            after = silence.due_at(watch)
            assert after is None or after > due, "it would be due again at once, for ever"
        if node and time <= last.get(node, until):
            silence.on_heartbeat(Heartbeat(node=node, incarnation=1), watch, time)
    return found


def silent_names(found: list[tuple[float, Found]]) -> list[str]:
    """Name the silent domains and nodes, each once."""
    who = [
        f"{item.domain} {item.name}" if isinstance(item, DomainSilence) else str(item.node)
        for _, item in found
        if not isinstance(item, CorrelatedSilence)
    ]
    return list(dict.fromkeys(who))


RACKS = {"r1": names(1, 2), "r2": names(3, 4), "r3": names(5, 6)}


def test_a_rack_that_goes_at_once_is_found_as_a_rack() -> None:
    """One finding names the domain, all its nodes and the longest silence; no node is found alone, then or later."""
    silence, watch = fleet(6, rack=RACKS)
    found = play(silence, watch, dict.fromkeys(names(1, 2), 10.4), until=30.0)
    assert silent_names(found) == ["rack r1"]
    time, first = found[0]
    assert isinstance(first, DomainSilence)
    assert first.nodes == names(1, 2)
    # the last heartbeat of n1
    assert first.silent_seconds == time - 10.0


def test_the_first_silent_node_waits_for_its_peers() -> None:
    """Their last heartbeats came later: nothing is found until they, too, are silent for the whole limit."""
    silence, watch = fleet(6, rack=RACKS)
    found = play(silence, watch, {"n1": 10.0, "n2": 11.5}, until=16.0 + LIMIT)
    assert silent_names(found) == ["rack r1"]
    assert found[0][0] == 11.001 + LIMIT


def test_a_node_whose_peer_sends_heartbeats_is_found_at_the_limit() -> None:
    """A dead node in a rack costs no second more."""
    silence, watch = fleet(6, rack=RACKS)
    found = play(silence, watch, {"n1": 10.0}, until=18.0)
    assert [(time, item.node) for time, item in found if isinstance(item, Finding)] == [
        (15.0, "n1")
    ]


def test_a_late_heartbeat_of_a_peer_ends_the_wait_at_once() -> None:
    """The finding about the node comes with the peer's heartbeat, not at the end of the wait."""
    silence, watch = fleet(6, rack=RACKS)
    for second in (1.0, 2.0, 3.0, 4.0):
        send_heartbeats(silence, watch, names(3, 4, 5, 6), second)
    send_heartbeats(silence, watch, ("n2",), 2.0)
    assert silence.tick(watch, LIMIT) == []
    due = silence.due_at(watch)
    assert due is not None
    assert due > LIMIT
    send_heartbeats(silence, watch, ("n2",), LIMIT + 0.1)
    due = silence.due_at(watch)
    assert due is not None
    assert due <= LIMIT + 0.1
    (found,) = silence.tick(watch, LIMIT + 0.1)
    assert isinstance(found, Finding)
    assert found.node == "n1"


def test_two_nodes_of_a_rack_that_die_far_apart_are_two_nodes() -> None:
    """They are one domain only when they fell silent within one limit."""
    silence, watch = fleet(6, rack=RACKS)
    found = play(silence, watch, {"n1": 10.0, "n2": 20.0}, until=40.0)
    assert silent_names(found) == ["n1", "n2"]


def test_a_domain_of_one_node_is_a_node() -> None:
    """Neither a rack with one node, nor one of which one is left that is watched."""
    silence, watch = fleet(6, rack={"r1": ("n1",), "r2": ("n2", "n9"), "r3": names(3, 4)})
    found = play(silence, watch, {"n1": 10.0, "n2": 10.0}, until=18.0)
    assert sorted(silent_names(found)) == ["n1", "n2"]


@pytest.mark.parametrize("kinds", [("switch", "rack"), ("rack", "switch")])
def test_the_widest_domain_that_explains_it_wins(kinds: tuple[str, str]) -> None:
    """A rack of two silent switches is one rack, in any order of the kinds and of the silences."""
    switches = {"s1": names(1, 2), "s2": names(3, 4), "s3": names(5, 6), "s4": names(7, 8)}
    racks = {"r1": names(1, 2, 3, 4), "r2": names(5, 6, 7, 8)}
    given = {"switch": switches, "rack": racks}
    silence, watch = fleet(9, **{kind: given[kind] for kind in kinds})
    last = {"n1": 10.0, "n2": 10.0, "n3": 11.0, "n4": 11.5}
    assert silent_names(play(silence, watch, last, until=30.0)) == ["rack r1"]


def test_a_switch_is_found_when_its_rack_sends_heartbeats() -> None:
    """The narrower domain is found when the wider one has a node with heartbeats."""
    silence, watch = fleet(
        6, switch={"s1": names(1, 2), "s2": names(3, 4)}, rack={"r1": names(1, 2, 3, 4)}
    )
    found = play(silence, watch, {"n1": 10.0, "n2": 10.5}, until=30.0)
    assert silent_names(found) == ["switch s1"]


def test_overlapping_kinds_explain_all_that_is_silent() -> None:
    """A power supply that feeds two halves of racks is found; the rest of a rack that is silent, too, comes with its rack."""
    power = {"p1": names(1, 2, 3, 4)}
    racks = {"r1": names(1, 2), "r2": names(3, 4, 5), "r3": names(6, 7)}
    silence, watch = fleet(11, power=power, rack=racks)
    last = dict.fromkeys(names(1, 2, 3, 4), 10.0)
    assert silent_names(play(silence, watch, last, until=20.0)) == ["power p1"]
    silence, watch = fleet(11, power=power, rack=racks)
    assert silent_names(play(silence, watch, {**last, "n5": 10.0}, until=20.0)) == [
        "power p1",
        "rack r2",
    ]


def test_most_of_everything_is_a_mass_silence_still() -> None:
    """Two racks of three fall silent a heartbeat apart: the store or the fabric is silent_names, and no rack before that."""
    silence, watch = fleet(6, rack=RACKS)
    last = {**dict.fromkeys(names(1, 2), 10.0), **dict.fromkeys(names(3, 4), 11.5)}
    found = [item for _, item in play(silence, watch, last, until=18.0)]
    assert not any(isinstance(item, DomainSilence) for item in found)
    assert any(isinstance(item, CorrelatedSilence) and len(item.nodes) == 4 for item in found)


def test_after_a_mass_silence_a_rack_that_stays_away_is_a_rack() -> None:
    """The others come back one after the other; only then does the rack differ from those that were merely slower."""
    silence, watch = fleet(6, rack=RACKS)
    found = [(LIMIT, item) for item in silence.tick(watch, LIMIT)]
    assert isinstance(found[0][1], CorrelatedSilence)
    for index, node in enumerate(names(1, 2, 3, 4)):
        send_heartbeats(silence, watch, (node,), 9.5 + 0.3 * index)
        assert not any(
            isinstance(item, DomainSilence) for item in silence.tick(watch, 9.5 + 0.3 * index)
        )
    watch = WatchList(nodes=watch.nodes, domains=watch.domains)
    late: list[Found] = []
    now = 10.5
    while now < 20.0:
        send_heartbeats(silence, watch, names(1, 2, 3, 4), now)
        late += silence.tick(watch, now)
        now += 0.5
    assert [item.name for item in late if isinstance(item, DomainSilence)][:1] == ["r3"]
    assert not any(isinstance(item, Finding) for item in late)


def test_a_domain_that_was_silent_from_the_start_is_found() -> None:
    """A new detector gives every node the whole limit, and finds the rack at its end."""
    watch = WatchList(nodes=names(1, 2, 3, 4, 5, 6), domains={"rack": RACKS})
    silence = HeartbeatTimeout(NodeSilence(LIMIT))
    assert silence.tick(watch, 100.0) == []
    for second in range(1, 5):
        send_heartbeats(silence, watch, names(3, 4, 5, 6), 100.0 + second)
    (found,) = silence.tick(watch, 100.0 + LIMIT)
    assert isinstance(found, DomainSilence)
    assert found.nodes == names(1, 2)


def test_a_domain_that_stays_silent_is_named_again() -> None:
    """Like a single node: the decider may have ignored the first finding. When heartbeats resume, each node is reported."""
    silence, watch = fleet(6, rack=RACKS)
    found = play(silence, watch, dict.fromkeys(names(1, 2), 10.0), until=24.0)
    times = [time for time, item in found if isinstance(item, DomainSilence)]
    assert len(times) == 2
    assert times[1] - times[0] == pytest.approx(LIMIT)
    for node in names(1, 2):
        heartbeat = Heartbeat(node=node, incarnation=1)
        assert silence.on_heartbeat(heartbeat, watch, 26.0) == [
            HeartbeatResumed(node=node, incarnation=1)
        ]


def test_random_deaths_are_found_in_bounded_time_and_reported_once_a_limit() -> None:
    """Each silent node is named, alone or by its domain, within the limit and a half."""
    for seed in range(200):
        draw = random.Random(seed)
        count = draw.randint(4, 16)
        width = draw.randint(2, 4)
        racks = {
            f"r{start}": names(*range(start, min(start + width, count + 1)))
            for start in range(1, count + 1, width)
        }
        silence, watch = fleet(count, rack=racks)
        dead = draw.sample(watch.nodes, draw.randint(0, count - 1))
        last = {node: draw.uniform(5.0, 15.0) for node in dead}
        found = play(silence, watch, last, until=40.0)
        named: dict[str, float] = {}
        for time, item in found:
            if isinstance(item, CorrelatedSilence):
                continue
            nodes = item.nodes if isinstance(item, DomainSilence) else (str(item.node),)
            for node in nodes:
                named.setdefault(node, time)
        assert sorted(named) == sorted(dead), seed
        for node, time in named.items():
            assert time <= last[node] + 1.5 * LIMIT + 0.1, (seed, node)
            assert time >= last[node] + LIMIT - 1.01, (seed, node)


def test_a_heartbeat_of_another_instance_is_not_the_nodes() -> None:
    """Another instance under the node's name does not keep the node alive; where no instance is known, any heartbeat counts."""
    detectors = DetectorRegistry(LIMIT)
    watch = WatchList(nodes=("n1", "n2"), instance_ids={"n1": "a", "n2": ""})
    detectors.watch(watch)
    for second in range(6):
        detectors.on_heartbeat(Heartbeat(node="n1", incarnation=1, instance_id="b"), float(second))
        detectors.on_heartbeat(Heartbeat(node="n2", incarnation=1, instance_id="c"), float(second))
        found = detectors.tick(float(second))
    assert [item.node for item in found if isinstance(item, Finding)] == ["n1"]
    assert detectors.on_heartbeat(Heartbeat(node="n1", incarnation=1, instance_id="a"), 6.0) == [
        HeartbeatResumed(node="n1", incarnation=1)
    ]
