"""The phases of a recovery: each ends when the last node has done its part, as observed through the store."""

from dataclasses import dataclass, field
from typing import Any

from runner.facts.ids import AttemptId
from runner.facts.messages.assignments import Assignment
from runner.facts.messages.signals import (
    Heartbeat,
    Progress,
    RankExited,
    RanksStarted,
    RanksTerminated,
)

# What Stoker does, in order.
PHASES = {
    "detect": "fault -> a rank's exit or its stopped state in the store",
    "decide": "-> every node of its gang assigned to end it",
    "stop": "-> no rank of the gang left",
    "plan": "-> new attempt assigned, its checkpoint verified",
    "start": "-> all new processes started",
}
# All phases before the last.
BEFORE_START = "before start"
# Of the ranks, as they report them.
OWN_PHASES = ("import", "connect", "build", "load", "first_step")


@dataclass(slots=True)
class Watermarks:
    """When each node was first observed to have done its part in a phase, in seconds of the monotonic clock.

    `nodes` are those of the broken gang.
    """

    nodes: frozenset[str]
    attempt: AttemptId
    broken_at: float = 0.0
    # When the kernel had ended the killed process.
    ended_at: float | None = None
    phases: dict[str, dict[str, float]] = field(default_factory=dict)
    first_step: float | None = None
    timings: dict[str, float] = field(default_factory=dict)

    def note(self, fact: Any, now: float) -> None:
        """Record what a message shows about this recovery."""
        if isinstance(fact, Assignment):
            self._note_assignment(fact, now)
        elif isinstance(fact, (RankExited, Heartbeat)) and fact.attempt == self.attempt:
            if isinstance(fact, RankExited) or fact.ranks_stopped:
                self._mark("detect", fact.node, now)
        elif isinstance(fact, RanksTerminated) and fact.attempt == self.attempt:
            self._mark("stop", fact.node, now)
        elif isinstance(fact, RanksStarted) and fact.attempt > self.attempt:
            self._mark("start", fact.node, now)
        elif isinstance(fact, Progress) and fact.attempt > self.attempt:
            self.first_step = self.first_step or now
            for name, seconds in fact.timings.items():
                self.timings[name] = max(seconds, self.timings.get(name, 0.0))

    def is_started(self) -> bool:
        """Whether all new processes have been reported as started."""
        return len(self.phases.get("start", {})) >= len(self.nodes)

    def _note_assignment(self, fact: Assignment, now: float) -> None:
        is_newer = fact.plan is not None and fact.plan.attempt > self.attempt
        if fact.node in self.nodes and (fact.plan is None or is_newer):
            self._mark("decide", fact.node, now)
        if is_newer:
            self._mark("plan", fact.node, now)

    def _mark(self, phase: str, node: str, now: float) -> None:
        """Record a node's part; the first time counts."""
        self.phases.setdefault(phase, {}).setdefault(node, now)


def split_ms(seen: Watermarks) -> dict[str, float]:
    """Return the milliseconds of each phase, of all before the start of processes, of what ranks report, and of the whole.

    A phase without a report, as after the death of a whole node, counts to the next.
    """
    if seen.first_step is None:
        raise ValueError(f"no step followed attempt {seen.attempt}")
    taken_ms, since = {}, seen.broken_at
    for phase in PHASES:
        if phase == "start":
            taken_ms[BEFORE_START] = (since - seen.broken_at) * 1e3
        stamps = seen.phases.get(phase, {}).values()
        if stamps:
            until = max(since, min(stamps) if phase == "detect" else max(stamps))
            taken_ms[phase], since = (until - since) * 1e3, until
    if seen.ended_at is not None:
        taken_ms["kernel"] = (seen.ended_at - seen.broken_at) * 1e3
    taken_ms |= {name: seconds * 1e3 for name, seconds in seen.timings.items()}
    taken_ms["rest"] = (seen.first_step - since - sum(seen.timings.values())) * 1e3
    taken_ms["whole"] = (seen.first_step - seen.broken_at) * 1e3
    return taken_ms
