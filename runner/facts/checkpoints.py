"""Checkpoints as the controller knows them, and how far each is trusted."""

from enum import StrEnum

from runner.facts.ids import AttemptId
from runner.facts.wire import Value


class Trust(StrEnum):
    """committed (it has a manifest) < intact (sizes and hashes hold) < finite < healthy < proven; or refused, for good."""

    COMMITTED = "committed"
    INTACT = "intact"
    FINITE = "finite"
    HEALTHY = "healthy"
    PROVEN = "proven"
    REFUSED = "refused"


class Checkpoint(Value):
    """One sealed checkpoint folder of a run."""

    step: int
    attempt: AttemptId
    path: str
    trust: Trust = Trust.COMMITTED
    reason: str = ""
    # Its manifest must carry a code of the run's secret: its ranks had the key, or no agent reported it.
    needs_code: bool = False
    # Of the files as they were when their verification began (`checkpoints.inspect`); "": not verified by this release.
    stamp: str = ""
    # Its verification ended without a verdict, for the reason above.
    unverifiable: bool = False
