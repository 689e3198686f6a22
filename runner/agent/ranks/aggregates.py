"""Aggregates of what the ranks of this node report: of each step, of what steps cost each rank, and of the start."""

import math
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from runner.agent.ranks.reports import MAX_NAMES, StepReport, ValidationReport
from runner.facts.messages.signals import RankCompute, StartPhase, StepRecord

# Chosen, not measured. A heartbeat must fit one message; the newest steps displace the oldest.
MAX_STEPS = 72
MAX_RANKS = 64
MAX_STEPS_OF_MEDIAN = 256
# Chosen: eight ranks then cost 33 bytes a second (measured).
MEDIANS_SECONDS = 10.0
# Ranks that make no step for longer than others of the node report none. Chosen, not measured.
STRAGGLING_SECONDS = 2.0
# Kept with a checkpoint, and by how many reports of steps: eight of eight ranks. Chosen, not measured.
LEVELS = ("loss_scale", "activation_norm")
REPORTS_OF_LEVEL = 64
# The phase from the request for the ranks to a rank's first report.
FIRST_REPORT = "start"
# Of fields that reports and records share, the first report counts.
_FIRST_REPORTED = [
    name
    for name in StepReport.__struct_fields__
    if name in StepRecord.__struct_fields__ and name not in ("step", "skipped", "activation_norm")
]


class StepAggregator:
    """Steps not sent yet. A step is sent once all reporting ranks have done it, or a heartbeat later."""

    def __init__(self) -> None:
        self._open: dict[int, dict[str, Any]] = {}
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
        norm = report.local_grad_norm
        if norm is not None and not math.isfinite(norm):
            record["num_nonfinite"] = record.get("num_nonfinite", 0) + 1
        for name, value, names_rank in (
            ("compute_seconds_max", _duration(report.compute_seconds), True),
            ("local_grad_norm_max", norm, True),
            ("step_seconds_max", _duration(report.step_seconds), False),
            ("data_wait_seconds_max", _duration(report.data_wait_seconds), False),
            ("peak_memory_bytes_max", report.peak_memory_bytes, False),
            ("activation_norm", report.activation_norm, False),
        ):
            if value is not None and _outranks(value, record.get(name)):
                record[name] = value
                if names_rank:
                    record[f"{name}_rank"] = rank

    def add_validation(self, report: ValidationReport) -> None:
        """Add a held-out loss."""
        self._record(report.step).setdefault("validation_loss", report.loss)

    def pop_due(self, *, done_by_all: int) -> tuple[StepRecord, ...]:
        """Return what is to be sent now, oldest first. `done_by_all`: last step that every reporting rank has finished."""
        due = sorted(step for step in self._open if step <= done_by_all or step in self._overdue)
        records = [StepRecord(step=step, **self._open.pop(step)) for step in due]
        self._overdue = set(self._open)
        return tuple(records)

    def _record(self, step: int) -> dict[str, Any]:
        if step not in self._open and len(self._open) >= MAX_STEPS:
            del self._open[min(self._open)]
        return self._open.setdefault(step, {})


def _duration(seconds: float | None) -> float | None:
    return None if seconds is not None and math.isnan(seconds) else seconds


def _outranks(value: float, known: float | None) -> bool:
    """Whether a value is the maximum so far. NaN is above all, and the first one stays: a gradient norm is NaN where it began."""
    return known is None or value > known or (math.isnan(value) and not math.isnan(known))


class ComputeTimes:
    """The median of what a step costs each rank without its collectives. `now` is in monotonic seconds.

    Step seconds are equal on all ranks of a gang that steps together: a slow rank shows only in what each computes alone.
    """

    def __init__(self, now: float) -> None:
        self._due = now + MEDIANS_SECONDS
        self._seconds = defaultdict[int, deque[float]](partial(deque, maxlen=MAX_STEPS_OF_MEDIAN))
        self._stages: dict[int, int] = {}

    def add(self, rank: int, report: StepReport) -> None:
        """Add what a step cost a rank; impossible durations are ignored."""
        if report.stage is not None:
            self._stages[rank] = report.stage
        seconds = report.compute_seconds
        if seconds is not None and 0.0 < seconds < math.inf:
            self._seconds[rank].append(seconds)

    def pop_medians(self, now: float) -> tuple[RankCompute, ...]:
        """Return the median seconds of each rank since the last call that was due; of at most MAX_RANKS ranks."""
        if now < self._due:
            return ()
        self._due = now + MEDIANS_SECONDS
        medians = tuple(
            RankCompute(rank=rank, seconds=_median(seconds), stage=self._stages.get(rank))
            for rank, seconds in sorted(self._seconds.items())[:MAX_RANKS]
        )
        self._seconds.clear()
        return medians


class RecentLevels:
    """What ranks reported in their last steps that tells a later reader of a checkpoint how the run was when it was sealed."""

    def __init__(self) -> None:
        self._values = {name: deque[float](maxlen=REPORTS_OF_LEVEL) for name in LEVELS}

    def add(self, report: StepReport) -> None:
        """Add one rank's report of a step; what is not finite is no level."""
        for name, values in self._values.items():
            value = getattr(report, name)
            if value is not None and math.isfinite(value):
                values.append(value)

    def medians(self) -> dict[str, float]:
        """Return the median of each that was reported."""
        return {name: _median(values) for name, values in self._values.items() if values}


def _median(seconds: deque[float]) -> float:
    ordered = sorted(seconds)
    # More digits are of no use.
    return float(f"{ordered[len(ordered) // 2]:.6g}")


@dataclass(slots=True)
class StartPhases:
    """Phases of the start of `ranks` ranks. Times are monotonic seconds.

    `spawned_at` None: an earlier agent started them, so how long their first report took is not known.
    """

    ranks: int
    spawned_at: float | None
    _slowest: dict[str, StartPhase] = field(default_factory=dict)
    _reporting: set[int] = field(default_factory=set)
    _stepped: set[int] = field(default_factory=set)
    _first_step_at: float | None = None

    def on_packet(self, rank: int, now: float) -> None:
        """Time the first packet of a rank."""
        if rank not in self._reporting:
            self._reporting.add(rank)
            if self.spawned_at is not None:
                self.add(rank, FIRST_REPORT, now - self.spawned_at)

    def add(self, rank: int, name: str, seconds: float) -> None:
        """Add how long a rank took for a phase; impossible numbers and too many names are ignored."""
        known = self._slowest.get(name)
        if not 0 <= seconds < math.inf or (known is None and len(self._slowest) >= MAX_NAMES):
            return
        if known is None or seconds > known.seconds:
            self._slowest[name] = StartPhase(seconds=seconds, rank=rank)

    def on_step(self, rank: int, now: float) -> None:
        """Record that a rank has made a step."""
        if self._first_step_at is None:
            self._first_step_at = now
        self._stepped.add(rank)

    def reported(self) -> dict[str, float]:
        """Return the seconds of each phase that ranks have named themselves, of the slowest rank so far."""
        slowest = self._slowest.items()
        return {name: phase.seconds for name, phase in slowest if name != FIRST_REPORT}

    def slowest(self, now: float) -> Mapping[str, StartPhase]:
        """Return the slowest rank of each phase; nothing before the start is over for all ranks that report steps."""
        if self._first_step_at is None:
            return {}
        is_early = now < self._first_step_at + STRAGGLING_SECONDS
        return {} if is_early and len(self._stepped) < self.ranks else dict(self._slowest)
