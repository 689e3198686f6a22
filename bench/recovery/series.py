"""Measurements of one kind of round: the values of a case, and their phases."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from bench.recovery.phases import BEFORE_START, OWN_PHASES, PHASES
from bench.report import Report

# At most, between a settled run and the fault: faults fall anywhere in a step and between heartbeats.
PAUSE_SECONDS = 0.5

T = TypeVar("T")


@dataclass(slots=True)
class Series:
    """The rounds of one side of one case: seconds from the fault to the first new step, and, of Stoker, milliseconds by phase."""

    name: str
    limit_seconds: float | None = None
    is_peer: bool = False
    seconds: list[float] = field(default_factory=list)
    phases_ms: list[dict[str, float]] = field(default_factory=list)
    # Reasons why ranks were not forked as planned.
    not_forked_reason: list[str] = field(default_factory=list)

    def print(self, report: Report) -> None:
        """Print the median with its verdict, and every round's value."""
        report.figure_of(self.name, self.seconds, "s", at_most=self.limit_seconds)
        report.note(f"{self.name}: rounds {' '.join(f'{value:.3f}' for value in self.seconds)} s")
        for reason in dict.fromkeys(self.not_forked_reason):
            num = self.not_forked_reason.count(reason)
            report.note(f"{self.name}: {num} started without a warm process: {reason}")

    def print_phases(self, report: Report, *, before_start_limit_ms: float | None = None) -> None:
        """Print the median of each phase that was seen."""

        def figure(key: str, text: str, at_most: float | None = None) -> None:
            values = [taken_ms[key] for taken_ms in self.phases_ms if key in taken_ms]
            if values:
                report.figure_of(f"{self.name}: {text}", values, "ms", at_most=at_most)

        figure("kernel", "floor: fault -> the kernel has ended the process")
        for phase, text in PHASES.items():
            if phase == "start":
                text_before = "all before the start of the new processes"
                figure(BEFORE_START, text_before, before_start_limit_ms)
            figure(phase, f"{phase} ({text})")
        for phase in OWN_PHASES:
            figure(phase, phase.replace("_", " "))
        figure("rest", "rest (up to the first step, less what ranks report)")


class Draw:
    """The random choices of a round, equal for every side and in every run with the same seed."""

    def __init__(self, seed: int, case: str, number: int) -> None:
        self._random = random.Random(f"{seed} {case} {number}")

    def one_of(self, choices: Sequence[T]) -> T:
        """Choose a rank or a node."""
        return self._random.choice(choices)

    def pause_seconds(self) -> float:
        """Choose how long to wait before the fault."""
        return self._random.uniform(0.0, PAUSE_SECONDS)
