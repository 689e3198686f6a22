"""Incidents: findings with one cause, a culprit and a life."""

from __future__ import annotations

from enum import StrEnum


class IncidentState(StrEnum):
    """Where an incident stands."""

    OPEN = "open"  # seen; not enough evidence for a rung yet
    ACTING = "acting"  # a rung is being carried out
    PROVING = "proving"  # done; waits for the run to pass the step it had reached
    RESOLVED = "resolved"
    GAVE_UP = "gave_up"  # the ladder ended without success


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
