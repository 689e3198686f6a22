"""Rules of others, as their code or papers state them, each as a score for every sample and the limit from which it alarms.

A score instead of a verdict lets the limit be moved until all rules alarm equally often on healthy runs. What is not finite scores
infinity with all of them.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from runner.facts.messages.signals import StepRecord


class Rule(Protocol):
    """Scores one run, sample by sample."""

    def score(self, record: StepRecord) -> float:
        """Return how abnormal a sample is; -inf: not judged yet."""


class KillLossSpike:
    """llm-foundry: five losses in a row of at least twice the mean of the last 100 (its window for runs of up to 2,000)."""

    def __init__(self) -> None:
        self._window: deque[float] = deque(maxlen=100)
        self._ratios: deque[float] = deque(maxlen=5)

    def score(self, record: StepRecord) -> float:
        """Return the smallest of the last five ratios."""
        loss = record.loss or 0.0
        if not math.isfinite(loss):
            return math.inf
        if len(self._window) < 100:
            self._window.append(loss)
            return -math.inf
        self._ratios.append(loss * len(self._window) / sum(self._window))
        self._window.append(loss)
        return min(self._ratios) if len(self._ratios) == 5 else -math.inf


# Of the loss, of the gradient norm.
_Windows = tuple[deque[float], deque[float]]


def _larger(
    windows: _Windows, record: StepRecord, score: Callable[[deque[float], float], float]
) -> float:
    """Return the larger score of loss and gradient norm, each against its own past; infinity for what is not finite."""
    scores = [-math.inf]
    for window, value in zip(windows, (record.loss or 0.0, record.grad_norm or 0.0), strict=True):
        if not math.isfinite(value):
            return math.inf
        scores.append(score(window, value))
        window.append(value)
    return max(scores)


class SixSigma:
    """OLMo-core: loss or gradient norm above the mean of the last 128 by six of their standard deviations."""

    def __init__(self) -> None:
        self._windows: _Windows = (deque(maxlen=128), deque(maxlen=128))

    def score(self, record: StepRecord) -> float:
        """Return the larger of both distances, in standard deviations."""
        return _larger(self._windows, record, self._distance)

    @staticmethod
    def _distance(window: deque[float], value: float) -> float:
        if len(window) < 64:
            return -math.inf
        mean = sum(window) / len(window)
        variance = sum((past - mean) ** 2 for past in window) / (len(window) - 1)
        return (value - mean) / (math.sqrt(variance) or 1e-12)


class EarlyMaximum:
    """Megatron-LM's rerun state machine: a loss of ten times the largest of the first hundred."""

    def __init__(self) -> None:
        self._num_seen = 0
        self._largest = 0.0

    def score(self, record: StepRecord) -> float:
        """Return the ratio to the early maximum."""
        loss = record.loss or 0.0
        if not math.isfinite(loss):
            return math.inf
        self._num_seen += 1
        if self._num_seen <= 100:
            self._largest = max(self._largest, loss)
            return -math.inf
        return loss / self._largest


class FiveFold:
    """ByteRobust: a fivefold jump of loss or gradient norm. Of what is not published; here, of the mean of the last 32."""

    def __init__(self) -> None:
        self._windows: _Windows = (deque(maxlen=32), deque(maxlen=32))

    def score(self, record: StepRecord) -> float:
        """Return the larger of both ratios."""
        return _larger(self._windows, record, self._ratio)

    @staticmethod
    def _ratio(window: deque[float], value: float) -> float:
        return value * len(window) / sum(window) if len(window) == 32 else -math.inf


class ZClip:
    """ZClip: a gradient norm above its moving mean (0.97) by 2.5 moving deviations; what is above is taken in clipped."""

    def __init__(self) -> None:
        self._first: list[float] = []
        self._mean, self._variance = 0.0, 0.0

    def score(self, record: StepRecord) -> float:
        """Return the distance in moving deviations."""
        norm = record.grad_norm or 0.0
        if not math.isfinite(norm):
            return math.inf
        if len(self._first) < 25:
            self._first.append(norm)
            self._mean = sum(self._first) / len(self._first)
            self._variance = sum((one - self._mean) ** 2 for one in self._first) / len(self._first)
            return -math.inf
        deviation = math.sqrt(self._variance) or 1e-12
        distance = (norm - self._mean) / deviation
        taken = self._mean + 2.5**2 / distance * deviation if distance > 2.5 else norm
        self._mean = 0.97 * self._mean + 0.03 * taken
        self._variance = 0.97 * self._variance + 0.03 * (taken - self._mean) ** 2
        return distance


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A rule with the limit its authors gave it."""

    name: str
    make: Callable[[], Rule]
    limit: float


RULES = (
    Known(name="llm-foundry", make=KillLossSpike, limit=2.0),
    Known(name="OLMo 6 sigma", make=SixSigma, limit=6.0),
    Known(name="Megatron 10x", make=EarlyMaximum, limit=10.0),
    Known(name="ByteRobust 5x", make=FiveFold, limit=5.0),
    Known(name="ZClip", make=ZClip, limit=2.5),
)
