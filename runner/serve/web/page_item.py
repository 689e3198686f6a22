"""What a section of the page is made of, and what incidents are called there and in runs."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from runner.facts.messages.cluster_status import IncidentStatus
from runner.facts.wording import printable
from runner.serve.status_words import incident_fault, incident_place

# Of one text; chosen.
MAX_TEXT = 240
MAX_NAME = 80


class PageSection(NamedTuple):
    """One section of the page: of each item a key that changes whenever the item does, and what makes an item, by its name."""

    keys: Mapping[str, object]
    make: Callable[[str], dict[str, Any]]


def place_of(incident: IncidentStatus) -> str:
    """Return the place of an incident, cut; "" for none."""
    place = incident_place(incident)
    return "" if place == "-" else printable(place, MAX_NAME)


def why_of(incident: IncidentStatus) -> str:
    """Say in one line what an incident is, where, and by what it is known."""
    place, evidence = place_of(incident), incident.evidence[0] if incident.evidence else ""
    text = f"{incident_fault(incident)}{f' on {place}' if place else ''}"
    because = printable(evidence or incident.reason, MAX_TEXT)
    return f"{text}: {because}" if because else text
