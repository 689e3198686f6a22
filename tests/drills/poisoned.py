"""`python -m tests.drills poisoned`: what poisoned data costs a run of tiny_cpu, and what is left of that under Stoker.

The length of the poisoned stretch is the first, of some, whose harm at the end of the run is six standard deviations of clean seeds
and more; where it begins is drawn by the seed.
"""

import math
import random
import statistics
from collections.abc import Mapping
from typing import Any

from bench.report import Report
from tests.drills.bare_runs import BareRuns, bare_runs
from tests.drills.observed_run import own_cluster
from tests.drills.poisoned_run import TRAINER, Poisoned, play_poisoned

SEEDS = (1, 2, 3, 4, 5)
LENGTHS = (6, 12, 24, 40)
# Standard deviations of the final losses of clean seeds: what counts as harm, and what as healed (from issue 15).
HARM, HEALED = 6.0, 2.0
# Data steps of a stretch that the model gets over by itself. Chosen.
SHORT = 2
FIRST_STEP, LAST_STEP = 60, 80
METHOD = (
    f"tiny_cpu with {TRAINER['batch']['global_batch']} windows a step, {TRAINER['steps']} steps; noise instead of text from the "
    "first poisoned data step on; losses are of the held-out text at the end. Without Stoker: one rank by itself. "
    "Under Stoker: two replicas on two nodes, pages of a small run (tests/drills/small_run_pages)"
)


def main(seed: int) -> int:
    """Print the figures; return how many missed their limit."""
    report = Report(f"poisoned positions; STOKER_SEED={seed}", METHOD)
    first = random.Random(f"{seed} poisoned").randint(FIRST_STEP, LAST_STEP)
    trainer = {**TRAINER, "seed": SEEDS[0]}
    with bare_runs() as bare:
        clean = [bare.run(TRAINER, seed=one).validation_loss for one in SEEDS]
        mean, deviation = statistics.mean(clean), statistics.stdev(clean)
        losses = ", ".join(f"{loss:.4f}" for loss in clean)
        report.note(f"clean, seeds {SEEDS}: {losses}; mean {mean:.4f}, deviation {deviation:.4f}")
        length = _harmful_length(report, bare, trainer, first=first, least=mean + HARM * deviation)
    report.note(f"seed {SEEDS[0]}; data steps {first} to {first + length - 1} are poisoned")
    limit = mean + HEALED * deviation
    healed = _play(trainer, first=first, length=length)
    _print_run(report, "healed", healed)
    report.figure("validation loss under Stoker", _loss(healed), "nats", at_most=limit)
    num_read = healed.num_read(first, length)
    report.figure("steps that count and read poisoned data", num_read, "steps", at_most=0)
    differing = [step for step, due in healed.due.items() if healed.read.get(step) != due]
    what = f"steps of {len(healed.due)} that read other samples than are due"
    report.figure(what, len(differing), "steps", at_most=0)
    left_alone = _play(trainer, first=first, length=length, mode="off")
    _print_run(report, "mode off", left_alone)
    if left_alone.outcome.state == "finished":
        report.figure("validation loss, mode off", _loss(left_alone), "nats", at_least=limit)
    else:
        report.miss("validation loss, mode off", f"the run {left_alone.outcome.state}")
    spike = _play(trainer, first=first, length=SHORT)
    _print_run(report, f"{SHORT} poisoned data steps", spike)
    rungs = [rung for one in spike.outcome.incidents for rung in one.rungs if rung != "wait"]
    report.figure("rungs that change a run that heals", len(rungs), "rungs", at_most=0)
    report.figure("its validation loss", _loss(spike), "nats", at_most=limit)
    return report.num_missed


def _harmful_length(
    report: Report, bare: BareRuns, trainer: Mapping[str, Any], *, first: int, least: float
) -> int:
    """Return the first length whose final loss is at least `least`, or the longest."""
    for length in LENGTHS:
        loss = bare.run(trainer, poisoned=(first, first + length - 1)).validation_loss
        is_harm = loss >= least
        report.note(f"without Stoker, {length} poisoned: {loss:.4f}{', harm' if is_harm else ''}")
        if is_harm:
            break
    report.figure("validation loss without Stoker", loss, "nats", at_least=least)
    return length


def _play(trainer: Mapping[str, Any], *, first: int, length: int, **run: Any) -> Poisoned:
    with own_cluster() as harness:
        return play_poisoned(harness, trainer, first=first, length=length, **run)


def _loss(run: Poisoned) -> float:
    """Return the loss at the end; infinity for a run that did not reach it."""
    loss = run.outcome.loss
    return loss if loss is not None and run.outcome.state == "finished" else math.inf


def _print_run(report: Report, name: str, run: Poisoned) -> None:
    outcome = run.outcome
    report.note(f"{name}: {outcome.state}, {outcome.num_attempts} attempts{outcome.note}")
    for one in outcome.incidents:
        report.note(
            f"  {one.incident} {one.fault}, {one.state}: {', '.join(one.rungs)}; {one.reason}"
        )
    for remedy in outcome.remedies:
        report.note(f"  {remedy.id} {remedy.name} {remedy.value}: {remedy.state}")
