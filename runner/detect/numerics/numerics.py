"""Numerics: what a run's own metrics say of its health. All numeric detectors behind one door, fed one record at a time.

Windows are counted in samples, so that curves of every step and of every hundredth need no other settings. What was found at one
record depends on the records before it alone.

Steps that run backwards are a resume: what had been learned by then is taken up again, and the replayed stretch is judged anew. A
step or two that come late (from another rank, another file) teach nothing and are looked at for NaN only.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from runner.detect.numerics.baseline import Baseline
from runner.detect.numerics.findings import ALL_METRICS, Metric, NumericFinding, PlannedChange
from runner.detect.numerics.finite import FiniteTrack
from runner.detect.numerics.gradient import GradientTrack
from runner.detect.numerics.loss import LossTrack
from runner.detect.numerics.loss_scale import ScaleTrack
from runner.detect.numerics.slow_trends import ActivationTrack, PlateauTrack, ValidationTrack
from runner.detect.numerics.throughput import ThroughputTrack
from runner.facts.messages.signals import StepRecord

# a record from among the last ones is late, one from before them a resume; chosen
LATE_SAMPLES = 16
# between two memories of what had been learned; chosen
MEMORY_SAMPLES = 64
# Every other one is forgotten when there are more; chosen: one takes some 20 KB, and a supervisor may follow hundreds of runs.
MAX_MEMORIES = 16
# without a metric, before that is told; chosen
MISSING_SAMPLES = 64
# its name in `extra`: a record has no field for it
ACTIVATION_NORM = "activation_norm"


@dataclass(slots=True)
class _Learned:
    """All that goes back with the run when it goes back."""

    loss: LossTrack
    gradient: GradientTrack
    validation: ValidationTrack
    activation: ActivationTrack
    plateau: PlateauTrack

    @staticmethod
    def new() -> _Learned:
        return _Learned(
            LossTrack(), GradientTrack(), ValidationTrack(), ActivationTrack(), PlateauTrack()
        )

    def copy(self) -> _Learned:
        return _Learned(
            self.loss.copy(),
            self.gradient.copy(),
            self.validation.copy(),
            self.activation.copy(),
            self.plateau.copy(),
        )


class Numerics:
    """The numeric detectors of one run, across its attempts.

    `planned`: changes that were announced. `baseline`: what the run has shown before. `loss_scale_floor`: the scaler's minimum.
    """

    def __init__(
        self,
        *,
        planned: Sequence[PlannedChange] = (),
        baseline: Baseline | None = None,
        loss_scale_floor: float | None = None,
    ) -> None:
        self.baseline = baseline or Baseline()
        # each said once
        self.warnings: list[str] = []
        self._planned = tuple(planned)
        # to jump, at the last record
        self._expected: tuple[Metric, ...] = ()
        # its step
        self._expected_at = 0
        self._learned = _Learned.new()
        self._memories: list[tuple[int, _Learned]] = []
        self._finite = FiniteTrack()
        self._scale = ScaleTrack(loss_scale_floor)
        self._throughput = ThroughputTrack(self.baseline)
        self._last_steps: deque[int] = deque(maxlen=LATE_SAMPLES)
        # in a row
        self._num_late = 0
        self._num_records = 0
        self._num_norms = 0
        self._num_losses = 0

    def begin_attempt(self) -> None:
        """Expect what comes with a start: slow first steps, a search for the loss scale."""
        self._finite.begin_attempt()
        self._throughput.begin_attempt()
        self._scale.begin_search()

    def take(
        self, record: StepRecord, extra: Mapping[str, float] | None = None
    ) -> list[NumericFinding]:
        """Judge one record in order of arrival; `extra` holds metrics that a record has no field for."""
        is_late = self._place(record.step)
        self._count(record)
        found = self._finite.take(record)
        if is_late:
            return found
        expected = self._expect(record.step) if self._planned else ()
        found += self._scale.take(record.step, record.loss_scale, skipped=record.skipped)
        if "throughput" not in expected:
            found += self._throughput.take(record)
        if not record.skipped:
            found += self._take_metrics(record, expected)
        if extra is not None:
            norm = extra.get(ACTIVATION_NORM)
            if norm is not None and math.isfinite(norm):
                found += self._learned.activation.take(record.step, norm)
        return found

    def _take_metrics(
        self, record: StepRecord, expected: tuple[Metric, ...]
    ) -> list[NumericFinding]:
        learned, step, found = self._learned, record.step, []
        loss, norm, validation = record.loss, record.grad_norm, record.validation_loss
        if loss is not None and math.isfinite(loss):
            if "loss" in expected:
                learned.loss.accept(loss)
            else:
                found += learned.loss.take(step, loss, lambda: learned.gradient.backs(norm))
                if learned.loss.is_calm:
                    found += learned.plateau.take(step, loss)
                else:
                    learned.plateau.clear()
        if norm is not None and math.isfinite(norm):
            if "gradient" in expected:
                learned.gradient.accept(norm)
            else:
                jumps = learned.gradient.take(step, norm)
                # What is known from the loss is no news.
                found += [_as_note(one) for one in jumps] if learned.loss.is_told else jumps
        if validation is not None and math.isfinite(validation) and "loss" not in expected:
            found += learned.validation.take(step, validation)
        return found

    def _place(self, step: int) -> bool:
        """Find out whether a record is late; go back with the run where it went back."""
        steps = self._last_steps
        if steps and step < steps[-1]:
            self._num_late += 1
            if step >= steps[0] and self._num_late <= LATE_SAMPLES:
                return True
            # or one step was far ahead of the run, by mistake
            self._go_back(step)
        self._num_late = 0
        if not steps or step > steps[-1]:
            steps.append(step)
        if self._num_records % MEMORY_SAMPLES == 0:
            self._remember(step)
        return False

    def _remember(self, step: int) -> None:
        """Keep what is learned before this step is looked at, unless something is wrong just now."""
        if not (self._learned.loss.is_calm and self._learned.gradient.is_calm):
            return
        self._memories.append((step, self._learned.copy()))
        if len(self._memories) > MAX_MEMORIES:
            self._memories = self._memories[::2]

    def _go_back(self, step: int) -> None:
        """Take up what had been learned before this step."""
        while self._memories and self._memories[-1][0] > step:
            self._memories.pop()
        self._learned = self._memories[-1][1].copy() if self._memories else _Learned.new()
        self._last_steps.clear()
        self.begin_attempt()

    def _expect(self, step: int) -> tuple[Metric, ...]:
        """Return what was announced to jump now; what was usual of it before is not after it."""
        last = self._expected_at
        self._expected_at = step
        # What lies between two steps that were logged shows in the second of them.
        plans = [
            plan
            for plan in self._planned
            if plan.from_step <= step and (step <= plan.to_step or last < plan.from_step)
        ]
        expected = tuple(name for name in ALL_METRICS if any(plan.expects(name) for plan in plans))
        began = [name for name in expected if name not in self._expected]
        self._expected = expected
        if "loss" in began:
            self._learned.loss, self._learned.plateau = LossTrack(), PlateauTrack()
            self._learned.validation = ValidationTrack()
        if "gradient" in began:
            self._learned.gradient = GradientTrack()
        if "throughput" in began:
            self._throughput.begin_anew()
        return expected

    def _count(self, record: StepRecord) -> None:
        """Warn once of metrics that do not come."""
        self._num_records += 1
        self._num_losses += record.loss is not None
        self._num_norms += record.grad_norm is not None
        if self._num_records != MISSING_SAMPLES:
            return
        if not self._num_losses:
            self.warnings.append(
                f"no loss in the first {MISSING_SAMPLES} records: spikes and divergence cannot be seen; log it as 'loss'"
            )
        elif not self._num_norms:
            self.warnings.append(
                f"no gradient norm in the first {MISSING_SAMPLES} records: a loss spike is seen only when the loss rises; "
                "log it as 'grad_norm'"
            )


def _as_note(finding: NumericFinding) -> NumericFinding:
    return replace(finding, severity="note")
