"""Apply, the part about what runs are launched with."""

from collections.abc import Callable
from typing import Any

from runner.decide.state.cluster_state import Attempt, Run, State
from runner.facts.launch_conditions import digests, filled_up
from runner.facts.messages import records_drift as d


def note_known(run: Run, attempt: Attempt) -> None:
    """Note in a new attempt what its run is known to run with, and whether a person approved of something else in it."""
    attempt.accepts_drift = run.accepts_drift
    if run.conditions is not None:
        attempt.known_data = run.conditions.data
        attempt.known_conditions = {
            part: [digest, *run.approved_digests.get(part, ())]
            for part, digest in digests(run.conditions).items()
        }


def _recorded(state: State, record: d.ConditionsRecorded) -> None:
    run, attempt = state.runs[record.attempt.run], state.attempt_of(record.attempt)
    now, known = record.conditions, run.conditions
    if attempt is not None and attempt.accepts_drift:
        # What differs counts from now on.
        run.conditions = filled_up(now, known)
    elif not record.differences:
        # Where it runs with another digest that was approved, the run stays known by the first.
        run.conditions = now if known is None else filled_up(known, now)


def _compared(state: State, record: d.NodesCompared) -> None:
    run, attempt = state.runs[record.attempt.run], state.attempt_of(record.attempt)
    if attempt is not None:
        attempt.compared = {part: list(found) for part, found in record.digests.items()}
        attempt.asked_conditions.update(record.asked)
        if attempt.accepts_drift:
            # The approval is used up.
            run.accepts_drift = False
    for part, approved in record.approved.items():
        run.approved_digests[part] = list(approved)


def _kept(state: State, record: d.ConditionsKept) -> None:
    before, run = state.runs.get(record.before), state.runs[record.run]
    if before is not None:
        run.conditions, before.conditions = before.conditions, None
        run.approved_digests, before.approved_digests = before.approved_digests, {}


def _accepted(state: State, record: d.DriftAccepted) -> None:
    run = state.runs[record.run]
    run.accepts_drift = True
    if run.attempt is not None:
        # One without ranks is the next; another one stays as it was launched.
        run.attempt.accepts_drift |= run.attempt.state in ("preparing", "prepared")


OF_DRIFT: dict[type, Callable[[State, Any], None]] = {
    d.ConditionsRecorded: _recorded,
    d.NodesCompared: _compared,
    d.ConditionsKept: _kept,
    d.DriftAccepted: _accepted,
}
