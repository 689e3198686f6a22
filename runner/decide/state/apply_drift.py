"""Apply, the part about what runs are launched with."""

from collections.abc import Callable
from typing import Any

from runner.decide.state.cluster_state import State
from runner.facts.launch_conditions import filled_up
from runner.facts.messages import records_drift as d


def _recorded(state: State, record: d.ConditionsRecorded) -> None:
    run = state.runs[record.attempt.run]
    if not record.differences:
        run.conditions = filled_up(record.conditions, run.conditions)


def _kept(state: State, record: d.ConditionsKept) -> None:
    before = state.runs.get(record.before)
    if before is not None:
        state.runs[record.run].conditions, before.conditions = before.conditions, None


def _accepted(state: State, record: d.DriftAccepted) -> None:
    state.runs[record.run].conditions = None


OF_DRIFT: dict[type, Callable[[State, Any], None]] = {
    d.ConditionsRecorded: _recorded,
    d.ConditionsKept: _kept,
    d.DriftAccepted: _accepted,
}
