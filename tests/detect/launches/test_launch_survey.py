"""Launch surveys: what the nodes of a gang run with, from the digests that each reports."""

from collections.abc import Mapping

from runner.detect.launch_survey import GRACE_SECONDS, MAX_NODES, MAX_VARIANTS, LaunchSurvey
from runner.facts.faults import LaunchSurveyed, PartVariant
from runner.facts.ids import AttemptId
from runner.facts.messages.signals import Heartbeat
from runner.facts.watch import WatchedAttempt, WatchList

ATTEMPT = AttemptId(1, 1, 0)


def watch(*nodes: str) -> WatchList:
    """Watch one gang on these nodes."""
    watched = WatchedAttempt(
        attempt=ATTEMPT, nodes=nodes, since=0.0, start_seconds=60.0, progress_seconds=30.0
    )
    return WatchList(nodes=nodes, attempts=(watched,))


def report(
    survey: LaunchSurvey, seen: WatchList, node: str, now: float, digests: Mapping[str, str]
) -> list[LaunchSurveyed]:
    """Let a node report digests."""
    heartbeat = Heartbeat(node=node, incarnation=1, attempt=ATTEMPT, conditions=digests)
    return survey.on_heartbeat(heartbeat, seen, now)


def test_the_last_node_completes_the_survey_and_repeated_reports_change_nothing() -> None:
    """One fact, with nodes in rank order, whatever the order of their reports."""
    survey, seen = LaunchSurvey(), watch("n1", "n2", "n3")
    assert report(survey, seen, "n3", 1.0, {"code": "b"}) == []
    assert report(survey, seen, "n2", 1.0, {"code": "a"}) == []
    (found,) = report(survey, seen, "n1", 2.0, {"code": "a"})
    assert found.parts == {
        "code": (
            PartVariant(digest="a", nodes=("n1", "n2"), num_nodes=2),
            PartVariant(digest="b", nodes=("n3",), num_nodes=1),
        )
    }
    assert report(survey, seen, "n1", 12.0, {"code": "a"}) == []
    assert survey.due_at(seen) is None


def test_a_digest_that_comes_later_is_one_more_fact() -> None:
    """Ranks know their data after their imports: its first digest is news, the same of other nodes is not, another one is."""
    survey, seen = LaunchSurvey(), watch("n1", "n2", "n3")
    for node in ("n1", "n2", "n3"):
        report(survey, seen, node, 1.0, {"code": "a"})
    (found,) = report(survey, seen, "n2", 9.0, {"code": "a", "data": "x"})
    assert found.parts["data"] == (PartVariant(digest="x", nodes=("n2",), num_nodes=1),)
    assert report(survey, seen, "n1", 9.0, {"code": "a", "data": "x"}) == []
    (found,) = report(survey, seen, "n3", 9.0, {"code": "a", "data": "y"})
    assert [each.digest for each in found.parts["data"]] == ["x", "y"]


def test_a_node_that_never_reports_is_not_waited_for_for_ever() -> None:
    """After the grace the others are compared, at the announced time, and it is named."""
    survey, seen = LaunchSurvey(), watch("n1", "n2")
    report(survey, seen, "n1", 10.0, {"code": "a"})
    assert survey.due_at(seen) == 10.0 + GRACE_SECONDS
    assert survey.tick(seen, 10.0 + GRACE_SECONDS - 0.1) == []
    (found,) = survey.tick(seen, 10.0 + GRACE_SECONDS)
    assert (found.missing, found.num_missing) == (("n2",), 1)
    assert survey.tick(seen, 200.0) == []


def test_what_a_large_gang_yields_is_bounded() -> None:
    """However many nodes differ, and in however many ways; nodes that are not of the gang count for nothing."""
    nodes = tuple(f"n{number}" for number in range(2000))
    survey, seen = LaunchSurvey(), watch(*nodes)
    report(survey, seen, "x", 1.0, {"code": "z"})
    facts = [
        fact
        for number, node in enumerate(nodes)
        for fact in report(survey, seen, node, 1.0, {"code": str(number % 40), "no part": "q"})
    ]
    (found,) = facts
    assert len(found.parts["code"]) == MAX_VARIANTS
    assert all(len(each.nodes) == MAX_NODES for each in found.parts["code"])
    assert list(found.parts) == ["code"]
