"""Fields of heartbeats that rarely change travel now and then, and every supervisor gets them."""

from runner.agent.rare_field import REPEAT_SECONDS, RareField
from runner.detect.start_times import GRACE_SECONDS, StartTimes
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat, StartPhase
from runner.facts.watch import WatchedAttempt, WatchList
from runner.supervisor.status_builder import LastHeartbeats

ATTEMPT = AttemptId(1, 1, 0)
VERSIONS = {"python": "3.11.7", "torch": "2.13.0"}


def test_a_value_is_sent_once_until_it_changes() -> None:
    """A change is sent at once, also one to nothing; the same again only after the repetition."""
    rare = RareField[str]()
    assert rare.pop_due({}, 0.0) == {}
    assert rare.pop_due(VERSIONS, 1.0) == VERSIONS
    assert rare.pop_due(VERSIONS, 2.0) == {}
    assert rare.pop_due({"python": "3.12.1"}, 3.0) == {"python": "3.12.1"}
    assert rare.pop_due({"python": "3.12.1"}, 2.9 + REPEAT_SECONDS) == {}
    assert rare.pop_due({"python": "3.12.1"}, 3.0 + REPEAT_SECONDS) == {"python": "3.12.1"}
    assert rare.pop_due({}, 14.0) == {}
    assert rare.pop_due({"python": "3.12.1"}, 15.0) == {"python": "3.12.1"}


def test_a_standby_that_takes_over_learns_how_a_gang_started() -> None:
    """Nodes that repeat at different moments are all in the one fact, whenever the next supervisor begins to listen."""
    names = tuple(f"n{number}" for number in range(1, 9))
    watched = WatchedAttempt(
        attempt=ATTEMPT, nodes=names, since=0.0, start_seconds=60.0, progress_seconds=30.0
    )
    watch = WatchList(nodes=names, attempts=(watched,))
    assert GRACE_SECONDS > REPEAT_SECONDS
    for taken_over_at in range(1, 12):
        starts, found = StartTimes(), []
        rare = {name: RareField[StartPhase]() for name in names}
        for second in range(40):
            for number, name in enumerate(names):
                # They came up a second after each other.
                value = {"load": StartPhase(seconds=float(number), rank=number)}
                phases = rare[name].pop_due(value if second >= number else {}, float(second))
                if second >= 8 + taken_over_at:
                    heartbeat = Heartbeat(
                        node=name, incarnation=1, attempt=ATTEMPT, start_phases=phases
                    )
                    found += starts.on_heartbeat(heartbeat, watch, float(second))
        assert [fact.slowest["load"].node for fact in found] == ["n8"]


def test_versions_are_remembered_between_the_heartbeats_that_have_them() -> None:
    """They are those of the warm process that is ready, not of an earlier one nor of another agent."""
    heartbeats = LastHeartbeats()

    def record(warm: str, versions: dict[str, str], instance_id: str = "a") -> dict[str, str]:
        heartbeats.record(
            Heartbeat(
                node="n1",
                incarnation=1,
                instance_id=instance_id,
                warm=warm,
                warm_versions=versions,
            ),
            now=1.0,
        )
        return dict(heartbeats.warm_versions.get("n1", {}))

    assert record("ready", VERSIONS) == VERSIONS
    assert record("ready", {}) == VERSIONS
    assert record("importing", {}) == {}
    # Of an agent that was restarted between two heartbeats; a supervisor that took over knows of none.
    assert record("ready", VERSIONS) == VERSIONS
    assert record("ready", {}, instance_id="b") == {}
    assert record("ready", VERSIONS, instance_id="b") == VERSIONS
    assert record("", {}, instance_id="b") == {}
