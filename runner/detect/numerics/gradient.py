"""The gradient norm: jumps that lead a loss spike (by four steps in BLOOM's of April 2022).

Healthy runs have single samples of several times the usual norm (GPT-2 124M has two beyond five times in 10,000 steps), which
clipping is there for. So a jump is a note, and an incident once it is tenfold and lasts.
"""

import math
from dataclasses import replace

from runner.detect.numerics.findings import NumericFinding, incident, note, number
from runner.detect.numerics.metric_detector import Extra, MetricDetector, finite, register_metric
from runner.detect.numerics.rolling_quantiles import RollingQuantiles
from runner.facts.messages.signals import StepRecord

# Healthy samples behind a level; chosen, as for the loss.
WINDOW = 48
# Of them, before anything is judged; chosen.
LEAST = 16
# Above the median: what led BLOOM's loss by four steps.
NOTE_FACTOR = 4.0
# Chosen; BLOOM's gradient norm was there three steps before its loss.
INCIDENT_FACTOR = 10.0
# Of the logarithms of healthy samples; chosen, as for the loss.
SPREADS = 7.0
# For a jump of the loss to be an incident at once; chosen.
BACKING_FACTOR, BACKING_SPREADS = 2.0, 2.0
# Times the furthest excursion of a healthy sample; chosen, as for the loss.
TAIL_FACTOR = 1.25
# In a row, for an incident; chosen.
LASTING_SAMPLES = 3
# A jump that soon after another is part of it; chosen.
MERGE_SAMPLES = 20
# Samples beyond the limit, before they become the new level; chosen, as for the loss.
PATIENCE = 32

_NOTE_RISE = math.log(NOTE_FACTOR)


@register_metric
class GradientDetector(MetricDetector):
    """Follows one gradient norm, by its logarithm."""

    order = 60
    metric = "gradient"
    is_rewound = True
    _level: RollingQuantiles
    _furthest: float
    # Samples beyond the limit, in a row.
    _high: list[float]
    # Of them, tenfold, in a row.
    _num_extreme: int
    _onset: int
    # Healthy samples since the last jump.
    _num_since_jump: int
    _is_reported: bool

    def reset(self) -> None:
        self._level = RollingQuantiles(WINDOW)
        self._furthest = 0.0
        self._high = []
        self._num_extreme = 0
        self._onset = 0
        self._num_since_jump = MERGE_SAMPLES
        self._is_reported = False

    @property
    def is_calm(self) -> bool:
        """Whether no jump is under way."""
        return not self._high

    def accept(self, record: StepRecord) -> None:
        norm = finite(record.grad_norm)
        if norm is not None and norm > 0:
            self._level.add(math.log(norm))

    def confirms(self, norm: float | None) -> bool | None:
        """Return whether this norm, not yet judged, confirms a jump of the loss; None where norms are not logged."""
        if len(self._level) < LEAST or norm is None:
            return None
        if not math.isfinite(norm) or norm <= 0:
            return norm != 0
        rise = math.log(norm) - self._level.median
        return rise > max(math.log(BACKING_FACTOR), BACKING_SPREADS * self._level.spread)

    def judge(self, record: StepRecord, extra: Extra) -> list[NumericFinding]:
        """Judge a finite sample and learn from it, unless it is zero. While a loss spike is reported, a jump is no news."""
        norm = finite(record.grad_norm)
        if norm is None or norm <= 0:
            return []
        findings = self._judge_norm(record.step, norm)
        if findings and any(
            one.is_abnormal for one in self.settings.peers.values() if one.metric == "loss"
        ):
            return [replace(finding, severity="note") for finding in findings]
        return findings

    def _judge_norm(self, step: int, norm: float) -> list[NumericFinding]:
        value = math.log(norm)
        if len(self._level) < LEAST:
            self._level.add(value)
            return []
        median = self._level.median
        rise = value - median
        if rise > _NOTE_RISE:
            limit = max(_NOTE_RISE, SPREADS * self._level.spread, TAIL_FACTOR * self._furthest)
            if rise > limit:
                return self._jump(step, value, median, limit)
        if self._high:
            self._high, self._num_extreme = [], 0
        self._num_since_jump += 1
        if rise > self._furthest:
            self._furthest = rise
        self._level.add(value)
        return []

    def _jump(self, step: int, value: float, median: float, limit: float) -> list[NumericFinding]:
        if not self._high and self._num_since_jump >= MERGE_SAMPLES:
            self._onset, self._is_reported = step, False
            found = [note("grad_norm_spike", step, step, _evidence(step, value, median, limit))]
        else:
            found = []
        self._high.append(value)
        self._num_since_jump = 0
        limit = max(limit, math.log(INCIDENT_FACTOR))
        self._num_extreme = self._num_extreme + 1 if value - median > limit else 0
        if self._num_extreme >= LASTING_SAMPLES and not self._is_reported:
            self._is_reported = True
            evidence = f"{_evidence(step, value, median, limit)}, for {self._num_extreme} samples"
            found.append(incident("grad_norm_spike", self._onset, step, evidence))
        if len(self._high) >= PATIENCE:
            self._settle()
        return found

    def _settle(self) -> None:
        """Make the present norm the new level."""
        self._level.clear()
        for value in self._high[-LEAST:]:
            self._level.add(value)
        self._high, self._num_extreme = [], 0


def _evidence(step: int, value: float, median: float, limit: float) -> str:
    return (
        f"gradient norm {number(_bounded_exp(value))} at step {step}, {number(_bounded_exp(value - median))} times the median of "
        f"the last healthy samples, {number(math.exp(median))} (limit {number(_bounded_exp(limit))} times)"
    )


def _bounded_exp(value: float) -> float:
    """Return e to this power, or infinity beyond what a float holds."""
    return math.exp(value) if value < 709 else math.inf
