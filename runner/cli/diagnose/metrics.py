"""`stoker diagnose --metrics`: what the numeric detectors find in metric files."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runner.cli import exit_codes, output
from runner.collect.metric_files.curves import Curve, curves_in
from runner.detect.numerics.findings import NumericFinding
from runner.detect.numerics.numerics import Numerics
from runner.facts.specs.planned_changes import PlannedChange

MAX_NOTES_SHOWN = 10


@dataclass(slots=True)
class _CurveResult:
    curve: Curve
    warnings: list[str] = field(default_factory=list)
    steps: tuple[int, int] | None = None
    findings: list[NumericFinding] = field(default_factory=list)

    @property
    def incidents(self) -> list[NumericFinding]:
        return [finding for finding in self.findings if finding.severity == "incident"]


def diagnose_metrics(
    paths: Sequence[str], *, as_json: bool, planned: Sequence[PlannedChange] = ()
) -> int:
    """Print what is wrong in these files: CSV, JSON lines, or folders of TensorBoard events. `planned` changes are not.

    Returns 0 when all are healthy, 1 with an incident, 2 when one cannot be used.
    """
    looked = [_examine(curve, planned) for path in paths for curve in curves_in(Path(path))]
    for one in looked:
        if as_json:
            for warning in one.warnings:
                output.print_note(f"{one.curve.path}: {warning}")
            for finding in one.incidents:
                output.print_text(json.dumps(as_object(finding)))
        else:
            _report(one)
    if any(one.steps is None for one in looked) or not looked:
        return exit_codes.BAD_INPUT
    return exit_codes.FAILED if any(one.incidents for one in looked) else exit_codes.DONE


def as_object(finding: NumericFinding) -> dict[str, object]:
    """Return an incident as programs read it."""
    return {
        "fault": finding.fault,
        "onset_step": finding.onset_step,
        "detected_step": finding.detected_step,
        "evidence": [finding.evidence],
        "severity": finding.severity,
        "action_class": finding.action_class,
    }


def _examine(curve: Curve, planned: Sequence[PlannedChange]) -> _CurveResult:
    numerics = Numerics(planned=planned)
    looked = _CurveResult(curve)
    for record, _where, extra in curve.samples():
        first = looked.steps[0] if looked.steps else record.step
        looked.steps = (first, record.step)
        looked.findings += numerics.judge(record, extra)
    looked.warnings = [*curve.warnings, *numerics.warnings]
    return looked


def _report(looked: _CurveResult) -> None:
    """Print for people: the samples read, incidents, then notes."""
    curve = looked.curve
    columns = ", ".join(
        name if name == column else f"{name} (as {column})"
        for name, column in curve.columns.items()
    )
    what = "no usable samples"
    if looked.steps is not None:
        what = "{:,} samples, steps {} to {}: {}".format(curve.num_samples, *looked.steps, columns)
    output.print_text(f"{curve.path}: {what}")
    for warning in looked.warnings:
        output.print_text(f"  warning: {warning}")
    if looked.steps is None:
        return
    ends = {(one.fault, one.onset_step): one for one in looked.findings if one.recovered}
    for finding in looked.incidents:
        end = ends.get((finding.fault, finding.onset_step))
        after = "" if end is None else f"; {end.evidence} (step {end.detected_step})"
        output.print_text(
            f"  {finding.fault} from step {finding.onset_step}, seen at step {finding.detected_step}: {finding.evidence}{after} "
            f"[{finding.action_class}]"
        )
    notes = [one for one in looked.findings if one.severity == "note" and not one.recovered]
    for finding in notes[:MAX_NOTES_SHOWN]:
        output.print_text(
            f"  note: {finding.fault} from step {finding.onset_step}: {finding.evidence}"
        )
    if len(notes) > MAX_NOTES_SHOWN:
        output.print_text(f"  and {len(notes) - MAX_NOTES_SHOWN} more notes")
    if not looked.incidents:
        output.print_text("  healthy: no incident")
