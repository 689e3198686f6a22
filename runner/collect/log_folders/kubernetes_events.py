"""Events of Kubernetes, as `kubectl get events -o json` and `kubectl cluster-info dump` write them: which node, and when.

The lines of such a file are searched as those of any log; an event's time and node are in other lines than its message.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from runner.collect.lines import unix_seconds
from runner.facts.matches import Match

# Larger lists are judged without times and nodes; chosen.
MAX_BYTES = 64 << 20
# Of a message, which a match may hold in part; chosen.
COMPARED_CHARACTERS = 200
_KEY = '"message": "'


class ClusterEvent(NamedTuple):
    """An event: its message, its time (Unix seconds), and the node or the pod that it is about ("": not known)."""

    message: str
    at: float | None
    node: str


def with_events(matches: Sequence[Match], content: bytes) -> list[Match]:
    """Add the time and the node of their event to matches; those of no event stay as they are."""
    by_message: dict[str, ClusterEvent] = {}
    for event in _events(content):
        # As JSON writes it, without the quotes.
        by_message.setdefault(json.dumps(event.message)[1:-1][:COMPARED_CHARACTERS], event)
    return [_with_event(match, by_message) for match in matches]


def _with_event(match: Match, by_message: Mapping[str, ClusterEvent]) -> Match:
    written = match.text.partition(_KEY)[2].rstrip().rstrip(",").removesuffix('"')
    event = by_message.get(written[:COMPARED_CHARACTERS]) if written else None
    if event is None:
        return match
    at = match.at if match.at is not None else event.at
    return replace(match, at=at, node=match.node or event.node)


def _events(content: bytes) -> Iterator[ClusterEvent]:
    """Yield the events of a list, the newest of those with the same message first; none of any other document."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return
    items = document.get("items") if isinstance(document, dict) else None
    listed = items if isinstance(items, list) else []
    found = [_event(item) for item in listed if isinstance(item, dict)]
    yield from sorted(found, key=lambda event: -(event.at or 0.0))


def _event(item: dict[str, Any]) -> ClusterEvent:
    about, source = _object(item, "involvedObject"), _object(item, "source")
    name, host = about.get("name"), source.get("host")
    node = name if about.get("kind") == "Node" else host or name
    times = (item.get(field) for field in ("lastTimestamp", "eventTime", "firstTimestamp"))
    time = next((one for one in times if isinstance(one, str)), "")
    message = item.get("message")
    return ClusterEvent(
        message if isinstance(message, str) else "",
        unix_seconds(time) if time else None,
        node if isinstance(node, str) else "",
    )


def _object(item: dict[str, Any], name: str) -> dict[str, Any]:
    value = item.get(name)
    return value if isinstance(value, dict) else {}
