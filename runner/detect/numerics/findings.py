"""Findings of the numeric detectors."""

from dataclasses import dataclass
from typing import Literal

from runner.facts.faults import FAULTS, ActionClass, Fault

Severity = Literal["note", "incident"]


@dataclass(frozen=True, slots=True)
class NumericFinding:
    """One observation of a metric. It never changes later: a recovery is a finding of its own.

    `onset_step` is the first abnormal sample; with `recovered` the finding ends the one of the same fault and onset.
    """

    fault: Fault
    onset_step: int
    detected_step: int
    evidence: str
    severity: Severity = "note"
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
    return NumericFinding(fault, onset_step, step, evidence)


def incident(fault: Fault, onset_step: int, step: int, evidence: str) -> NumericFinding:
    """Make a finding that asks for an action."""
    return NumericFinding(fault, onset_step, step, evidence, severity="incident")


def recovery(fault: Fault, onset_step: int, step: int, evidence: str) -> NumericFinding:
    """Make the finding that ends an earlier one."""
    return NumericFinding(fault, onset_step, step, evidence, recovered=True)
