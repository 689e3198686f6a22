"""Whether a run went on as it was: the first steps after a restart against those that an earlier attempt made of the same steps.

Repeated steps see the same data with the same weights, so their loss is the same except for the order in which a GPU adds, which is
not repeatable. What is lost in a restart shows here: an Adam step counter (BLOOM), a schedule of the learning rate (IDEFICS), the
data's position, the wrong checkpoint. A script that draws other data in a restart differs by its noise alone, which is no mismatch.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from runner.detect.numerics.findings import number
from runner.facts.ids import AttemptId
from runner.facts.watch import PastStep

# Repeated steps that are compared, at most: what Adam forgot shows within some ten. Chosen.
WINDOW = 64
# Steps before the restart, for the run's own noise; chosen.
NOISE_STEPS = 128
# Compared once so many steps are there that both attempts made; chosen.
STAGES = (4, 16, WINDOW)
# Learning rates further apart are not the same: it is computed, not measured, and some logs print two digits of it. Chosen.
LR_RATIO = 0.05
# In a row, the first ones that are compared; chosen.
LR_STEPS = 3
# The same of the data that a step reads.
DATA_STEPS = 3
# The median of n differences may be off by this many times its own spread, which the run's noise gives. Chosen: a resume with other
# data is then a false alarm once in a hundred million, were noise normal.
SPREADS = 6.0
# Of the loss: a smaller difference is none, however little noise the run has. Chosen.
LEAST_RATIO = 0.02
# Where too few steps are known for its noise; chosen.
BLIND_RATIO = 0.25
LEAST_NOISE_STEPS = 8
# Spread of a median over that of a mean, and of normal noise over its median deviation.
_MEDIAN_SPREAD, _DEVIATION_SPREAD = math.sqrt(math.pi / 2), 1.4826


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeRules:
    """What of a resume is to be the same.

    `lr_ratio`: the learning rate after it over that of `lr_attempt` before, by the remedies; None: not known. `loss_until`: from
    this step on the loss is another, since the steps were sick or their data is skipped; None: no such step. `data_until`: from
    this step on the data is.
    """

    resume_step: int
    lr_ratio: float | None = 1.0
    lr_attempt: AttemptId | None = None
    loss_until: int | None = None
    data_until: int | None = None


def mismatch(
    rules: ResumeRules,
    past: Sequence[PastStep],
    repeated: Mapping[int, PastStep],
    *,
    is_last: bool,
) -> str:
    """Return what of the repeated steps is not as it was, with the numbers; "" if nothing is.

    `past`: steps of earlier attempts, those before the restart included. `is_last`: no more repeated steps will come.
    """
    pairs = [
        (old, repeated[old.step])
        for old in past
        if old.step in repeated and old.step > rules.resume_step
    ]
    problem = _lr_mismatch(rules, pairs) or _data_mismatch(rules, pairs)
    if problem:
        return problem
    losses = _losses(rules, pairs)
    for count in (*STAGES, *([len(losses)] if is_last else [])):
        if STAGES[0] <= count <= len(losses):
            problem = problem or _loss_mismatch(rules, past, losses[:count])
    return problem


def _lr_mismatch(rules: ResumeRules, pairs: Sequence[tuple[PastStep, PastStep]]) -> str:
    if rules.lr_ratio is None:
        return ""
    rates = [
        (old.step, rules.lr_ratio * old.lr, new.lr)
        for old, new in pairs
        if old.lr is not None and new.lr is not None and old.attempt == rules.lr_attempt
    ][:LR_STEPS]
    if len(rates) < LR_STEPS or not all(_differs(due, found) for _, due, found in rates):
        return ""
    (first, due, found), (last, last_due, last_found) = rates[0], rates[-1]
    factor = "" if rules.lr_ratio == 1.0 else f", x{rules.lr_ratio:g} of before"
    return (
        f"the learning rate is {number(found)} at step {first} and {number(last_found)} at step {last}, due were "
        f"{number(due)} and {number(last_due)}{factor}"
    )


def _data_mismatch(rules: ResumeRules, pairs: Sequence[tuple[PastStep, PastStep]]) -> str:
    until = math.inf if rules.data_until is None else rules.data_until
    read = [
        (old.step, old.data_step, new.data_step)
        for old, new in pairs
        if old.data_step is not None
        and new.data_step is not None
        and old.attempt == rules.lr_attempt
        and old.step < until
    ][:DATA_STEPS]
    if len(read) < DATA_STEPS or any(due == found for _, due, found in read):
        return ""
    (first, due, found), (last, last_due, last_found) = read[0], read[-1]
    return (
        f"steps {first} to {last} read the data of steps {found:.0f} to {last_found:.0f}, due was that of {due:.0f} to "
        f"{last_due:.0f}"
    )


def _differs(due: float, found: float) -> bool:
    return not abs(found - due) <= LR_RATIO * max(abs(due), abs(found))


def _losses(
    rules: ResumeRules, pairs: Sequence[tuple[PastStep, PastStep]]
) -> list[tuple[int, float, float]]:
    """Return step, loss before and loss now of the steps whose losses are to be the same."""
    until = math.inf if rules.loss_until is None else rules.loss_until
    return [
        (old.step, old.loss, new.loss)
        for old, new in pairs
        if old.loss is not None
        and new.loss is not None
        and old.step < until
        and math.isfinite(old.loss)
    ][:WINDOW]


def _loss_mismatch(
    rules: ResumeRules, past: Sequence[PastStep], losses: Sequence[tuple[int, float, float]]
) -> str:
    off = median(new - old if math.isfinite(new) else math.inf for _, old, new in losses)
    usual = median(old for _, old, _ in losses)
    limit = _limit(rules, past, usual, len(losses))
    if abs(off) <= limit or (off < 0 and not _is_below_before(rules, past, losses, limit)):
        return ""
    first, last = losses[0][0], losses[-1][0]
    return (
        f"the loss of steps {first} to {last} is {number(usual + off)}, and was {number(usual)} before (medians of "
        f"{len(losses)}); within {number(limit)} is the run's noise"
    )


def _limit(rules: ResumeRules, past: Sequence[PastStep], usual: float, count: int) -> float:
    """Return how far the median of so many differences may be off."""
    losses = [
        step.loss
        for step in past
        if step.loss is not None and math.isfinite(step.loss) and step.step <= rules.resume_step
    ]
    if len(losses) < LEAST_NOISE_STEPS:
        return BLIND_RATIO * abs(usual)
    changes = [abs(after - before) for before, after in itertools.pairwise(losses)]
    # The change between two samples has twice the variance of one, as the difference of two attempts has.
    spread = _DEVIATION_SPREAD * median(changes)
    return max(SPREADS * _MEDIAN_SPREAD * spread / math.sqrt(count), LEAST_RATIO * abs(usual))


def _is_below_before(
    rules: ResumeRules,
    past: Sequence[PastStep],
    losses: Sequence[tuple[int, float, float]],
    limit: float,
) -> bool:
    """Whether a loss that is lower than it was is lower than before the restart, too: if not, the steps were sick then."""
    before = [
        step.loss for step in past if step.step <= rules.resume_step and step.loss is not None
    ]
    finite = [loss for loss in before[-len(losses) :] if math.isfinite(loss)]
    return bool(finite) and median(new for _, _, new in losses) < median(finite) - limit
