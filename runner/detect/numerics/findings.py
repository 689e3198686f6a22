"""What the numeric detectors say of a run's metrics: findings, announcements, and numbers in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from runner.facts.faults import FAULTS, ActionClass, Fault
from runner.facts.specs.planned_changes import ALL_METRICS, Metric, PlannedChange

__all__ = ["ALL_METRICS", "Metric", "NumericFinding", "PlannedChange", "Severity"]

Severity = Literal["note", "incident"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NumericFinding:
    """One observation of a metric. What follows later never changes it: a recovery is a finding of its own.

    `onset_step` is the first abnormal sample; with `recovered` the finding ends the one of the same fault and onset.
    """

    fault: Fault
    onset_step: int
    detected_step: int
    severity: Severity
    evidence: str
    recovered: bool = False

    @property
    def action_class(self) -> ActionClass:
        """What it asks for; a note asks for nothing."""
        return FAULTS[self.fault].action if self.severity == "incident" else "none"


def number(value: float) -> str:
    """Write a metric as people read it: four digits."""
    return f"{value:.4g}"


def note(fault: Fault, onset_step: int, step: int, evidence: str) -> NumericFinding:
    """Say what is worth knowing and asks for nothing."""
    return NumericFinding(
        fault=fault, onset_step=onset_step, detected_step=step, severity="note", evidence=evidence
    )


def incident(fault: Fault, onset_step: int, step: int, evidence: str) -> NumericFinding:
    """Say what somebody must answer."""
    return NumericFinding(
        fault=fault,
        onset_step=onset_step,
        detected_step=step,
        severity="incident",
        evidence=evidence,
    )


def recovery(fault: Fault, onset_step: int, step: int, evidence: str) -> NumericFinding:
    """Say that what was found before is over."""
    return NumericFinding(
        fault=fault,
        onset_step=onset_step,
        detected_step=step,
        severity="note",
        evidence=evidence,
        recovered=True,
    )
