"""What a status means in words and at a glance, the same for commands, screens and the web page."""

from collections.abc import Sequence

from runner.facts.messages.cluster_status import IncidentStatus

# In which a node serves, or could at once.
PLAIN_STATES = ("active", "spare")


def is_open(incident: IncidentStatus) -> bool:
    """Whether an incident goes on."""
    return incident.state not in ("resolved", "gave_up")


def incident_fault(incident: IncidentStatus) -> str:
    """Return an incident's fault and its cause: "rank_crash: cuda_oom"."""
    cause = incident.cause
    if cause is None or cause.fault == incident.fault:
        return incident.fault
    return f"{incident.fault}: {cause.fault}"


def incident_place(incident: IncidentStatus) -> str:
    """Return the place of an incident: "n2 rank 3"."""
    parts = [incident.node or ""] + ([f"rank {incident.rank}"] if incident.rank is not None else [])
    return " ".join(part for part in parts if part) or "-"


def ranks_text(ranks: Sequence[int]) -> str:
    """Write ranks, runs of them short: "0-7"."""
    if len(ranks) > 2 and list(ranks) == list(range(ranks[0], ranks[-1] + 1)):
        return f"{ranks[0]}-{ranks[-1]}"
    return ",".join(map(str, ranks)) or "-"
