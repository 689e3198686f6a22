"""Records about trials: the watch of a run's steps after a rung that answers its numbers."""

from typing import Literal

from runner.facts.ids import AttemptId
from runner.facts.trials import Trial
from runner.facts.wire import Value


class TrialStarted(Value, kind="trial_started"):
    """The steps of an attempt, and of those after it, are to show whether an incident is over."""

    incident: str
    run: int
    attempt: AttemptId
    trial: Trial


class TrialEnded(Value, kind="trial_ended"):
    """A verdict on a trial. `not_tried`: the rung could not be taken, for the reason that `evidence` gives."""

    incident: str
    run: int
    verdict: Literal["helped", "not_helped", "made_worse", "not_tried"]
    evidence: str
    step: int | None = None
    loss: float | None = None
