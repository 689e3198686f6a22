"""Records about what a run is launched with, and about drift: that an attempt runs with something else than the one before."""

from runner.facts.ids import AttemptId
from runner.facts.launch_conditions import LaunchConditions
from runner.facts.wire import Value


class ConditionsRecorded(Value, kind="conditions_recorded"):
    """What an attempt runs with. `differences` from the attempts before, in words; empty: it is the same run."""

    attempt: AttemptId
    node: str
    conditions: LaunchConditions
    differences: tuple[str, ...] = ()


class ConditionsKept(Value, kind="conditions_kept"):
    """A run that was started again under its name is compared with the one that it goes on from, number `before`."""

    run: int
    before: int


class DriftAccepted(Value, kind="drift_accepted"):
    """A person approves of what differs: the next attempt's conditions count from then on."""

    run: int
    by: str = ""
    request: str = ""
    reason: str = ""
