"""Findings of the numeric detectors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from runner.facts.faults import FAULTS, ActionClass, Fault
from runner.facts.specs.planned_changes import ALL_METRICS, Metric, PlannedChange

__all__ = ["ALL_METRICS", "Metric", "NumericFinding", "PlannedChange", "Severity"]

Severity = Literal["note", "incident"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NumericFinding:
    """One observation of a metric. It never changes later: a recovery is a finding of its own.

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
        """The class of action it asks for; a note asks for none."""
        return FAULTS[self.fault].action if self.severity == "incident" else "none"


def number(value: float) -> str:
    """Format a metric with four digits."""
    return f"{value:.4g}"


def note(fault: Fault, onset_step: int, step: int, evidence: str) -> NumericFinding:
    """Make a finding that asks for no action."""
    return _finding(fault, onset_step, step, evidence)


def incident(fault: Fault, onset_step: int, step: int, evidence: str) -> NumericFinding:
    """Make a finding that asks for an action."""
    return replace(_finding(fault, onset_step, step, evidence), severity="incident")


def recovery(fault: Fault, onset_step: int, step: int, evidence: str) -> NumericFinding:
    """Make the finding that ends an earlier one."""
    return replace(_finding(fault, onset_step, step, evidence), recovered=True)


def _finding(fault: Fault, onset_step: int, step: int, evidence: str) -> NumericFinding:
    return NumericFinding(
        fault=fault, onset_step=onset_step, detected_step=step, severity="note", evidence=evidence
    )
