"""Training: gangs as they really run, and the checkpoints they leave. The controller only learns of them by signals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from runner.facts.ids import AttemptId
from runner.facts.messages.assignments import LaunchPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """How the ranks of a run behave. Times are seconds, in every attempt the same; None: that never happens."""

    # the step after which all ranks end with 0
    goal: int = 20
    step_seconds: float = 1.0
    # from the last rank's spawn to the first step
    start_seconds: float = 2.0
    # steps
    checkpoint_every: int = 10
    # steps between two durable marks of progress
    mark_every: int = 5
    # of the start, whose duration its ranks report
    phases: tuple[str, ...] = ()
    # False: a script that knows nothing of the contract
    reports: bool = True
    # exit code of rank 0 before the first step
    ends_with: int | None = None
    # steps made in an attempt, after which rank 0 raises
    crash_after: int | None = None
    # attempts that end so
    crashes: int = 1_000_000
    # of the crashes, in turn
    words: tuple[str, ...] = ("RuntimeError: loss is not finite",)
    # the gang makes no step past this one, once
    hangs_after: int | None = None
    # False: remedies are understood and not applied
    takes_lr: bool = True


@dataclass(slots=True, kw_only=True)
class Sealed:
    """A checkpoint folder."""

    path: str
    attempt: AttemptId
    step: int
    epoch: int
    torn: bool = False


@dataclass(slots=True, kw_only=True)
class Folder:
    """The checkpoints of one run, oldest first, and the newest epoch that may commit."""

    epoch: int = 0
    sealed: list[Sealed] = field(default_factory=list)
    # of a script that saves on its own
    own_step: int = 0
    hung: bool = False

    def seal(self, attempt: AttemptId, epoch: int, step: int) -> Sealed | None:
        """Commit a checkpoint; None: its epoch is old, so it is refused."""
        if epoch < self.epoch:
            return None
        found = Sealed(path=f"ck/{attempt}-{step:08d}", attempt=attempt, step=step, epoch=epoch)
        self.sealed = [known for known in self.sealed if known.path != found.path] + [found]
        self.sealed.sort(key=lambda known: (known.step, known.attempt))
        return found

    def find(self, path: str) -> Sealed | None:
        """Return the checkpoint at a path."""
        return next((known for known in self.sealed if known.path == path), None)

    def survey(
        self, refused: list[str]
    ) -> tuple[dict[str, object] | None, list[dict[str, object]]]:
        """Return the newest one that verifies, and those passed over before it, as `prepare_attempt` reports them."""
        passed_over: list[dict[str, object]] = []
        for known in reversed(self.sealed):
            if known.path in refused:
                continue
            item: dict[str, object] = {
                "path": known.path,
                "attempt": str(known.attempt),
                "step": known.step,
            }
            if not known.torn:
                return item, passed_over
            passed_over.append({**item, "reason": "the hash of rank0 differs"})
        return None, passed_over


@dataclass(slots=True, kw_only=True)
class Gang:
    """One attempt. It steps while all its ranks run; `nodes` in rank order."""

    plan: LaunchPlan
    epoch: int
    training: Training
    folder: Folder
    base: int
    step: int
    nodes: tuple[str, ...]
    # (id, request)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    # its peers know that one of them is gone
    broken: bool = False

    @property
    def attempt(self) -> AttemptId:
        """Its id."""
        return self.plan.attempt
