"""Checkpoints as the controller knows them, and how far each is trusted."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Literal, Self

from runner.facts.ids import AttemptId
from runner.facts.wire import Value


class Trust(StrEnum):
    """committed (it has a manifest) < intact (sizes and hashes hold) < finite < healthy < proven; or refused, for good."""

    COMMITTED = "committed"
    INTACT = "intact"
    FINITE = "finite"
    HEALTHY = "healthy"
    PROVEN = "proven"
    REFUSED = "refused"


# Each level holds what those before it say; what is refused has none.
_ORDER = (Trust.COMMITTED, Trust.INTACT, Trust.FINITE, Trust.HEALTHY, Trust.PROVEN)


class Checkpoint(Value):
    """One sealed checkpoint folder of a run."""

    step: int
    attempt: AttemptId
    path: str
    trust: Trust = Trust.COMMITTED
    reason: str = ""
    # Its manifest must carry a code of the run's secret: its ranks had the key, or no agent reported it.
    needs_code: bool = False
    # Of the files as they were when their verification began (`checkpoints.inspect`); "": not verified by this release.
    stamp: str = ""
    # Its verification ended without a verdict, for the reason above.
    unverifiable: bool = False
    # What nodes found when they looked for NaN and infinities in its tensors; "": they have not, or an earlier release read it.
    scan: Literal["", "finite", "not covered", "not finite"] = ""
    # "i3 loss_spike from step 100 on": found wrong at or before its step, when it was sealed or since. It is healthy never again.
    doubt: str = ""
    # Attempts that resumed from it and died before their first step, since one that made a step.
    died: tuple[AttemptId, ...] = ()
    # What the ranks reported in the last steps before its seal, in the median; None: they did not.
    loss_scale: float | None = None
    activation_norm: float | None = None
    # The name of who pinned it; "": it is not.
    pinned: str = ""

    def is_at_least(self, least: Trust) -> bool:
        """Whether it is trusted as far as `least`, or further. What is refused is trusted in nothing."""
        return self.trust in _ORDER and least in _ORDER[: _ORDER.index(self.trust) + 1]

    @property
    def name(self) -> str:
        """Return the name of its folder."""
        return self.path.rstrip("/").rpartition("/")[2]

    @property
    def age(self) -> tuple[int, AttemptId]:
        """Return what checkpoints are ordered by: a later attempt's of the same step is the newer one."""
        return self.step, self.attempt


class Rewind(Value):
    """A run went back to the checkpoint that `attempt` sealed at `step`: what was sealed after it is set aside, for good.

    `until`: the attempt that the run had then. What later attempts seal at the same steps counts as usual.
    """

    step: int
    attempt: AttemptId
    until: AttemptId

    def sets_aside(self, step: int, attempt: AttemptId) -> bool:
        """Whether what this attempt sealed at this step lies on the way that was left."""
        return (step, attempt) > (self.step, self.attempt) and attempt <= self.until

    def plain(self) -> list[Any]:
        """Return it as the arguments of an action carry it."""
        return [self.step, str(self.attempt), str(self.until)]

    @classmethod
    def of_plain(cls, plain: Sequence[Any]) -> Self:
        """Return what `plain` gave, from an action or a journal."""
        step, attempt, until = plain
        parse = AttemptId.parse
        return cls(step=int(step), attempt=parse(str(attempt)), until=parse(str(until)))


class LinePart(Value):
    """An attempt that the state of a run goes through, up to `last_step`; None: to its newest."""

    attempt: AttemptId
    last_step: int | None = None


def line_from(line: Sequence[LinePart], attempt: AttemptId, step: int) -> list[LinePart]:
    """Return the line of what resumes from the checkpoint that `attempt` sealed at `step`, before it."""
    last = LinePart(attempt=attempt, last_step=step)
    for place, part in enumerate(line):
        if part.attempt == attempt and (part.last_step is None or step <= part.last_step):
            return [*line[:place], last]
    return [last]
