"""Checkpoints as the controller knows them, and how far each is trusted."""

from __future__ import annotations

from enum import StrEnum

from runner.facts.ids import AttemptId
from runner.facts.wire import Value


class Trust(StrEnum):
    """committed < intact < finite < healthy < proven; or refused, for good."""

    # Its manifest was renamed into place.
    COMMITTED = "committed"
    # Manifest, sizes and hashes hold.
    INTACT = "intact"
    FINITE = "finite"
    HEALTHY = "healthy"
    PROVEN = "proven"
    # Did not verify.
    REFUSED = "refused"


class Checkpoint(Value):
    """One sealed checkpoint folder of a run."""

    step: int
    attempt: AttemptId
    path: str
    trust: Trust = Trust.COMMITTED
    reason: str = ""
