"""Step times and throughputs of a short log that is over: steps that go to and fro between two times, and a drop that lasts."""

import math
from collections.abc import Sequence
from itertools import pairwise, product
from statistics import median

from runner.detect.numerics.findings import NumericFinding, incident, number
from runner.detect.numerics.throughput import SAMPLES, SOURCES
from runner.detect.numerics.windows.losses.loss_windows import TREND_CHANCE, order_chance
from runner.detect.numerics.windows.samples import Points, Samples, are_positive

# Step times: samples, slow ones in times of the fastest, how many fast ones show that a step can be that fast (within a factor of
# it), the share of slow ones, how often it goes to and fro, and seconds, as single milliseconds are the interpreter's. Chosen:
# lengths of batches and steps that gather gradients change the time by less, or in a regular order.
MIN_TIMES, SLOW_RATIO, NUM_FAST, FAST_RATIO = 8, 10.0, 3, 1.5
SLOW_SHARE, MIN_TURNS, LEAST_SLOW_SECONDS, UNEVEN_RATIO = 0.25, 2, 1.0, 1.5
# Or so many within a wider factor, if the slow ones are far from it: where data come late, few steps are as fast as can be. Chosen.
NUM_NEARLY_FAST, NEARLY_FAST_RATIO, FAR_RATIO = 4, 3.0, 20.0
# Slow steps that differ by more come of no regular work, though they come in a regular order. Chosen.
IRREGULAR_RATIO = 8.0
# Waits for data: steps whose line has both, the share of all time, and seconds of a step. Chosen: a loader that keeps up costs no
# time.
MIN_DATA_STEPS, WAITING_SHARE, LEAST_WAIT_SECONDS = 6, 2 / 3, 0.25
# Of a time that goes on from the begin of an epoch, three steps or more in a row are longer before it falls back; chosen.
MOST_RISES_PER_FALL = 1.8
# Steps that stall: how many in a row, to the end of the log; how many before; in times of those, and seconds. Chosen: a save or a
# validation within a step takes so long, but not twice in a row.
MIN_STALLED, MIN_BEFORE_STALL, STALL_RATIO, LEAST_STALL_SECONDS = 2, 2, 50.0, 30.0
# A single one at the end, which takes hours: how many before, which lie close together, in times of those, and seconds. Chosen.
MIN_BEFORE_HOURS, HOURS_STEADY, HOURS_RATIO, LEAST_HOURS_SECONDS = 4, 1.5, 20.0, 3600.0
# A drop that lasts: times the range of a side that the gap between the two sides is; then samples on each side of it, and the ratio
# of the two nearest samples: of step times where each line prints the same sizes; of throughputs, of which single low samples are
# usual, by half, or for longer. Where no line prints sizes a larger batch makes steps longer, but seldom so much. Chosen.
GAP_RANGES = 3.0
# Samples per second that fell at the end: samples before, how far they are apart, samples of the end, and the ratio. Chosen: a save
# or a validation makes one sample slow, not two; of tokens per second, which are printed more often, two are.
MIN_STEADY, STEADY_RATIO, MIN_SLOW, END_RATE_RATIO = 4, 1.25, 2, 1.9
# The same of step times, and of times of whole passes: samples of the end, how far they are apart, and the ratio; and how far the
# loss of a pass may be from that of the one before, as a logarithm, if the same is trained. Chosen.
MIN_SLOW_STEPS, SLOW_STEADY, END_STEP_RATIO, END_PASS_RATIO, SAME_LOSS = 3, 1.5, 2.5, 3.5, 0.2
# The same of a drop to a part, which few samples show: samples before and of the end, of tokens per
# second more, how far they are apart, and the ratio;
# and of one after a single sample, which is no first one that is slow: the ratio, also in times of the steps between two lines, as
# some print the time of all of these. Chosen.
FEW_STEADY, FEW_STEADY_TOKENS, FEW_CLOSE, FEW_DROP_RATIO = 2, 3, 1.1, 4.0
SINGLE_RATIO, SINGLE_INTERVALS = 10.0, 1.5
# Times that creep up: samples, the last one in times of the first, and the first in times of the mean step between two, which the
# time since the start of a run has as its first value. Chosen.
MIN_CREEPING, CREEPING_RATIO, FIRST_STEPS = 9, 2.5, 2.5
OF_TIMES, OF_UNSIZED_TIMES = (4, 1.25), (5, 2.5)
OF_RATES = ((4, 2.0), (8, 1.5))


