"""What a numeric detector is, and how it joins the others that judge a run's metrics."""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Self, TypeAlias, TypeVar, cast

from runner.detect.numerics import memory
from runner.detect.numerics.baseline import Baseline
from runner.detect.numerics.findings import NumericFinding
from runner.facts.messages.signals import StepRecord
from runner.facts.specs.planned_changes import Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class NumericSettings:
    """What a run's numeric detectors share: what the run has shown before, the scaler's minimum, if it is known, and each other."""

    baseline: Baseline = field(default_factory=Baseline)
    loss_scale_floor: float | None = None
    peers: dict[type["MetricDetector"], "MetricDetector"] = field(default_factory=dict)


# Metrics of a record that it has no field for, by name.
Extra: TypeAlias = Mapping[str, float]


class MetricDetector(ABC):
    """Judges one kind of trouble in a run's records. A detector overrides what it needs, and is `register_metric`ed.

    `order`: a detector may read what those of a lower order made of the same record. `metric`: a planned change of it is learned
    from, not judged. `is_rewound`: its memory goes back with a run that resumes from an earlier step. The attributes that a class
    annotates are its memory, which outlives the supervisor.
    """

    order: ClassVar[int]
    metric: ClassVar[Metric | None] = None
    is_rewound: ClassVar[bool] = False
    judges_late: ClassVar[bool] = False
    judges_skipped: ClassVar[bool] = False

    def __init__(self, settings: NumericSettings) -> None:
        self.settings = settings
        self.reset()

    @abstractmethod
    def reset(self) -> None:
        """Forget all that was learned."""

    @abstractmethod
    def judge(self, record: StepRecord, extra: Extra) -> list[NumericFinding]:
        """Judge a record and learn from it."""

    def judges(self, record: StepRecord, *, is_late: bool, expected: Collection[Metric]) -> bool:
        """Whether to judge a record that is late, skipped, or part of a planned change; learn from the last."""
        if (is_late and not self.judges_late) or (record.skipped and not self.judges_skipped):
            return False
        if self.metric in expected:
            self.accept(record)
            return False
        return True

    def accept(self, record: StepRecord) -> None:  # noqa: B027 - most learn nothing from it
        """Learn from a record that is not judged, since a change was planned."""

    def begin_attempt(self) -> None:  # noqa: B027 - most expect nothing
        """Expect what comes with a start."""

    def relearn(self) -> None:
        """Forget what a planned change has made invalid."""
        self.reset()

    @property
    def is_calm(self) -> bool:
        """Whether its memory is worth going back to after a rewind."""
        return True

    @property
    def is_abnormal(self) -> bool:
        """Whether its metric is abnormal now, and an incident says so."""
        return False

    def copy(self) -> Self:
        """Return a detector that learns on its own from here. Called for detectors with `is_rewound` while they are calm."""
        other = copy.copy(self)
        other.__dict__ = {name: copy.copy(value) for name, value in vars(self).items()}
        return other

    def dump(self) -> object:
        """Return its memory, for a new detector of the same kind; it is encoded at once."""
        return memory.dump(self)

    def load(self, dumped: object) -> None:
        """Take over a memory, as plain JSON; raise WireError if it does not fit."""
        memory.load(self, dumped)

    def peer(self, kind: type["Kind"]) -> "Kind":
        """Return the detector of a kind of the same run."""
        return cast("Kind", self.settings.peers[kind])


METRIC_DETECTORS: list[type[MetricDetector]] = []

Kind = TypeVar("Kind", bound=MetricDetector)


def register_metric(kind: type[Kind]) -> type[Kind]:
    """Add a class of numeric detectors to `METRIC_DETECTORS`."""
    METRIC_DETECTORS.append(kind)
    return kind


def finite(value: float | None) -> float | None:
    """Return a value that was logged and is finite, else None."""
    return value if value is not None and math.isfinite(value) else None
