"""Trials: the watch of N steps after a change, and what it is compared with. A trial says whether the change helped.

All that a verdict needs is in these values, and they are durable: the supervisor that takes over in the middle judges by the same
numbers, without the history of the run.
"""

from typing import Literal

from runner.facts.ids import AttemptId
from runner.facts.wire import Value

# What of the steps is compared with the steps before the onset. `finite`: that they hold no NaN; `loss_scale`: that it is usable,
# and that most steps are not skipped; `replicas`: that they agree, which the ranks compare.
Statistic = Literal["loss", "grad_norm", "loss_and_grad_norm", "loss_scale", "finite", "replicas"]
TrialVerdict = Literal["helped", "not_helped", "made_worse"]


class MetricLevel(Value):
    """A metric over a window of healthy samples: its level and its slope a step at the end, the spread of single samples.

    `is_log`: all three are of its natural logarithm, so that noise in proportion to the metric is noise.
    """

    level: float
    slope: float = 0.0
    spread: float = 0.0
    is_log: bool = True


class Trajectory(Value):
    """A run's numbers in a window that ends before an onset. None: not logged, or too few samples."""

    first_step: int
    last_step: int
    num_samples: int
    loss: MetricLevel | None = None
    grad_norm: MetricLevel | None = None
    # Medians from the onset on, as far as they are known: what the answer has to beat.
    sick_loss: float | None = None
    sick_grad_norm: float | None = None


class Trial(Value):
    """A watch that is under way: steps after `after_step` count, `steps` of them.

    `is_last`: no rung is left to try, so it goes on until the run has healed; only that is a verdict.
    """

    incident: str
    fault: str
    # The one it began with; it goes on in later ones.
    attempt: AttemptId
    after_step: int
    steps: int
    statistic: Statistic = "loss"
    before: Trajectory | None = None
    # Something was changed, and may be taken back; else the run was left to itself.
    is_change: bool = False
    is_last: bool = False


class TrialJudged(Value, kind="trial_judged"):
    """The verdict of a detector on a trial. `loss`: the median of the steps judged."""

    incident: str
    attempt: AttemptId
    step: int
    verdict: TrialVerdict
    evidence: str
    loss: float | None = None
