"""`python -m tests.drills divergence`: a learning rate at which tiny_cpu really diverges, and the run with it under Stoker.

The rate is searched for without Stoker: doubled until the loss rises for good, then halved between (in logarithms) three times. The
run has a multiple of it, so that a single cut by a quarter is not enough.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from bench.report import Report
from runner.facts.remedies import REMEDIES, LearningRate, LrFactor
from runner.facts.remedies.applied import AppliedRemedy
from tests.drills.bare_runs import BareRuns, bare_runs
from tests.drills.observed_run import (
    SMALL_RUN_PAGES,
    Outcome,
    Setup,
    outcome_of,
    own_cluster,
    start_run,
)
from tests.drills.poisoned_run import TRAINER

# After the warm-up the rate stays, as in the middle of a long run.
OPTIMIZER = {"warmup_steps": 100, "decay_steps": 100_000}
SEARCH_STEPS, STEPS = 200, 500
FIRST_RATE, MOST_RATE, HALVINGS = 0.25, 64.0, 3
# The run's rate, of the lowest that diverged; chosen: a quarter less diverges still.
MULTIPLE = 1.6
REFERENCE_LR = 1e-3
# Nats: what any rate that does not diverge is below; chosen. Guessing every byte alike costs 5.5.
STABLE_LOSS = 4.0
# A loss that rose for good: its last samples beside the lowest before; both chosen.
RISEN, SAMPLES = 1.25, 16
METHOD = (
    f"tiny_cpu with {TRAINER['batch']['global_batch']} windows a step; the rate rises over {OPTIMIZER['warmup_steps']} steps and "
    f"stays; diverged: the median of the last {SAMPLES} losses is {RISEN:g} times the lowest median of {SAMPLES} before. "
    "Under Stoker: two replicas on two nodes, pages of a small run (tests/drills/small_run_pages)"
)


def main(_seed: int) -> int:
    """Print the figures; return how many missed their limit."""
    report = Report("divergence", METHOD)
    with bare_runs() as bare:
        rate = find_rate(report, bare, TRAINER)
    lr = MULTIPLE * rate
    setup = Setup(
        trainer=settings(TRAINER, lr=lr, steps=STEPS),
        ranks_per_node=1,
        spares=0,
        run={"reference_lr": REFERENCE_LR, "lr_floor": REFERENCE_LR / 10},
        pages=SMALL_RUN_PAGES,
    )
    with own_cluster() as harness:
        outcome = outcome_of(harness, start_run(harness, setup))
    _judge(report, outcome, lr=lr, rate=rate)
    return report.num_missed


def settings(trainer: Mapping[str, Any], *, lr: float, steps: int) -> dict[str, Any]:
    """Return a trainer's settings with a learning rate."""
    optimizer = {**OPTIMIZER, "lr": lr}
    return {**trainer, "optimizer": optimizer, "steps": steps, "validate_every": steps}


def find_rate(report: Report, bare: BareRuns, trainer: Mapping[str, Any]) -> float:
    """Return the lowest learning rate that was found to diverge."""

    def diverges(rate: float) -> bool:
        losses = bare.run(settings(trainer, lr=rate, steps=SEARCH_STEPS)).losses
        is_diverged, last = has_diverged(losses), median(losses[-SAMPLES:])
        report.note(f"rate {rate:.4g}: {'diverges' if is_diverged else 'stable'}, last {last:.4g}")
        return is_diverged

    stable, rate = FIRST_RATE / 2, FIRST_RATE
    while not diverges(rate):
        if rate >= MOST_RATE:
            raise AssertionError(f"no rate up to {MOST_RATE:g} diverges")
        stable, rate = rate, 2 * rate
    for _ in range(HALVINGS):
        between = math.sqrt(stable * rate)
        if diverges(between):
            rate = between
        else:
            stable = between
    return rate


def has_diverged(losses: Sequence[float]) -> bool:
    """Whether a loss rose for good."""
    if not all(map(math.isfinite, losses)):
        return True
    ends = range(SAMPLES, len(losses) - SAMPLES)
    lowest = min(median(losses[end - SAMPLES : end]) for end in ends)
    return median(losses[-SAMPLES:]) > RISEN * lowest


def _judge(report: Report, outcome: Outcome, *, lr: float, rate: float) -> None:
    """Print what the daemon did, from its records and from the logbook, beside what is due."""
    state = f"{outcome.state}, {outcome.num_attempts} attempts{outcome.note}"
    report.note(f"under Stoker with rate {lr:.4g}: {state}")
    for incident in outcome.incidents:
        rungs = ", ".join(incident.rungs)
        report.note(f"  {incident.incident} {incident.fault}, {incident.state}: {rungs}")
        report.note(f"    {incident.reason}")
    for remedy in outcome.remedies:
        report.note(f"  {remedy.id} {remedy.name} {remedy.value}: {remedy.state}")
    reverted = [one for one in outcome.remedies if one.state == "reverted"]
    kept = [one for one in outcome.remedies if one.state != "reverted"]
    report.figure("remedies that did not help and are reverted", len(reverted), "", at_least=1)
    rates = [one for one in kept if issubclass(REMEDIES[one.name], LearningRate)]
    report.figure("cuts of the rate in effect", len(rates), "", at_least=1)
    report.figure("other remedies in effect", len(kept) - len(rates), "", at_most=0)
    report.figure("learning rate in the end", rate_of(rates, lr), "", at_most=rate)
    still_open = [one for one in outcome.incidents if one.state != "resolved"]
    report.figure("incidents that are not resolved", len(still_open), "", at_most=0)
    loss = outcome.loss if outcome.loss is not None else math.inf
    report.figure("validation loss in the end", loss, "nats", at_most=STABLE_LOSS)
    untold = [text for text in due_lines(outcome) if text not in outcome.logbook]
    report.figure("rungs, verdicts and remedies that the logbook lacks", len(untold), "", at_most=0)
    for text in untold:
        report.note(f"  it lacks: {text}")


def rate_of(cuts: Sequence[AppliedRemedy], lr: float) -> float:
    """Return the peak of the schedule that cuts of a rate lead to, in their order."""
    for cut in cuts:
        lr = lr * float(cut.value) if cut.name == LrFactor.name else float(cut.value)
    return lr


def due_lines(outcome: Outcome) -> list[str]:
    """Return what a logbook says of each rung, verdict and remedy of a run's incidents."""
    lines = []
    for incident in outcome.incidents:
        lines += [f"{incident.incident}: {rung} (rung " for rung in incident.rungs]
        verdicts = (one.partition(": ") for one in incident.evidence)
        lines += [why for verdict, _, why in verdicts if verdict in ("helped", "not helped")]
    for remedy in outcome.remedies:
        lines.append(f"({remedy.id})")
        lines += [f"{remedy.id} is reverted"] if remedy.state == "reverted" else []
    return lines
