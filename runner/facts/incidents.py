"""Incidents: findings with one cause, a culprit and a life."""

from __future__ import annotations

from enum import StrEnum


class IncidentState(StrEnum):
    """Where an incident stands."""

    # seen; not enough evidence for a rung yet
    OPEN = "open"
    # a rung is being carried out
    ACTING = "acting"
    # done; waits for the run to pass the step it had reached
    PROVING = "proving"
    RESOLVED = "resolved"
    # the ladder ended without success
    GAVE_UP = "gave_up"


TRANSITIONS: dict[IncidentState, tuple[IncidentState, ...]] = {
    IncidentState.OPEN: (
        IncidentState.ACTING,
        IncidentState.PROVING,
        IncidentState.RESOLVED,
        IncidentState.GAVE_UP,
    ),
    IncidentState.ACTING: (
        IncidentState.PROVING,
        IncidentState.ACTING,
        IncidentState.RESOLVED,
        IncidentState.GAVE_UP,
    ),
    IncidentState.PROVING: (IncidentState.ACTING, IncidentState.RESOLVED, IncidentState.GAVE_UP),
    IncidentState.RESOLVED: (),
    IncidentState.GAVE_UP: (),
}
