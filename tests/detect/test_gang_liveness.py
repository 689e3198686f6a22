"""Gang liveness: steps that a gang makes without heartbeats of a node are reported; a step under way before is not."""

from runner.detect.registry import DetectorRegistry
from runner.facts.faults import GangStillStepping
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat
from runner.facts.watch import WatchedAttempt, WatchList

LIMIT = 5.0
GANG = AttemptId(1, 1, 0)


def watching(*nodes: str) -> DetectorRegistry:
    """Make detectors that watch one gang."""
    detectors = DetectorRegistry(LIMIT)
    watched = WatchedAttempt(
        attempt=GANG, nodes=nodes, since=0.0, start_seconds=0.0, progress_seconds=0.0
    )
    detectors.watch(WatchList(nodes=nodes, attempts=(watched,)))
    return detectors


def heartbeat(
    detectors: DetectorRegistry, node: str, now: float, step: int
) -> list[GangStillStepping]:
    """Deliver a heartbeat of a node, and let time pass; return the reports of its gang."""
    heartbeat = Heartbeat(node=node, incarnation=1, attempt=GANG, last_step=step)
    found = [*detectors.on_heartbeat(heartbeat, now), *detectors.tick(now)]
    return [item for item in found if isinstance(item, GangStillStepping)]


def without_n2(
    detectors: DetectorRegistry, *, steps: list[int]
) -> list[tuple[int, GangStillStepping]]:
    """Let n2 send one heartbeat at time 0, the others one a second with these steps; return the reports with their times."""
    reports = []
    heartbeat(detectors, "n2", 0.0, steps[0])
    for second, step in enumerate(steps):
        for node in ("n1", "n3", "n4"):
            reports += [(second, item) for item in heartbeat(detectors, node, float(second), step)]
    return reports


def test_a_gang_that_steps_without_a_node_is_reported_once_per_limit() -> None:
    """The report comes when the node is found silent, and again a whole limit later, with the pace of the steps."""
    reports = without_n2(watching("n1", "n2", "n3", "n4"), steps=list(range(12)))
    assert [second for second, _ in reports] == [6, 11]
    assert all(item.nodes == ("n2",) and item.step_seconds == 1.0 for _, item in reports)


def test_steps_made_before_a_node_can_have_died_prove_nothing() -> None:
    """Hundreds of steps up to its last heartbeat, and one that was under way, are no sign of its ranks."""
    steps = [0, 300, 300, 300, 301, *[301] * 10]
    assert without_n2(watching("n1", "n2", "n3", "n4"), steps=steps) == []


def test_a_step_more_is_no_evidence_two_are() -> None:
    """Nodes of one gang may be one step apart."""
    one = [0, 5, 5, 5, 5, 6, *[6] * 6]
    assert without_n2(watching("n1", "n2", "n3", "n4"), steps=one) == []
    two = [0, 5, 5, 5, 5, 6, 6, 7, *[7] * 6]
    reports = without_n2(watching("n1", "n2", "n3", "n4"), steps=two)
    assert [(second, item.step) for second, item in reports] == [(7, 7)]


def test_a_heartbeat_between_two_silences_restarts_the_count() -> None:
    """Steps of its first silence are no evidence in the second."""
    detectors = watching("n1", "n2", "n3", "n4")
    assert without_n2(detectors, steps=list(range(10)))
    heartbeat(detectors, "n2", 10.0, 10)
    reports = [
        item
        for second in range(10, 25)
        for node in ("n1", "n3", "n4")
        for item in heartbeat(detectors, node, float(second), 10)
    ]
    assert reports == []


def test_nothing_is_concluded_from_a_pause_of_the_supervisor() -> None:
    """After a pause, steps count from half a limit after it."""
    detectors = watching("n1", "n2", "n3", "n4")
    without_n2(detectors, steps=[0] * 6)
    detectors.shift(60.0)
    reports = [(at, heartbeat(detectors, "n1", at, 600)) for at in (66.0, 67.0, 68.0, 69.0, 70.0)]
    assert not any(items for _, items in reports)