def uneven_steps(samples: Samples) -> NumericFinding | None:
    """Find steps of which many take ten times what others need, to and fro: a disk or a loader, not the settings."""
    known = [(one.step, one.step_seconds_max) for one in samples.records]
    points = [(step, seconds) for step, seconds in known if seconds is not None]
    times = [seconds for _, seconds in points]
    if samples.steps_are_passes or len(times) < MIN_TIMES or not are_positive(times):
        return None
    fastest = min(times)
    least = max(SLOW_RATIO * fastest, LEAST_SLOW_SECONDS)
    slow = [seconds for seconds in times if seconds >= least]
    num_fast = sum(seconds <= FAST_RATIO * fastest for seconds in times)
    num_nearly = sum(seconds <= NEARLY_FAST_RATIO * fastest for seconds in times)
    kinds = [seconds >= least for seconds in times]
    num_turns = sum(before and not after for before, after in pairwise(kinds))
    num_falls = sum(later < seconds for seconds, later in pairwise(times))
    num_rises = sum(later > seconds for seconds, later in pairwise(times))
    places = [at for at, is_slow in enumerate(kinds) if is_slow]
    gaps = [later - at for at, later in pairwise(places)]
    # Slow ones in a row are of no regular order.
    are_far = 1 in gaps and median(slow) >= FAR_RATIO * fastest
    are_fast = num_fast >= NUM_FAST or (num_nearly >= NUM_NEARLY_FAST and are_far)
    if not are_fast or len(slow) < SLOW_SHARE * len(times) or num_turns < MIN_TURNS:
        return None
    is_irregular = max(slow) >= IRREGULAR_RATIO * min(slow)
    in_order = (min(gaps) > 1 and not is_irregular) or max(gaps) == 1
    if max(slow) < UNEVEN_RATIO * min(slow) or in_order:
        # A regular step of another kind gathers gradients, or saves: it never comes twice in a row.
        return None
    if num_rises > MOST_RISES_PER_FALL * num_falls:
        # The time since the begin of an epoch: it rises for many steps, and falls back at once.
        return None
    first = next(step for step, seconds in points if seconds >= least)
    evidence = (
        f"{len(slow)} of {len(times)} steps take {number(min(slow))} to {number(max(slow))} s, ten times and more of the "
        f"{number(fastest)} s that others need, to and fro: in {number(sum(times))} s in all"
    )
    return incident("throughput_drop", first, points[-1][0], evidence)


def starved_steps(samples: Samples) -> NumericFinding | None:
    """Find steps that wait for data most of their time: the devices could be several times as fast."""
    # Workers begin to read with the first one.
    seconds = samples.data_seconds[1:]
    if len(seconds) < MIN_DATA_STEPS or not samples.records:
        return None
    taken, waited = (sum(values) for values in zip(*seconds, strict=True))
    if waited < WAITING_SHARE * taken or waited < LEAST_WAIT_SECONDS * len(seconds):
        return None
    evidence = (
        f"{len(seconds)} steps take {number(taken)} s, {number(waited)} s of which they wait for data (limit "
        f"{WAITING_SHARE:.0%})"
    )
    records = samples.records
    return incident("throughput_drop", records[0].step, records[-1].step, evidence)


def stalled_steps(samples: Samples) -> NumericFinding | None:
    """Find steps with which the log ends, that take minutes where the others need seconds."""
    known = [(one.step, one.step_seconds_max) for one in samples.records]
    points = [(step, seconds) for step, seconds in known if seconds is not None]
    times = [seconds for _, seconds in points]
    if len(times) <= MIN_STALLED or not are_positive(times):
        return None
    before, last = times[:-1], times[-1]
    is_steady = len(before) >= MIN_BEFORE_HOURS and max(before) <= HOURS_STEADY * min(before)
    if is_steady and last >= max(HOURS_RATIO * max(before), LEAST_HOURS_SECONDS):
        evidence = (
            f"the last step takes {number(last)} s, {number(max(before))} s at most in the {len(before)} before (limit "
            f"{HOURS_RATIO:g} times)"
        )
        return incident("throughput_drop", points[-1][0], points[-1][0], evidence)
    interval = points[1][0] - points[0][0]
    least = max(SINGLE_RATIO, SINGLE_INTERVALS * interval) * before[0]
    if min(times[1:]) >= max(least, LEAST_STALL_SECONDS) and not samples.steps_are_passes:
        evidence = (
            f"steps take {number(min(times[1:]))} s and more in all {len(times) - 1} samples after the first one, which took "
            f"{number(before[0])} s"
        )
        return incident("throughput_drop", points[1][0], points[-1][0], evidence)
    for num in range(MIN_STALLED, len(times) - MIN_BEFORE_STALL + 1):
        before, after = times[:-num], times[-num:]
        if min(after) >= max(STALL_RATIO * max(before), LEAST_STALL_SECONDS):
            evidence = (
                f"the last {num} steps take {number(min(after))} s and more, {number(max(before))} s at most in the {len(before)} "
                f"before (limit {STALL_RATIO:g} times)"
            )
            return incident("throughput_drop", points[-num][0], points[-1][0], evidence)
    return None


