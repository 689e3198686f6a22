"""`stoker diagnose --metrics`: what the numeric detectors find in metric files."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runner.cli import exit_codes, output
from runner.collect.metric_files.curves import Curve, curves_in
from runner.collect.short_logs import ShortLogReader
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
    # Why the loss was not judged; empty when it was.
    not_judged: str = ""

    @property
    def incidents(self) -> list[NumericFinding]:
        return [finding for finding in self.findings if finding.severity == "incident"]


def diagnose_metrics(
    paths: Sequence[str], *, as_json: bool, planned: Sequence[PlannedChange] = ()
) -> int:
    """Print what is wrong in these files: CSV, JSON lines, or folders of TensorBoard events. `planned` changes are not.

    Returns 0 when all are healthy, 1 with an incident, 2 when one cannot be used, 4 when the loss of one could not be judged.
    """
    looked = [_examine(curve, planned) for path in paths for curve in curves_in(Path(path))]
    for one in looked:
        if as_json:
            for warning in one.warnings:
                output.print_note(f"{one.curve.path}: {warning}")
            for finding in one.incidents:
                output.print_text(json.dumps(as_object(finding)))
            if one.not_judged and one.steps is not None:
                output.print_text(json.dumps(_unknown(one)))
        else:
            _report(one)
    if any(one.steps is None for one in looked) or not looked:
        return exit_codes.BAD_INPUT
    if any(one.incidents for one in looked):
        return exit_codes.FAILED
    return exit_codes.NO_ANSWER if any(one.not_judged for one in looked) else exit_codes.DONE


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


def _unknown(looked: _CurveResult) -> dict[str, object]:
    """Return, as programs read it, that the loss of a curve was not judged."""
    why = f"{looked.curve.path}: the loss was not judged: {looked.not_judged}"
    return {"fault": None, "severity": "unknown", "evidence": [why]}


def _examine(curve: Curve, planned: Sequence[PlannedChange]) -> _CurveResult:
    numerics = Numerics(planned=planned)
    looked, window = _CurveResult(curve), ShortLogReader()
    for record, _where, extra in curve.samples():
        window.add_sample(record, curve.num_samples)
        first = looked.steps[0] if looked.steps else record.step
        looked.steps = (first, record.step)
        looked.findings += numerics.judge(record, extra)
    looked.not_judged = numerics.not_judged
    shown = window.finding_of_curve(curve.all_columns)
    if not (looked.incidents or planned) and shown is not None:
        looked.findings.append(shown[0])
        looked.not_judged = ""
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
    if looked.not_judged:
        output.print_text(f"  unknown: the loss was not judged: {looked.not_judged}")
    elif not looked.incidents:
        judged = [name for name in curve.columns if name != "step"]
        output.print_text(f"  healthy: no incident in {', '.join(judged)}")
