"""Numerics: what a run's own metrics show of its health. All numeric detectors behind one door, fed one record at a time.

Windows are counted in samples, so that curves of every step and of every hundredth need no other settings. What is found at a
record depends on the records before it alone. Every module of this package that registers a detector takes part.

Steps that run backwards are a resume: what had been learned by then is restored, and the replayed stretch is judged again. A
step or two that come late (from another rank, another file) teach nothing and are checked for NaN only.

What was learned is dumped for the next supervisor with two of the memories to go back to: a run that resumes from before both
of them after a take-over is learned again from the start.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec import field

import runner.detect.numerics
from runner.detect.detector import import_modules
from runner.detect.numerics.baseline import Baseline
from runner.detect.numerics.findings import NumericFinding
from runner.detect.numerics.loss import LEAST, LossDetector
from runner.detect.numerics.metric_detector import (
    METRIC_DETECTORS,
    Extra,
    MetricDetector,
    NumericSettings,
    finite,
)
from runner.errors import WireError
from runner.facts.messages.signals import StepRecord
from runner.facts.specs.planned_changes import ALL_METRICS, Metric, PlannedChange
from runner.facts.wire import Value

# A record from among so many last ones is late, one from before them a resume; chosen.
LATE_SAMPLES = 16
# Between two memories of what had been learned; chosen.
MEMORY_SAMPLES = 64
# Every other one is dropped when there are more; chosen: one takes some 20 KB, and a supervisor may follow hundreds of runs.
MAX_MEMORIES = 16
# Without a metric, before a warning; chosen.
MISSING_SAMPLES = 64

NO_EXTRA: Extra = MappingProxyType({})

import_modules(runner.detect.numerics)
_KINDS = sorted(METRIC_DETECTORS, key=lambda kind: kind.order)
_REWOUND = [kind for kind in _KINDS if kind.is_rewound]
_NAMES = {kind.__name__: kind for kind in _KINDS}


class RewindMemory(Value):
    """What had been learned before a step, by detector."""

    step: int
    detectors: Mapping[str, Any]


class NumericsMemory(Value, forbid_unknown_fields=True):
    """All that the numeric detectors of a run have learned, bounded: at most 56 KB as JSON."""

    detectors: Mapping[str, Any]
    baseline: Mapping[str, float] = field(default_factory=dict)
    rewinds: tuple[RewindMemory, ...] = ()
    expected: tuple[Metric, ...] = ()
    expected_at: int = 0
    last_steps: tuple[int, ...] = ()
    num_late: int = 0
    num_records: int = 0
    num_norms: int = 0
    num_losses: int = 0


class Numerics:
    """The numeric detectors of one run, across its attempts.

    `planned`: announced changes. `baseline`: what the run has shown before. `loss_scale_floor`: the scaler's minimum.
    """

    def __init__(
        self,
        *,
        planned: Sequence[PlannedChange] = (),
        baseline: Baseline | None = None,
        loss_scale_floor: float | None = None,
    ) -> None:
        self.baseline = baseline or Baseline()
        # Each given once.
        self.warnings: list[str] = []
        self.planned = tuple(planned)
        # Metrics expected to jump at the last record, and its step.
        self._expected: tuple[Metric, ...] = ()
        self._expected_at = 0
        self._settings = NumericSettings(baseline=self.baseline, loss_scale_floor=loss_scale_floor)
        self._detectors = self._settings.peers
        self._detectors |= {kind: kind(self._settings) for kind in _KINDS}
        self._memories: list[tuple[int, list[MetricDetector]]] = []
        self._last_steps: deque[int] = deque(maxlen=LATE_SAMPLES)
        # In a row.
        self._num_late = 0
        # An attempt has begun of which no record has come.
        self._has_begun = False
        self._num_records = 0
        self._num_norms = 0
        self._num_losses = 0
        # Finite, on time and not part of a planned change.
        self._num_usable_losses = 0

    def begin_attempt(self) -> None:
        """Expect what comes with a start: slow first steps, a search for the loss scale, steps that were made before."""
        self._has_begun = True
        for detector in self._detectors.values():
            detector.begin_attempt()

    def dump(self) -> NumericsMemory:
        """Return what was learned, for another `Numerics` of the same run; it is encoded at once."""
        middle = max(0, len(self._memories) // 2 - 1)
        kept = [*self._memories[middle : len(self._memories) - 1][:1], *self._memories[-1:]]
        return NumericsMemory(
            detectors={kind.__name__: one.dump() for kind, one in self._detectors.items()},
            baseline=self.baseline.dump(),
            rewinds=tuple(
                RewindMemory(
                    step=step, detectors={type(one).__name__: one.dump() for one in detectors}
                )
                for step, detectors in kept
            ),
            expected=self._expected,
            expected_at=self._expected_at,
            last_steps=tuple(self._last_steps),
            num_late=self._num_late,
            num_records=self._num_records,
            num_norms=self._num_norms,
            num_losses=self._num_losses,
        )

    def load(self, memory: NumericsMemory) -> None:
        """Continue from a dump; only before the first record. Raises WireError if it does not fit these detectors."""
        kept = Baseline.load(memory.baseline)
        self.baseline.throughput, self.baseline.spread = kept.throughput, kept.spread
        for kind, detector in zip(_KINDS, self._loaded(_KINDS, memory.detectors), strict=True):
            self._detectors[kind] = detector
        self._memories = [
            (one.step, self._loaded(_REWOUND, one.detectors)) for one in memory.rewinds
        ]
        self._expected, self._expected_at = memory.expected, memory.expected_at
        self._last_steps.extend(memory.last_steps)
        self._num_late, self._num_records = memory.num_late, memory.num_records
        self._num_norms, self._num_losses = memory.num_norms, memory.num_losses

    def _loaded(
        self, kinds: Sequence[type[MetricDetector]], dumped: Mapping[str, Any]
    ) -> list[MetricDetector]:
        unknown = [name for name in dumped if _NAMES.get(name) not in kinds]
        if unknown or len(dumped) < len(kinds):
            raise WireError(
                f"it is of the numeric detectors {', '.join(dumped)[:300]}; here they are "
                f"{', '.join(kind.__name__ for kind in kinds)}"
            )
        detectors = [kind(self._settings) for kind in kinds]
        for detector in detectors:
            detector.load(dumped[type(detector).__name__])
        return detectors

    def judge(self, record: StepRecord, extra: Extra = NO_EXTRA) -> list[NumericFinding]:
        """Judge one record in order of arrival; `extra` holds metrics that a record has no field for."""
        is_late = self._is_late(record.step)
        self._count(record)
        expected = self._expect(record.step) if self.planned and not is_late else ()
        findings: list[NumericFinding] = []
        if not (is_late or record.skipped or LossDetector.metric in expected):
            self._num_usable_losses += finite(record.loss) is not None
        is_plain = not (is_late or record.skipped or expected)
        for detector in self._detectors.values():
            if is_plain or detector.judges(record, is_late=is_late, expected=expected):
                findings += detector.judge(record, extra)
        return findings

    @property
    def last_step(self) -> int:
        """The newest step that came in order; -1: none did."""
        return self._last_steps[-1] if self._last_steps else -1

    @property
    def not_judged(self) -> str:
        """Why no loss of these records was judged, for people; empty once one was."""
        if self._num_usable_losses > LEAST:
            return ""
        if not self._num_losses:
            return "no loss in these samples; log it as 'loss'"
        return (
            f"{self._num_usable_losses} values of it are too few; from the {LEAST + 1}th on they are "
            "compared with those before"
        )

    def _is_late(self, step: int) -> bool:
        """Return whether a record is late; go back with the run where it went back."""
        steps = self._last_steps
        has_begun, self._has_begun = self._has_begun, False
        if steps and step < steps[-1]:
            self._num_late += 1
            if step >= steps[0] and self._num_late <= LATE_SAMPLES and not has_begun:
                return True
            # Also if a single step was far ahead of the run by mistake.
            self._rewind(step)
        self._num_late = 0
        if not steps or step > steps[-1]:
            steps.append(step)
        if self._num_records % MEMORY_SAMPLES == 0:
            self._remember(step)
        return False

    def _remember(self, step: int) -> None:
        """Keep what was learned before this step, unless something is wrong just now."""
        rewound = [self._detectors[kind] for kind in _REWOUND]
        if not all(detector.is_calm for detector in rewound):
            return
        self._memories.append((step, [detector.copy() for detector in rewound]))
        if len(self._memories) > MAX_MEMORIES:
            self._memories = self._memories[::2]

    def _rewind(self, step: int) -> None:
        """Restore what had been learned before this step."""
        while self._memories and self._memories[-1][0] > step:
            self._memories.pop()
        for index, kind in enumerate(_REWOUND):
            memory = self._memories[-1][1][index].copy() if self._memories else None
            self._detectors[kind] = memory or kind(self._settings)
        self._last_steps.clear()
        self.begin_attempt()
        self._has_begun = False

    def _expect(self, step: int) -> tuple[Metric, ...]:
        """Return the metrics that a planned change lets jump now; what was learned of them before is invalid after it."""
        last = self._expected_at
        self._expected_at = step
        # What lies between two steps that were logged shows in the second of them.
        plans = [
            plan
            for plan in self.planned
            if plan.from_step <= step and (step <= plan.to_step or last < plan.from_step)
        ]
        expected = tuple(name for name in ALL_METRICS if any(plan.expects(name) for plan in plans))
        begun = [name for name in expected if name not in self._expected]
        self._expected = expected
        for kind, detector in self._detectors.items():
            if kind.metric in begun:
                detector.relearn()
        return expected

    def _count(self, record: StepRecord) -> None:
        """Warn once of missing metrics."""
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
