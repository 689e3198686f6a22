"""Consent: whether a run's ladder may act, or waits for a person. The ladder asks before each rung.

A person's request about a run suspends its ladder until it is done, and so does a hold. What has died is ended all the same.
"""

from runner.decide.decision import Decision
from runner.decide.state.cluster_state import Attempt, Incident, Run
from runner.decide.state.people import PendingRequest

# Of requests without a name.
PERSON = "a person"
# Attempts that have no ranks yet.
_PLANNED = ("preparing", "prepared")


def who(by: str) -> str:
    """Name the person of a request."""
    return by or PERSON


def because(reason: str) -> str:
    """Return the reason as the end of a sentence; "" without one."""
    return f": {reason}" if reason else ""


def refusal(decision: Decision, incident: Incident) -> str:
    """Return why the ladder may take no rung for this incident now; "" when it may."""
    run = decision.state.runs.get(incident.run or 0)
    return "" if run is None else _pending_in_words(run)


def _pending_in_words(run: Run) -> str:
    """Return which person's request the ladder waits for; "" for none."""
    for pending in run.pending_requests:
        if is_pending(pending, run.attempt):
            what = pending.kind.replace("_", " ")
            return f"the ladder waits: {who(pending.by)} asked for {what}{because(pending.reason)}"
    if run.hold is not None:
        return f"the ladder waits: the run is held by {who(run.hold.by)}"
    return ""


def is_pending(pending: PendingRequest, attempt: Attempt | None) -> bool:
    """Whether the attempt that a request is to bring about has not been launched yet."""
    return attempt is None or attempt.attempt == pending.after or attempt.state in _PLANNED
