"""Events of Kubernetes: each line of a message gets the time and the node of its event; hostile documents change nothing."""

import json

import pytest

from runner.collect.lines import unix_seconds
from runner.collect.log_folders.kubernetes_events import with_events
from runner.facts.matches import Match

MESSAGE = 'Container "x" was OOMKilled \u00e9\n' + "and so on " * 60
NODE_EVENT = {
    "involvedObject": {"kind": "Node", "name": "gpu-017"},
    "eventTime": "2026-02-03T04:06:00.123456Z",
    "message": MESSAGE,
}


def match(text: str) -> Match:
    """Make a match in a list of events."""
    return Match(signature="x", fault="host_oom", layer="machine", scope="node", text=text)


def line(message: str) -> str:
    """Write a line of a list as kubectl does."""
    return f'            "message": {json.dumps(message)},'


def test_an_event_gives_its_line_time_and_node() -> None:
    """Also where the match holds only a part of the message, and for the newest of equal messages."""
    old = {**NODE_EVENT, "eventTime": "2026-02-03T04:05:00Z"}
    content = json.dumps({"items": [old, NODE_EVENT, {"message": 3}, 4]}).encode()
    found, other = with_events([match(line(MESSAGE)[:300]), match(line("another"))], content)
    assert (found.node, found.at) == ("gpu-017", unix_seconds("2026-02-03T04:06:00.123456Z"))
    assert (other.node, other.at) == ("", None)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[1, 2]",
        b"[" * 100_000,
        b'{"items": 3}',
        b'{"items": [{"involvedObject": []}]}',
        b"\xff",
    ],
)
def test_what_is_no_list_of_events_changes_nothing(content: bytes) -> None:
    """Whatever the document holds."""
    matches = [match(line(MESSAGE))]
    assert with_events(matches, content) == matches
