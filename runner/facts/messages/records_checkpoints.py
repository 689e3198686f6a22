"""Records about the checkpoints of a run that are more than a degree of trust."""

from runner.facts.checkpoints import Rewind
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
