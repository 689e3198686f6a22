"""What else a short log that is over shows: a loss at chance, a validation loss that leaves the training loss, uneven steps."""

import math
from collections.abc import Sequence
from itertools import pairwise

from runner.detect.numerics.findings import NumericFinding, incident, number
from runner.detect.numerics.slow_trends import NOTE_RISE
from runner.detect.numerics.windows.samples import Samples, are_positive

# A classifier that knows nothing has a cross entropy of ln N of its N classes. Numbers of classes that are usual, since any loss is
# near the logarithm of some number; chosen.
CLASSES = (*range(2, 11), 20, 50, 100, 200, 1000)
# Samples at it, and how near: of the training and the validation loss alike; of the training loss alone, where it is exact, and not
# ln 2, with which preference losses and balanced discriminators begin or stay. Chosen.
MIN_AT_CHANCE, NEAR_CHANCE, EXACT_CHANCE = 5, 1e-3, 1e-4
# Evaluations in a row whose validation loss rises, and training loss falls, since the best one, and the rise in times of the noise
# that second differences show. Chosen.
MIN_RISING, RISE_OVER_NOISE = 5, 25.0
# A validation loss so many times the training loss, that rises (as for a note of long curves) while the training loss falls to that
# share of what it was at the best evaluation; its rise in times of the noise, where there are three evaluations or more. Chosen.
APART_RATIO, FALLEN_SHARE, APART_OVER_NOISE = 3.0, 0.8, 8.0
# Second differences of independent samples have six times their variance.
VARIANCE_OF_SECOND_DIFFERENCES = 6.0
# Step times: samples, slow ones in times of the fastest, how many fast ones show that a step can be that fast (within a factor of
# it), the share of slow ones, how often it goes to and fro, and seconds, as single milliseconds are the interpreter's. Chosen:
# lengths of batches and steps that gather gradients change the time by less, or in a regular order.
MIN_TIMES, SLOW_RATIO, NUM_FAST, FAST_RATIO = 8, 10.0, 3, 1.5
SLOW_SHARE, MIN_TURNS, LEAST_SLOW_SECONDS, UNEVEN_RATIO = 0.25, 2, 1.0, 1.5


def loss_at_chance(samples: Samples) -> NumericFinding | None:
    """Find a classifier whose loss stays at ln N: its weights or its labels say nothing."""
    records = [one for one in samples.records if one.loss is not None]
    # The first one may still come from its initial weights.
    later = [one.loss for one in records[1:] if one.loss is not None]
    validation = [value for _, _, value in samples.evaluations()]
    for classes in CLASSES:
        chance = math.log(classes)
        is_exact = classes > 2 and _are_near(later, chance, EXACT_CHANCE)
        is_near = _are_near(later, chance, NEAR_CHANCE) and _are_near(
            validation, chance, NEAR_CHANCE
        )
        if is_exact or is_near:
            beside = " and the validation loss" if is_near else ""
            evidence = (
                f"the loss{beside} stay at {chance:.4f} in {len(records)} samples: the logarithm of {classes}, which is the cross "
                f"entropy of a model of {classes} classes that has learned nothing"
            )
            return incident("plateau", records[0].step, records[-1].step, evidence)
    return None


def _are_near(values: list[float], chance: float, share: float) -> bool:
    """Whether there are enough values, all within this share of chance."""
    is_enough = len(values) >= MIN_AT_CHANCE
    return is_enough and all(abs(value - chance) <= share * chance for value in values)


def leaving_validation(samples: Samples) -> NumericFinding | None:
    """Find a validation loss that rises while the training loss falls: steadily, or far above it."""
    evaluations = samples.evaluations()
    if len(evaluations) < 2:
        return None
    best = min(range(len(evaluations)), key=lambda at: (evaluations[at][2], -at))
    since = evaluations[best:]
    (_, best_train, best_validation), (step, train, validation) = since[0], since[-1]
    if validation < (1 + NOTE_RISE) * best_validation:
        return None
    if any(now[2] <= before[2] or now[1] >= before[1] for before, now in pairwise(since)):
        return None
    rise = validation - best_validation
    is_steady = len(since) > MIN_RISING and rise >= RISE_OVER_NOISE * _noise(since)
    is_apart = validation >= APART_RATIO * train and train <= FALLEN_SHARE * best_train
    if not is_steady and not (is_apart and rise >= APART_OVER_NOISE * _noise(evaluations)):
        return None
    evidence = (
        f"the validation loss rose from {number(best_validation)}, its best, to {number(validation)} at step {step}, while the "
        f"training loss fell from {number(best_train)} to {number(train)}"
    )
    return incident("validation_divergence", since[1][0], step, evidence)


def _noise(evaluations: Sequence[tuple[int, float, float]]) -> float:
    """Return the spread of validation losses around a smooth line, by their second differences; 0 of fewer than three."""
    values = [value for _, _, value in evaluations]
    seconds = [
        after - 2 * value + before
        for before, value, after in zip(values, values[1:], values[2:], strict=False)
    ]
    if not seconds:
        return 0.0
    square = sum(one * one for one in seconds) / len(seconds)
    return math.sqrt(square / VARIANCE_OF_SECOND_DIFFERENCES)


def uneven_steps(samples: Samples) -> NumericFinding | None:
    """Find steps of which many take ten times what others need, to and fro: a disk or a loader, not the settings."""
    known = [(one.step, one.step_seconds_max) for one in samples.records]
    points = [(step, seconds) for step, seconds in known if seconds is not None]
    times = [seconds for _, seconds in points]
    if len(times) < MIN_TIMES or not are_positive(times):
        return None
    fastest = min(times)
    least = max(SLOW_RATIO * fastest, LEAST_SLOW_SECONDS)
    slow = [seconds for seconds in times if seconds >= least]
    fast = [seconds for seconds in times if seconds <= FAST_RATIO * fastest]
    kinds = [seconds >= least for seconds in times]
    num_turns = sum(before and not after for before, after in pairwise(kinds))
    places = [at for at, is_slow in enumerate(kinds) if is_slow]
    gaps = [later - at for at, later in pairwise(places)]
    if len(fast) < NUM_FAST or len(slow) < SLOW_SHARE * len(times) or num_turns < MIN_TURNS:
        return None
    if max(slow) < UNEVEN_RATIO * min(slow) or len(set(gaps)) == 1:
        # A regular step of another kind: it gathers gradients, or saves.
        return None
    first = next(step for step, seconds in points if seconds >= least)
    evidence = (
        f"{len(slow)} of {len(times)} steps take {number(min(slow))} to {number(max(slow))} s, ten times and more of the "
        f"{number(fastest)} s that {len(fast)} others need, to and fro: in {number(sum(times))} s in all"
    )
    return incident("throughput_drop", first, points[-1][0], evidence)
