"""When a run will be done, by its own effective rate, and what it has cost: the one place that says so.

The time that is left has two parts, each with its own spread:

- *steps*: steps left x seconds per step, by the marks of the newest attempts. Its spread comes from the means of a few batches
  of spans between marks, so that a slow drift of the pace counts, not only its noise.
- *lost time*: what each interruption cost so far, from the last contributing step before it to the first step after it, and
  overwritten steps (`Interruptions`). Interruptions are taken to strike at random while ranks make steps (Poisson). With r =
  seconds of steps left / productive seconds so far, r x their sum is to be expected, with the variance (sum of their squares) x
  r x (1 + r): r for what will happen, r x r since the past shows their rate and size only so well. The late bound counts one
  interruption more than there were, as large as the others on average, or as the first start where there was none: a run
  without an interruption so far is no run that cannot have one. A run that is interrupted right now has one more of average size
  before it.

The bounds of both parts are added: of the steps by Student's distribution, of the lost time by the gamma distribution with
that mean and variance. Between `earliest` and `latest` the end is to lie in 80 % of all cases; `tests/history/test_forecast.py`
states in how many of simulated runs it did. Seconds for which a person paused the run are no property of the run, and no
part of its rate.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

from runner.facts.messages.cluster_status import RunForecast, RunSpending
from runner.history.ledger import RunSummary
from runner.history.run_accounting import RunAccounting
from runner.history.step_marks import StepMarks

# Of the normal distribution: four in five lie between -Z and Z.
Z = 1.2816
# More would be so short that a drift of the pace looks like noise; chosen by the simulated runs of the tests.
NUM_BATCHES = 6
# Spans between two marks without which there is no pace; a mark is made every few seconds at most. Chosen.
MIN_SPANS = 4
# Attempts that are searched for spans, the newest first; chosen.
MAX_ATTEMPTS = 8
# Seconds in which no gang holds nodes cost nothing.
UNPAID = ("waiting", "paused")


def forecast(
    account: RunAccounting,
    *,
    now: float,
    step: int,
    total_steps: int | None,
    deadline: float | None = None,
) -> RunForecast:
    """Forecast the end of a run that has finished `step`; `now` and `deadline` in seconds of the controller's clock."""
    if account.ended_at is not None:
        is_done = total_steps is not None and step >= total_steps
        margin = deadline - account.ended_at if deadline is not None and is_done else None
        return RunForecast(unknown="the run has ended", deadline=deadline, margin_seconds=margin)
    unknown = RunForecast(unknown=_unknown(account, step, total_steps), deadline=deadline)
    batches = _batches(account)
    if unknown.unknown or total_steps is None:
        return unknown
    if len(batches) < 2:
        few = f"too little data: fewer than {MIN_SPANS} stretches of steps were timed so far"
        return RunForecast(unknown=few, deadline=deadline)
    left = total_steps - step
    stepping, variance = _stepping(batches, left)
    lost, least, most = _lost(account, now, stepping)
    mean, spread = stepping + lost, _student(len(batches) - 1) * math.sqrt(variance)
    return RunForecast(
        ends_at=now + mean,
        earliest=now + max(0.0, stepping - spread + least),
        latest=now + stepping + spread + most,
        steps_left=left,
        seconds_per_step=mean / left if left else None,
        interruptions=account.interruptions.count,
        if_resumed=account.waiting,
        deadline=deadline,
        margin_seconds=None if deadline is None else deadline - now - mean,
    )


def spending(
    summary: RunSummary,
    num_ranks: int,
    *,
    rate: float | None = None,
    budget: float | None = None,
    seconds_left: float | None = None,
) -> RunSpending:
    """Return the rank hours of a run, useful and lost, and their cost at `rate` an hour; `seconds_left`: to its expected end."""
    unpaid = sum(summary.lost_seconds.get(cause, 0.0) for cause in UNPAID)
    hours_per_second = num_ranks / 3600
    used = (summary.wall_seconds - unpaid) * hours_per_second
    lost = (sum(summary.lost_seconds.values()) - unpaid) * hours_per_second
    at_end = None if seconds_left is None else used + seconds_left * hours_per_second
    return RunSpending(
        rank_hours=used,
        useful_rank_hours=used - lost,
        lost_rank_hours=lost,
        budget_rank_hours=budget,
        rank_hours_at_end=at_end,
        rate=rate,
        cost=None if rate is None else used * rate,
        lost_cost=None if rate is None else lost * rate,
        cost_at_end=None if rate is None or at_end is None else at_end * rate,
    )


