"""Heartbeat timeout: a node is found silent once, after its limit, and never for a pause of the supervisor."""

from runner.detect.detector import NodeSilence
from runner.detect.heartbeat_timeout import HeartbeatTimeout
from runner.facts.faults import CorrelatedSilence, DomainSilence, Finding, HeartbeatResumed
from runner.facts.messages.signals import Heartbeat
from runner.facts.watch import WatchList

LIMIT = 5.0
NODES = ("n1", "n2", "n3", "n4")


def heartbeat(node: str) -> Heartbeat:
    """Make a heartbeat."""
    return Heartbeat(node=node, incarnation=1)


def listening(*nodes: str) -> tuple[HeartbeatTimeout, WatchList]:
    """Make a detector that received heartbeats of these nodes at time 0."""
    silence, watch = HeartbeatTimeout(NodeSilence(LIMIT)), WatchList(nodes=nodes)
    for node in nodes:
        silence.on_heartbeat(heartbeat(node), watch, 0.0)
    return silence, watch


def silent(found: list[Finding | CorrelatedSilence | DomainSilence]) -> list[str | None]:
    """Name the nodes found silent."""
    return [item.node for item in found if isinstance(item, Finding)]


def test_a_node_that_stops_sending_heartbeats_is_found() -> None:
    """The finding comes at the limit, names node and seconds, and comes again a whole limit later."""
    silence, watch = listening("n1", "n2")
    silence.on_heartbeat(heartbeat("n2"), watch, 4.0)
    assert silence.tick(watch, LIMIT - 0.01) == []
    (found,) = silence.tick(watch, LIMIT)
    assert isinstance(found, Finding)
    assert (found.fault, found.node, found.silent_seconds) == ("node_silent", "n1", LIMIT)
    assert silence.tick(watch, LIMIT + 1.0) == []
    silence.on_heartbeat(heartbeat("n2"), watch, 9.0)
    assert silent(silence.tick(watch, 2 * LIMIT)) == ["n1"]


def test_nodes_that_send_heartbeats_are_never_found() -> None:
    """An hour of heartbeats a second apart makes no finding."""
    silence, watch = listening(*NODES)
    for second in range(1, 3600):
        for node in NODES:
            assert silence.on_heartbeat(heartbeat(node), watch, float(second)) == []
        assert silence.tick(watch, second + 0.9) == []


def test_a_silent_node_whose_heartbeats_resume_is_reported() -> None:
    """The first heartbeat after the finding is reported, later ones are not."""
    silence, watch = listening("n1", "n2")
    silence.on_heartbeat(heartbeat("n2"), watch, 6.0)
    assert silent(silence.tick(watch, 6.0)) == ["n1"]
    assert silence.on_heartbeat(heartbeat("n1"), watch, 7.0) == [
        HeartbeatResumed(node="n1", incarnation=1)
    ]
    assert silence.on_heartbeat(heartbeat("n1"), watch, 8.0) == []


def test_many_nodes_silent_at_once_are_one_correlated_silence() -> None:
    """Most of the nodes fall silent together: one finding says so, and one more when their heartbeats resume."""
    silence, watch = listening(*NODES)
    silence.on_heartbeat(heartbeat("n4"), watch, 4.0)
    found = silence.tick(watch, LIMIT)
    assert CorrelatedSilence(nodes=("n1", "n2", "n3")) in found
    for node in NODES:
        silence.on_heartbeat(heartbeat(node), watch, 6.0)
    assert CorrelatedSilence() in silence.tick(watch, 6.0)


def test_two_silent_nodes_of_four_are_no_correlated_silence() -> None:
    """Few silent nodes are found as single nodes."""
    silence, watch = listening(*NODES)
    for node in ("n3", "n4"):
        silence.on_heartbeat(heartbeat(node), watch, 4.0)
    found = silence.tick(watch, LIMIT)
    assert silent(found) == ["n1", "n2"]
    assert not any(isinstance(item, CorrelatedSilence) for item in found)


def test_silence_of_all_nodes_is_correlated() -> None:
    """When no node sends heartbeats, the nodes are not the cause, however few there are."""
    silence, watch = listening("n1", "n2")
    assert CorrelatedSilence(nodes=("n1", "n2")) in silence.tick(watch, LIMIT)


def test_a_pause_of_the_supervisor_makes_no_node_silent() -> None:
    """After a pause of the supervisor each node gets the whole limit again."""
    silence, watch = listening("n1", "n2")
    silence.shift(0.0)
    assert silence.tick(watch, 100.0) == []
    assert silent(silence.tick(watch, 100.0 + LIMIT)) == ["n1", "n2"]


def test_the_detector_returns_when_it_is_due_again() -> None:
    """The time due is that of the first node to become silent, then of the next."""
    silence, watch = listening("n1", "n2")
    silence.on_heartbeat(heartbeat("n2"), watch, 2.0)
    assert silence.due_at(watch) == LIMIT
    silence.tick(watch, LIMIT)
    assert silence.due_at(watch) == 2.0 + LIMIT


def test_a_correlated_silence_stays_when_some_of_its_nodes_are_taken_out() -> None:
    """Silent nodes that leave the watch list do not turn the rest into culprits; resumed heartbeats do."""
    nodes = tuple(f"n{index}" for index in range(1, 8))
    silence, watch = listening(*nodes)
    speaking, quiet = nodes[:3], nodes[3:]
    crowds = []
    for second in range(1, 12):
        for node in speaking:
            silence.on_heartbeat(heartbeat(node), watch, float(second))
        # Two of the four are drained: two of five would be no correlated silence.
        if second == 7:
            watch = WatchList(nodes=nodes[:5])
        found = silence.tick(watch, second + 0.5)
        crowds += [item.nodes for item in found if isinstance(item, CorrelatedSilence)]
    assert crowds == [quiet]
    for node in (*speaking, "n4", "n5"):
        silence.on_heartbeat(heartbeat(node), watch, 12.0)
    assert CorrelatedSilence() in silence.tick(watch, 12.5)
