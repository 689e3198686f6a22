"""NaN and infinity in loss and gradient norm.

A loss that is not finite after healthy ones is an incident at once: such a step has spoilt the weights, or is not the last.
Three things look like it and are healthy: a step that the trainer skipped (the loss scaler found an overflow), a log that writes
NaN for "not measured here", which is known by its NaN coming and going, and a single gradient norm in a run whose loss scaling is
not logged.
"""

import math
from dataclasses import dataclass

from runner.detect.numerics.findings import NumericFinding, incident, note, recovery
from runner.detect.numerics.metric_detector import (
    Extra,
    MetricDetector,
    finite,
    register_metric,
)
from runner.facts.messages.signals import StepRecord

# Finite samples in a row, before a single NaN is an incident; chosen.
TRUSTED_SAMPLES = 8
# The same at the start of a log, if all so far were finite; chosen.
FIRST_SAMPLES = 3
# The same before an infinite one, which no log writes for what was not measured; chosen.
FIRST_BEFORE_INFINITE = 2
# NaNs in a row, where a single one is no incident; chosen.
LASTING_SAMPLES = 3
# The same, where all before were finite, or none, or where the loss is left out of lines that had it before; chosen.
LASTING_AFTER_FINITE = 2
# Gradient norms in a row during a search for the loss scale, which may not be logged: from 2^32 to 1 takes 33; chosen.
SEARCH_SAMPLES = 40


@dataclass(slots=True)
class _Streak:
    """Values of one metric that are not finite, one after the other."""

    num_bad: int = 0
    num_good: int = 0
    num_ever_good: int = 0
    # Short streaks that ended by themselves.
    num_lapses: int = 0
    onset: int = 0
    # Onset of the streak that is an incident.
    reported: int | None = None

    def begin_attempt(self) -> None:
        """Forget the streak; a metric that was finite before is trusted from the start."""
        self.num_bad, self.num_lapses, self.reported = 0, 0, None
        if self.num_ever_good >= TRUSTED_SAMPLES:
            self.num_good = TRUSTED_SAMPLES

    def add(self, step: int, value: float) -> bool:
        """Count a value; return whether a streak has just ended."""
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


@register_metric
class FiniteDetector(MetricDetector):
    """Detects values that are not finite. A replayed step is judged like any other."""

    order = 10
    judges_late = True
    _loss: _Streak
    _norm: _Streak
    # Records with a finite loss and a validation loss: lines that have both at the end of each epoch.
    _num_both: int
    # Records with a finite loss and a finite gradient norm.
    _num_paired: int

    def reset(self) -> None:
        self._loss, self._norm = _Streak(), _Streak()
        self._num_both = self._num_paired = 0

    def begin_attempt(self) -> None:
        """Report the first one again: the last attempt may have ended with it."""
        self._loss.begin_attempt()
        self._norm.begin_attempt()

    def judge(self, record: StepRecord, extra: Extra) -> list[NumericFinding]:
        """Judge loss and gradient norm.

        A NaN loss beside a finite validation loss alone means "not measured", unless the two have been printed together before.
        """
        findings: list[NumericFinding] = []
        may_lack = record.validation_loss is not None and record.grad_norm is None
        is_measured = finite(record.validation_loss) is not None
        is_missing = (
            may_lack and is_measured and record.loss is not None and math.isnan(record.loss)
        )
        if may_lack and finite(record.loss) is not None:
            self._num_both += 1
        if record.loss is not None and not (is_missing and self._num_both < LASTING_SAMPLES):
            # Both at one step, of weights that were healthy before, need no other sample.
            is_certain = bool(self._loss.num_ever_good) and _is_spoilt(record)
            loss = self._loss
            is_first = not loss.num_lapses
            lasting = LASTING_AFTER_FINITE if is_first and not is_missing else LASTING_SAMPLES
            lasting = 1 if is_certain else lasting
            findings += self._judge_value(
                record, self._loss, "loss", record.loss, lasting, is_sure=not is_missing
            )
        if record.grad_norm is not None:
            has_scale = record.loss_scale is not None and record.loss_scale > 1
            is_search = has_scale or not self._norm.num_ever_good
            limit = SEARCH_SAMPLES if is_search else LASTING_SAMPLES
            if finite(record.loss) is not None and finite(record.grad_norm) is not None:
                self._num_paired += 1
            if record.loss is None and self._num_paired >= LASTING_AFTER_FINITE and not has_scale:
                # Some trainers print no loss that is not finite.
                limit = LASTING_AFTER_FINITE
            findings += self._judge_value(
                record, self._norm, "gradient norm", record.grad_norm, limit
            )
        return findings

    def _judge_value(
        self,
        record: StepRecord,
        streak: _Streak,
        name: str,
        value: float,
        lasting: int,
        *,
        is_sure: bool = True,
    ) -> list[NumericFinding]:
        if not streak.num_bad and streak.reported is None and math.isfinite(value):
            streak.num_good += 1
            streak.num_ever_good += 1
            return []
        step = record.step
        num_good = streak.num_good
        least = FIRST_BEFORE_INFINITE if math.isinf(value) else FIRST_SAMPLES
        is_first = num_good == streak.num_ever_good >= least
        was_trusted = (num_good >= TRUSTED_SAMPLES or is_first) and not streak.num_lapses
        if streak.add(step, value) and streak.reported is not None:
            onset, streak.reported = streak.reported, None
            if self._loss.reported is not None or self._norm.reported is not None:
                # The other metric is still bad.
                return []
            return [recovery("nan_loss", onset, step, f"{name} is finite again at step {step}")]
        if math.isfinite(value) or streak.reported is not None:
            return []
        layer = record.first_nonfinite_layer
        where = f"; first in layer {layer}" if layer else ""
        is_certain = streak.num_bad >= lasting or (was_trusted and is_sure and streak is self._loss)
        if not is_certain:
            first = streak.num_bad == 1 and was_trusted
            evidence = f"{name} {value} at step {step}{where}, once so far"
            return [note("nan_loss", step, step, evidence)] if first else []
        streak.reported = streak.onset
        evidence = f"{name} {value} at step {step}{where}"
        if streak.num_bad > 1:
            evidence += f", for {streak.num_bad} samples since step {streak.onset}"
        else:
            evidence += f", after {num_good} finite ones"
        return [incident("nan_loss", streak.onset, step, evidence)]


def _is_spoilt(record: StepRecord) -> bool:
    """Whether loss and gradient norm are both not finite, and the step was not skipped."""
    values = (record.loss, record.grad_norm)
    are_bad = all(value is not None and not math.isfinite(value) for value in values)
    return are_bad and not record.skipped