def _unknown(account: RunAccounting, step: int, total_steps: int | None) -> str:
    """Say why nothing can be forecast, "" if it can."""
    if total_steps is None:
        return "no target: neither the ranks nor run.yaml (`total_steps`) say at which step it ends"
    if not account.stepped:
        known = account.reports_steps or account.ran_since is None
        return "no step was made yet" if known else "its ranks report no steps"
    return f"step {step} is past the target {total_steps}" if step > total_steps else ""


def _batches(account: RunAccounting) -> list[tuple[float, int]]:
    """Return (seconds, steps) of batches of spans of the newest attempts; [] for too few spans."""
    timed = [each.marks for each in account.attempts.values() if len(each.marks.times) > 1]
    spans = [span for marks in timed[-MAX_ATTEMPTS:] for span in _spans(marks)]
    if len(spans) < MIN_SPANS:
        return []
    size = -(-len(spans) // NUM_BATCHES)
    groups = [spans[at : at + size] for at in range(0, len(spans), size)]
    return [(sum(each[0] for each in group), sum(each[1] for each in group)) for group in groups]


def _spans(marks: StepMarks) -> list[tuple[float, int]]:
    """Return (seconds, steps) of at most `NUM_BATCHES` spans of one attempt, each between about as many marks."""
    last = len(marks.times) - 1
    bounds = [*range(0, last, -(-last // NUM_BATCHES)), last]
    return [
        (marks.times[right] - marks.times[left], marks.steps[right] - marks.steps[left])
        for left, right in pairwise(bounds)
    ]


def _stepping(batches: Sequence[tuple[float, int]], left: int) -> tuple[float, float]:
    """Return mean and variance of the seconds that `left` steps take, by a ratio estimate over batches."""
    steps = sum(each[1] for each in batches)
    pace = sum(each[0] for each in batches) / steps
    squares = sum((seconds - pace * num) ** 2 for seconds, num in batches)
    # Variance of one step's seconds, as if steps were independent within the span of a batch.
    variance = squares / steps * len(batches) / (len(batches) - 1)
    return pace * left, variance * (left + left**2 / steps)


def _lost(account: RunAccounting, now: float, stepping: float) -> tuple[float, float, float]:
    """Return the mean of the seconds that will be lost while `stepping` seconds of steps are made, and their bounds."""
    past = account.interruptions
    ratio = stepping / max(account.productive_seconds(now), 1e-9)
    size = past.lost_seconds / past.count if past.count else past.first_start_seconds
    open_seconds = 0.0 if account.phase == "step" else size
    mean = past.lost_seconds * ratio + open_seconds
    variance = past.lost_squares * ratio * (1 + ratio) + open_seconds**2
    # Of an exponential size, the mean square is twice the square of the mean.
    more, spread = size * ratio, 2 * size**2 * ratio * (1 + ratio)
    z = _student(past.count + 1)
    least = _gamma_quantile(mean, variance, -z)
    most = _gamma_quantile(mean + more, variance + spread, z)
    return mean, min(mean, least), max(mean, most)


def _student(freedom: int) -> float:
    """Return Student's quantile for the probability of `Z`, by the first terms of its Cornish-Fisher expansion."""
    return Z * (1 + (Z**2 + 1) / (4 * freedom))


def _gamma_quantile(mean: float, variance: float, z: float) -> float:
    """Return a quantile of the gamma distribution of this mean and variance (Wilson and Hilferty, 1931); `z`: the normal one."""
    if mean <= 0 or variance <= 0:
        return mean
    shape = mean**2 / variance
    return mean * max(0.0, 1 - 1 / (9 * shape) + z / (3 * math.sqrt(shape))) ** 3
