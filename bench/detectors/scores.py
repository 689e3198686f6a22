"""Scores of rules: alarms on healthy runs, faults found, and their delay."""

import math
import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from bench.detectors.rules import Known
from bench.detectors.runs import (
    FAMILIES,
    FAULTS,
    Labelled,
    bootstrap,
    healthy,
    residuals,
    synthetic_noise,
)
from runner.detect.numerics.numerics import Numerics
from runner.facts.messages.signals import StepRecord

# Alarms nearer to each other than this count as one.
GAP_SAMPLES = 20
# An alarm so long before a labelled onset counts for it.
EARLY_SAMPLES = 3
# After a labelled onset of a real curve, for an alarm to count.
REAL_SAMPLES = 10
# Of a healthy run.
RUN_SAMPLES = 10_000
# Of a run with a fault.
FAULT_AT, FAULT_SAMPLES = 700, 1_200
# Samples after the fault within which an alarm counts.
FAULT_WITHIN = {"spike": 30, "blow-up": 100, "drift": 450}

Noise = Callable[[random.Random], Iterator[tuple[float, float]]]
# A run -> the samples at which it alarms.
Alarms = Callable[[Sequence[StepRecord]], list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """How many faults were found, and after how many samples each."""

    num_faults: int
    delays: tuple[int, ...]

    @property
    def recall(self) -> float:
        """Share of the faults that were found."""
        return len(self.delays) / self.num_faults if self.num_faults else math.nan

    @property
    def median_delay(self) -> float:
        """Of those that were found; NaN for none."""
        return statistics.median(self.delays) if self.delays else math.nan


def ours(records: Sequence[StepRecord]) -> list[int]:
    """Return at which samples our detectors have an incident."""
    numerics = Numerics()
    return [
        at
        for at, record in enumerate(records)
        if any(one.severity == "incident" for one in numerics.judge(record))
    ]


def theirs(rule: Known, limit: float) -> Alarms:
    """Return a rule with this limit as alarms, those that belong together as one."""

    def alarms(records: Sequence[StepRecord]) -> list[int]:
        made = rule.make()
        scores = [made.score(record) for record in records]
        return apart([at for at, score in enumerate(scores) if score >= limit])

    return alarms


def apart(positions: Sequence[int]) -> list[int]:
    """Return the first position of each group."""
    return [
        at
        for number, at in enumerate(positions)
        if not number or at - positions[number - 1] > GAP_SAMPLES
    ]


def pools(curves: Sequence[Labelled]) -> list[list[tuple[float, float]]]:
    """Return the noise of each clean curve."""
    return [residuals(curve) for curve in curves if curve.kind == "clean"]


def noises(curves: Sequence[Labelled]) -> list[tuple[str, Noise]]:
    """Return sources of noise by name: the families, then clean curves."""
    sources: list[tuple[str, Noise]] = [
        (family, partial(synthetic_noise, family)) for family in FAMILIES
    ]
    for number, pool in enumerate(pools(curves)):
        sources.append((f"clean curve {number + 1}", partial(bootstrap, pool)))
    return sources


def healthy_runs(
    curves: Sequence[Labelled], num_samples: int, seed: str, *, is_real: bool = False
) -> Iterator[list[StepRecord]]:
    """Make healthy runs of all sources of noise in turn, or of clean curves only; so many samples in all."""
    sources = noises(curves)[len(FAMILIES) if is_real else 0 :]
    for number in range(math.ceil(num_samples / RUN_SAMPLES)):
        name, noise = sources[number % len(sources)]
        chance = random.Random(f"{seed} {name} {number}")
        yield list(healthy(noise(chance), RUN_SAMPLES, chance))


def faulty_runs(
    curves: Sequence[Labelled], fault: str, num_runs: int, seed: str
) -> Iterator[list[StepRecord]]:
    """Make runs with one fault each, of all sources of noise in turn."""
    sources = noises(curves)
    for number in range(num_runs):
        name, noise = sources[number % len(sources)]
        chance = random.Random(f"{seed} {fault} {name} {number}")
        run = list(healthy(noise(chance), FAULT_SAMPLES, chance))
        yield FAULTS[fault](run, FAULT_AT, chance)


def score_faults(alarms: Alarms, runs: Sequence[Sequence[StepRecord]], fault: str) -> Score:
    """Return how many of these faults were found in time."""
    delays = []
    for run in runs:
        found = [at - FAULT_AT for at in alarms(run) if 0 <= at - FAULT_AT < FAULT_WITHIN[fault]]
        delays += found[:1]
    return Score(num_faults=len(runs), delays=tuple(delays))


def score_curves(alarms: Alarms, curves: Sequence[Labelled]) -> tuple[Score, int]:
    """Return how many labelled events were found, and the number of alarms on clean curves."""
    delays, num_events, num_false = [], 0, 0
    for curve in curves:
        at_samples = alarms(curve.records)
        if curve.kind == "clean":
            num_false += len(at_samples)
            continue
        steps = [record.step for record in curve.records]
        for onset in curve.onsets:
            num_events += 1
            here = steps.index(onset)
            found = [at - here for at in at_samples if -EARLY_SAMPLES <= at - here <= REAL_SAMPLES]
            delays += found[:1]
    return Score(num_faults=num_events, delays=tuple(delays)), num_false


def limit_for(rule: Known, runs: Sequence[Sequence[StepRecord]], num_alarms: int) -> float:
    """Return the lowest limit at which a rule alarms no more than so often on these runs."""
    scores: list[tuple[float, int, int]] = []
    for number, run in enumerate(runs):
        made = rule.make()
        scores += [(made.score(record), number, at) for at, record in enumerate(run)]
    scores.sort(reverse=True)
    groups: dict[int, list[int]] = {}
    num_groups = 0
    for score, number, at in scores:
        near = groups.setdefault(number, [])
        if not any(abs(at - other) <= GAP_SAMPLES for other in near):
            num_groups += 1
            if num_groups > num_alarms:
                return math.nextafter(score, math.inf)
        near.append(at)
    return -math.inf