def slower_steps(samples: Samples) -> NumericFinding | None:
    """Find steps that become slower at once and stay so, at settings that do not change as far as the log shows."""
    known = [(one.step, one.step_seconds_max) for one in samples.records]
    times = [(step, seconds) for step, seconds in known if seconds is not None]
    is_sized = samples.has_one_batch_size
    if samples.steps_are_passes:
        # More layers may be trained from some pass on, which the loss shows.
        found = _slower_end(times, MIN_SLOW_STEPS, END_PASS_RATIO)
        found = None if found is None or _changes_loss(samples, found[2]) else found
    else:
        found = _slower(times, *(OF_TIMES if is_sized else OF_UNSIZED_TIMES))
        found = found or _slower_end(times, MIN_SLOW_STEPS, END_STEP_RATIO)
        found = found or _slower_after_few(times, FEW_STEADY)
    if found is not None:
        before, after, onset = found
        sized = ", with the same batch size on each line" if is_sized else ""
        evidence = f"steps take {number(min(after))} s and more from step {onset} on, {number(max(before))} s at most before{sized}"
        return incident("throughput_drop", onset, times[-1][0], evidence)
    for source in (*SOURCES, SAMPLES):
        rates = [(one.step, getattr(one, source)) for one in samples.records]
        inverse = [(step, 1 / rate) for step, rate in rates if rate is not None and rate > 0]
        found = next((one for limits in OF_RATES if (one := _slower(inverse, *limits))), None)
        if found is None and source == SAMPLES:
            found = _slower_end(inverse, MIN_SLOW, END_RATE_RATIO)
        if found is None:
            num_steady = FEW_STEADY if source == SAMPLES else FEW_STEADY_TOKENS
            found = _slower_after_few(inverse, num_steady)
        if found is not None:
            before, after, onset = found
            most, least = number(1 / min(after)), number(1 / max(before))
            evidence = f"{source} is {most} at most from step {onset} on, {least} and more before"
            return incident("throughput_drop", onset, inverse[-1][0], evidence)
    return None


def _changes_loss(samples: Samples, step: int) -> bool:
    """Whether the loss of a step is far from that of the one before."""
    losses = [(at, value) for at, value in samples.losses() if value > 0]
    return any(
        at == step and abs(math.log(value / before)) > SAME_LOSS
        for (_, before), (at, value) in pairwise(losses)
    )


def creeping_times(samples: Samples) -> NumericFinding | None:
    """Find step times, or times of passes, that become longer and longer, in order, to a multiple of the first."""
    known = [(one.step, one.step_seconds_max) for one in samples.records]
    times = [(step, seconds) for step, seconds in known if seconds is not None]
    values = [seconds for _, seconds in times]
    if len(values) < MIN_CREEPING or not are_positive(values):
        return None
    step_between = (values[-1] - values[0]) / (len(values) - 1)
    if values[-1] < CREEPING_RATIO * values[0] or values[0] < FIRST_STEPS * step_between:
        return None
    if order_chance(values) > TREND_CHANCE:
        return None
    evidence = (
        f"steps take longer and longer: {number(values[0])} s at step {times[0][0]}, {number(values[-1])} s at step "
        f"{times[-1][0]}, in order over {len(values)} samples"
    )
    return incident("throughput_drop", times[1][0], times[-1][0], evidence)


def _slower_after_few(
    times: Points, least: int
) -> tuple[Sequence[float], Sequence[float], int] | None:
    """Return the same of a drop to a part, which few samples show. `least`: samples before, and of the end."""
    values = [value for _, value in times]
    if not are_positive(values):
        return None
    after = values[-least:]
    for num_between in (0, 1):
        before = values[: len(values) - least - num_between]
        if len(before) < least or max(before) > FEW_CLOSE * min(before):
            continue
        is_drop = min(after) >= FEW_DROP_RATIO * max(before)
        if is_drop and max(after) <= FEW_CLOSE * min(after):
            return before, after, times[-least][0]
    return None


def _slower_end(
    times: Points, least: int, ratio: float
) -> tuple[Sequence[float], Sequence[float], int] | None:
    """Return the times before the last samples, if those were steady, and of these, if they are longer, and their first step.

    One sample may lie between: it began before the drop. `least`: samples of the end.
    """
    values = [value for _, value in times]
    if not are_positive(values):
        return None
    for num, num_between in product(range(least, len(values) - MIN_STEADY + 1), (0, 1)):
        before, after = values[: len(values) - num - num_between], values[-num:]
        is_steady = len(before) >= MIN_STEADY and max(before) <= STEADY_RATIO * min(before)
        are_alike = least == MIN_SLOW or max(after) <= SLOW_STEADY * min(after)
        if is_steady and are_alike and min(after) >= ratio * max(before):
            return before, after, times[-num][0]
    return None


def _slower(
    times: Points, least: int, ratio: float
) -> tuple[Sequence[float], Sequence[float], int] | None:
    """Return the times before and after the step from which on they are longer, and that step; None: there is none.

    `least`: samples on each side.
    """
    values = [value for _, value in times]
    if not are_positive(values):
        return None
    for index in range(least, len(values) - least + 1):
        before, after = values[:index], values[index:]
        gap = min(after) - max(before)
        widest = max(max(before) - min(before), max(after) - min(after))
        if min(after) >= ratio * max(before) and gap >= GAP_RANGES * widest:
            return before, after, times[index][0]
    return None
