"""Consent: whether a run's ladder may act, or waits for a person. The ladder asks before each rung.

A person's request about a run suspends its ladder until it is done, and so does a hold. In mode `off`, and once a page's limits
are reached, the ladder waits for a person, who is paged. What has died is ended all the same.
"""

from typing import NamedTuple

from runner.decide.decision import Decision, Policy
from runner.decide.state.cluster_state import Attempt, Incident, Run
from runner.decide.state.people import DAY_SECONDS, PendingRequest
from runner.facts.specs.runbook import MODES, Mode, Runbook

# Of requests without a name.
PERSON = "a person"
# Attempts that have no ranks yet.
_PLANNED = ("preparing", "prepared")


class Refusal(NamedTuple):
    """Why a ladder may take no rung now. `needs_person`: it does not go on by itself, so one is paged and the run is held."""

    why: str
    needs_person: bool = False


def who(by: str) -> str:
    """Name the person of a request."""
    return by or PERSON


def because(reason: str) -> str:
    """Return the reason as the end of a sentence; "" without one."""
    return f": {reason}" if reason else ""


def mode_of(policy: Policy, run: Run | None, book: Runbook | None) -> Mode:
    """Return what the daemon does by itself: as run.yaml says, else cluster.yaml; a page can only be more cautious."""
    given: Mode = (run.spec.mode if run is not None else "") or policy.cluster.mode
    of_page: Mode = (book.mode if book is not None else "") or "act"
    return max(given, of_page, key=MODES.index)


def refusal(decision: Decision, incident: Incident) -> Refusal | None:
    """Return why the ladder may take no rung for this incident now; None when it may."""
    run = decision.state.runs.get(incident.run or 0)
    if run is None or decision.approved == incident.incident:
        return None
    if waited := awaited(run):
        return Refusal(f"the ladder waits: {waited}")
    if run.hold is not None:
        return Refusal("the run waits for a person already", True)
    book = decision.policy.page_for(incident)
    if incident.left_to:
        return Refusal(f"left to people: {incident.left_to} denied what was proposed", True)
    if mode_of(decision.policy, run, book) == "off":
        return Refusal("mode off: nothing is done by itself", True)
    spent = _spent(decision, run, book) if book is not None else ""
    return Refusal(spent, True) if spent else None


def awaited(run: Run) -> str:
    """Return which person's request the ladder waits for; "" for none."""
    for pending in run.pending_requests:
        if is_pending(pending, run.attempt):
            what = pending.kind.replace("_", " ")
            return f"{who(pending.by)} asked for {what}{because(pending.reason)}"
    if run.hold is not None and run.hold.hold == "paused":
        return f"the run is paused by {who(run.hold.by)}"
    return ""


def is_pending(pending: PendingRequest, attempt: Attempt | None) -> bool:
    """Whether the attempt that a request is to bring about has not been launched yet."""
    return attempt is None or attempt.attempt == pending.after or attempt.state in _PLANNED


def rungs_today(run: Run, page: str, now: float) -> list[float]:
    """Return when a page took rungs for this run within the last 24 hours, oldest first."""
    return [at for at in run.page_times.get(page, []) if at > now - DAY_SECONDS]


def _spent(decision: Decision, run: Run, book: Runbook) -> str:
    """Return which limit of a page is reached for this run; "" for none. What people ask for counts against none."""
    today, limits = rungs_today(run, book.name, decision.now), book.limits
    if limits.per_day and len(today) >= limits.per_day:
        return f"page {book.name} has taken its {limits.per_day} rungs of the day (limits.per_day)"
    if today and decision.now < today[-1] + limits.cooldown_seconds:
        seconds = decision.now - today[-1]
        return (
            f"page {book.name} took a rung {seconds:.0f} s ago, and waits {limits.cooldown_seconds:g} s in between "
            "(limits.cooldown_seconds)"
        )
    return ""
