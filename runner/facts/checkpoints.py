"""Checkpoints as the controller knows them, and how far each is trusted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from runner.facts.ids import AttemptId


class Trust(StrEnum):
    """committed < intact < finite < healthy < proven; or refused, for good."""

    # its manifest was renamed into place
    COMMITTED = "committed"
    # manifest, sizes and hashes hold
    INTACT = "intact"
    FINITE = "finite"
    HEALTHY = "healthy"
    PROVEN = "proven"
    # did not verify
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One sealed checkpoint folder of a run."""

    step: int
    attempt: AttemptId
    path: str
    trust: Trust = Trust.COMMITTED
    reason: str = ""
