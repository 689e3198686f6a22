"""NaN and infinity in loss and gradient norm.

A loss that is not finite after healthy ones is an incident at once: such a step has spoilt the weights, or will not be the last.
Three things look like it and are healthy: a step that the trainer skipped (the loss scaler found an overflow), a log that writes
NaN for "not measured here", which is known by its NaN coming and going, and a single gradient norm in a run whose loss scaling is
not logged.
"""

from __future__ import annotations

import math

from runner.detect.numerics.findings import NumericFinding, incident, note, recovery
from runner.facts.messages.signals import StepRecord

# finite ones in a row, before a single NaN is believed; chosen
TRUSTED_SAMPLES = 8
# in a row, where a single one is not believed; chosen
LASTING_SAMPLES = 3
# Gradient norms in a row while a loss scale is being looked for, which may not be logged: from 2^32 to 1 takes 33; chosen
SEARCH_SAMPLES = 40


class _Run:
    """Values that are not finite, one after the other."""

    __slots__ = ("num_bad", "num_ever_good", "num_good", "num_lapses", "onset", "told")

    def __init__(self) -> None:
        self.num_bad = 0
        self.num_good = 0
        self.num_ever_good = 0
        # short stretches that were over by themselves
        self.num_lapses = 0
        self.onset = 0
        self.told: int | None = None

    def begin_attempt(self) -> None:
        """Forget what was bad; a value that has been good before is trusted from the start."""
        self.num_bad, self.num_lapses, self.told = 0, 0, None
        if self.num_ever_good >= TRUSTED_SAMPLES:
            self.num_good = TRUSTED_SAMPLES

    def add(self, step: int, value: float) -> bool:
        """Count a value; return whether a stretch of bad ones has just ended."""
        if math.isfinite(value):
            is_over = self.num_bad > 0
            self.num_lapses += 0 < self.num_bad < LASTING_SAMPLES
            self.num_bad, self.num_good = 0, self.num_good + 1
            self.num_ever_good += 1
            return is_over
        if not self.num_bad:
            self.onset = step
        self.num_bad, self.num_good = self.num_bad + 1, 0
        return False


class FiniteTrack:
    """Looks for values that are not finite. A replayed step is judged like any other."""

    def __init__(self) -> None:
        self._loss, self._norm = _Run(), _Run()

    def begin_attempt(self) -> None:
        """Believe the first one again: what the attempt before ended with was perhaps no lapse, and may come back."""
        self._loss.begin_attempt()
        self._norm.begin_attempt()

    def take(self, record: StepRecord) -> list[NumericFinding]:
        """Judge one record."""
        if record.skipped:
            return []
        found: list[NumericFinding] = []
        is_missing = record.validation_loss is not None and record.grad_norm is None
        if record.loss is not None and not (is_missing and math.isnan(record.loss)):
            found += self._judge(record, self._loss, "loss", record.loss, LASTING_SAMPLES)
        if record.grad_norm is not None:
            has_scale = record.loss_scale is not None and record.loss_scale > 1
            is_search = has_scale or not self._norm.num_ever_good
            limit = SEARCH_SAMPLES if is_search else LASTING_SAMPLES
            found += self._judge(record, self._norm, "gradient norm", record.grad_norm, limit)
        return found

    def _judge(
        self, record: StepRecord, run: _Run, name: str, value: float, lasting: int
    ) -> list[NumericFinding]:
        if not run.num_bad and run.told is None and math.isfinite(value):
            run.num_good += 1
            run.num_ever_good += 1
            return []
        step = record.step
        num_good = run.num_good
        was_trusted = num_good >= TRUSTED_SAMPLES and not run.num_lapses
        if run.add(step, value) and run.told is not None:
            onset, run.told = run.told, None
            if self._loss.told is not None or self._norm.told is not None:
                # the other one is not over
                return []
            return [recovery("nan_loss", onset, step, f"{name} is finite again at step {step}")]
        if math.isfinite(value) or run.told is not None:
            return []
        layer = record.first_nonfinite_layer
        where = f"; first in layer {layer}" if layer else ""
        is_believed = run.num_bad >= lasting or (was_trusted and run is self._loss)
        if not is_believed:
            first = run.num_bad == 1 and was_trusted
            words = f"{name} {value} at step {step}{where}, once so far"
            return [note("nan_loss", step, step, words)] if first else []
        run.told = run.onset
        words = f"{name} {value} at step {step}{where}"
        if run.num_bad > 1:
            words += f", for {run.num_bad} samples since step {run.onset}"
        else:
            words += f", after {num_good} finite ones"
        return [incident("nan_loss", run.onset, step, words)]
