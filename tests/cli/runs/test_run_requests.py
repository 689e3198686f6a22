"""`pause`, `resume`, `restart`, `note` and `ack` send who, why, and what the person saw."""

from typing import Any

import pytest
from msgspec.structs import replace

from runner.cli.runs.run_requests import seen_incident
from runner.errors import UserError
from runner.facts.messages import requests as q
from runner.facts.messages.cluster_status import ClusterStatus, IncidentStatus, ProposalStatus
from tests.cli.conftest import Answering, Cluster, example_view, stoker

STATUS = ClusterStatus(
    cluster="c",
    now=0.0,
    wall=0.0,
    incidents=(
        IncidentStatus(incident="i4", state="proving", fault="rank_crash", run=2, version=7),
        IncidentStatus(incident="i3", state="resolved", fault="rank_crash", run=2, version=5),
    ),
)


@pytest.mark.parametrize(
    ("words", "kind"),
    [("pause", q.PauseRun), ("resume", q.ResumeRun), ("restart", q.RestartRun)],
)
def test_a_request_about_a_run_says_who_and_why(
    cluster: Cluster, words: str, kind: type[q.Request]
) -> None:
    """It expires some minutes after it was sent; the answer is printed."""
    cluster.lead()
    answering = Answering(cluster, ("open", "at the next step"), ("done", "it is so"))
    result = stoker(words, "tiny", "--why", "new disks")
    answering.join()
    assert (result.exit_code, result.stdout) == (0, "it is so\n")
    (sent,) = cluster.requests()
    assert isinstance(sent, kind)
    assert (sent.run, sent.reason) == ("2", "new disks")  # type: ignore[attr-defined]
    assert sent.by
    assert 0 < sent.expires_at - sent.sent_at <= 300


def test_nodes_of_a_paused_run_are_released_on_request(cluster: Cluster) -> None:
    """--release lets other runs have them."""
    cluster.lead()
    answering = Answering(cluster, ("done", "paused"))
    assert '"state": "done"' in stoker("pause", "--release", "--json").stdout
    answering.join()
    (sent,) = cluster.requests()
    assert isinstance(sent, q.PauseRun)
    assert sent.releases_nodes


def test_a_note_and_an_acknowledgement_are_sent(cluster: Cluster) -> None:
    """A note is about a run, an incident, or the cluster; the words need no quotes."""
    cluster.lead()
    for command in (
        ["note", "the", "fans", "are", "loud", "--run", "old"],
        ["ack", "i1", "--why", "I look"],
    ):
        answering = Answering(cluster, ("done", "noted"))
        assert stoker(*command).exit_code == 0
        answering.join()
    note, ack = cluster.requests()
    assert isinstance(note, q.AddNote)
    assert (note.text, note.run, note.incident) == ("the fans are loud", "old", "")
    assert isinstance(ack, q.AcknowledgeIncident)
    assert (ack.incident, ack.reason) == ("i1", "I look")


def test_what_was_seen_is_the_newest_open_incident_unless_it_is_named() -> None:
    """A version may be given with it; without one it is that of the status."""
    assert seen_incident(STATUS, None, run=2) == {"incident": "i4", "seen": 7}
    assert seen_incident(STATUS, None, run=1) == {}
    assert seen_incident(STATUS, "i3@4", run=2) == {"incident": "i3", "seen": 4}
    assert seen_incident(STATUS, "i3") == {"incident": "i3", "seen": 5}
    for text, words in (("i5", "no incident 'i5'"), ("x", "write i3"), ("i4@", "write i3")):
        with pytest.raises(UserError, match=words):
            seen_incident(STATUS, text, run=2)
    with pytest.raises(UserError, match="of run 2, not of 1"):
        seen_incident(STATUS, "i4", run=1)


@pytest.mark.parametrize("command", [["pause", "old"], ["pause", "--why", "a\nb"], ["ack", "i99"]])
def test_what_cannot_be_is_refused_before_it_is_sent(cluster: Cluster, command: list[str]) -> None:
    """A run that is over, a reason of two lines, an unknown incident: exit code 2."""
    cluster.lead()
    assert stoker(*command).exit_code == 2
    assert cluster.requests() == []


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        (["rewind", "tiny", "--before-step", "90"], {"before_step": 90}),
        (["restart", "tiny", "--from-step", "80"], {"from_step": 80}),
        (["skip", "tiny", "90", "95"], {"remedy": "skip_steps", "value": [[90, 95]]}),
        (["revert", "tiny", "r2"], {"remedy": "r2"}),
        (["approve", "a12", "--why", "as agreed"], {"action": "a12", "reason": "as agreed"}),
        (["deny", "a12"], {"action": "a12"}),
        (["pin", "tiny", "80"], {"run": "2", "step": 80, "remove": False}),
        (["pin", "tiny", "80", "--remove"], {"step": 80, "remove": True}),
    ],
)
def test_what_changes_how_a_run_trains_is_a_request(
    cluster: Cluster, words: list[str], sent: dict[str, Any]
) -> None:
    """Each with what it is about; the answer is the last line."""
    cluster.lead()
    answering = Answering(cluster, ("done", "it is so"))
    result = stoker(*words)
    answering.join()
    assert (result.exit_code, result.stdout) == (0, "it is so\n")
    (request,) = cluster.requests()
    for name, value in sent.items():
        found = getattr(request, name)
        assert (list(map(list, found)) if name == "value" else found) == value


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["rewind", "tiny"], "--before-step"),
        (["rewind", "tiny", "--before-step", "0"], "0 is not in the range"),
        (["skip", "tiny", "95", "90"], "write the lower step first"),
        (["skip", "tiny", "x", "90"], "is not a valid integer"),
        (["approve"], "nothing is proposed"),
    ],
)
def test_a_change_that_cannot_be_meant_is_refused_before_it_is_sent(
    cluster: Cluster, words: list[str], text: str
) -> None:
    """The message names the value."""
    cluster.lead()
    result = stoker(*words)
    assert result.exit_code == 2
    assert text in result.stderr
    assert cluster.requests() == []


def test_the_only_proposal_needs_no_name_and_is_listed(cluster: Cluster) -> None:
    """Of several, one is named; `stoker status` lists them with the commands to answer."""
    first = ProposalStatus(action="a7", run=2, incident="i1", text="rewind (before 64)", since=1.0)
    second = replace(first, action="a9", incident="i2")
    cluster.publish(replace(example_view(), proposals=(first,)))
    cluster.lead()
    answering = Answering(cluster, ("done", "taken"))
    assert stoker("approve").exit_code == 0
    answering.join()
    (request,) = cluster.requests()
    assert isinstance(request, q.ApproveAction)
    assert request.action == "a7"
    assert "i1: a7 proposes rewind (before 64): `stoker approve a7`" in stoker("status").stdout
    cluster.publish(replace(example_view(), proposals=(first, second)))
    assert "name one: a7, a9" in stoker("deny").stderr


@pytest.mark.parametrize("words", [["stop", "tiny"], ["lr", "tiny", "x0.9"]])
def test_older_commands_say_why_too(cluster: Cluster, words: list[str]) -> None:
    """The reason is told to others, and kept in the journal."""
    cluster.lead()
    answering = Answering(cluster, ("done", "it is so"))
    assert stoker(*words, "--why", "enough").exit_code == 0
    answering.join()
    (request,) = cluster.requests()
    assert request.reason == "enough"
