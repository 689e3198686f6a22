"""Aggregation: the reports of a node's ranks on a step become one record of that step."""

from __future__ import annotations

import math

from runner.agent.ranks.reports import StepReport, ValidationReport
from runner.facts.messages.signals import StepRecord

# In one heartbeat, which must fit one message; the newest displace the oldest; chosen.
MAX_STEPS = 80
_FIRST_REPORTED = (
    "loss",
    "grad_norm",
    "lr",
    "loss_scale",
    "tokens_per_second",
    "model_tflops_per_second",
    "mfu_ratio",
    "first_nonfinite_layer",
)


class StepAggregator:
    """Steps not sent yet. A step is sent once all reporting ranks have done it, or a heartbeat later."""

    def __init__(self) -> None:
        self._open: dict[int, dict[str, object]] = {}
        # These were open at the last heartbeat already.
        self._overdue: set[int] = set()

    def add(self, rank: int, report: StepReport) -> None:
        """Add one rank's report."""
        record = self._record(report.step)
        for name in _FIRST_REPORTED:
            value = getattr(report, name)
            if value is not None:
                record.setdefault(name, value)
        if report.skipped:
            record["skipped"] = True
        norm, known = report.local_grad_norm, record.get("num_nonfinite", 0)
        if norm is not None and not math.isfinite(norm) and isinstance(known, int):
            record["num_nonfinite"] = known + 1
        for name, value in (
            ("compute_seconds_max", _duration(report.compute_seconds)),
            ("local_grad_norm_max", report.local_grad_norm),
        ):
            if value is not None and _outranks(value, record.get(name)):
                record[name], record[f"{name}_rank"] = value, rank
        for name, value in (
            ("step_seconds_max", _duration(report.step_seconds)),
            ("data_wait_seconds_max", _duration(report.data_wait_seconds)),
            ("peak_memory_bytes_max", report.peak_memory_bytes),
        ):
            if value is not None and _outranks(value, record.get(name)):
                record[name] = value

    def add_validation(self, report: ValidationReport) -> None:
        """Add a held-out loss."""
        self._record(report.step).setdefault("validation_loss", report.loss)

    def pop_due(self, *, done_by_all: int) -> tuple[StepRecord, ...]:
        """Return what is to be sent now, oldest first. `done_by_all`: last step that every reporting rank has finished."""
        due = sorted(step for step in self._open if step <= done_by_all or step in self._overdue)
        records = [StepRecord(step=step, **self._open.pop(step)) for step in due]  # type: ignore[arg-type]
        self._overdue = set(self._open)
        return tuple(records)

    def _record(self, step: int) -> dict[str, object]:
        if step not in self._open and len(self._open) >= MAX_STEPS:
            del self._open[min(self._open)]
        return self._open.setdefault(step, {})


def _duration(seconds: float | None) -> float | None:
    return None if seconds is not None and math.isnan(seconds) else seconds


def _outranks(value: float, known: object) -> bool:
    """Whether a value is the maximum so far. NaN is above all, and the first one stays: a gradient norm is NaN where it began."""
    if not isinstance(known, int | float):
        return True
    return value > known or (math.isnan(value) and not math.isnan(known))
