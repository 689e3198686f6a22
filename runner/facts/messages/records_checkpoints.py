"""Records about the checkpoints of a run that are more than a degree of trust."""

from runner.facts.checkpoints import Rewind, Trust
from runner.facts.ids import AttemptId
from runner.facts.wire import Value


class RunRewound(Value, kind="run_rewound"):
    """A run goes back to an older checkpoint: what was sealed after it is set aside, its steps are to be made again.

    `before_step`: what was asked for. `reason`: for people; `incident` or `request`: what it answers.
    """

    run: int
    rewind: Rewind
    path: str
    before_step: int
    reason: str
    incident: str | None = None
    request: str | None = None


class CheckpointJudged(Value, kind="checkpoint_judged"):
    """More is known of a checkpoint than its bytes say, or a person pinned it. None leaves a field as it was."""

    run: int
    path: str
    step: int
    trust: Trust | None = None
    doubt: str | None = None
    died: tuple[AttemptId, ...] | None = None
    pinned: str | None = None
    reason: str = ""
