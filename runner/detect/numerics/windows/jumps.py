"""Jumps in a handful of samples: where a metric left what it was, far beyond what so few samples can show by chance.

All values are logarithms of what was logged. Of a few samples no spread can be learned, so limits are ratios first; multiples of
the range of the samples before protect noisy runs, the higher the fewer they are.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

# Samples before a jump, of which the newest count; chosen.
MIN_BEFORE, MAX_BEFORE = 2, 8
# Of them, after a fall; chosen.
MIN_SETTLED = 4
# Samples of a climb; chosen.
MIN_CLIMB = 4
# Samples before -> ranges of them that a jump must exceed. Chosen by simulation: three samples often lie close together by chance
# (tests/detect/numerics/windows measures the alarms).
RANGES = {2: 16.0, 3: 12.0, 4: 9.0, 5: 7.0, 6: 6.0}
MANY_RANGES = 4.5
# After one sample alone: so many more, all so many times it, and so high: no loss that begins near 0 does that. Chosen.
NUM_AFTER_FIRST, FIRST_RATIO = 3, 1000.0
# Times that for a climb, and for a sample that another metric confirms: noise makes fewer of these. And the power of the ratios,
# which grow where samples are few. All chosen.
CLIMB_RATIO = BACKED_RATIO = 0.5
FEW_POWER = {3: 1.6, 4: 1.3, 5: 1.2}


@dataclass(frozen=True, slots=True, kw_only=True)
class JumpLimits:
    """How far a metric must rise, as ratios to the highest sample before.

    `single`: one sample; `backed`: one that another metric confirms; `pair`: two in a row; `few`: two after no more than two.
    `judges_first`: whether the first sample alone is a level, of a metric that no healthy run begins near 0 and takes far above 1.
    """

    single: float
    pair: float
    few: float
    backed: float = math.inf
    judges_first: bool = False


@dataclass(frozen=True, slots=True)
class Jump:
    """An onset within a window: its index, the level before, and the limit above that."""

    index: int
    level: float
    limit: float
    is_gradual: bool = False


def find_jump(
    values: Sequence[float], limits: JumpLimits, is_backed: Sequence[bool] = ()
) -> Jump | None:
    """Return the first jump in a window; None: there is none. `is_backed`: which samples another metric confirms."""
    if limits.judges_first and (jump := _after_first(values)) is not None:
        return jump
    for index in range(MIN_BEFORE, len(values)):
        backed = index < len(is_backed) and is_backed[index]
        jump = _jump_at(values, index, limits, is_backed=backed)
        if jump is not None:
            return jump
    return None


def _after_first(values: Sequence[float]) -> Jump | None:
    """Return the jump that all samples but the first make; None: there is none."""
    limit = math.log(FIRST_RATIO) + max(0.0, -values[0]) if values else 0.0
    tail = values[1:]
    if len(tail) < NUM_AFTER_FIRST or min(tail) - values[0] <= limit:
        return None
    return Jump(1, values[0], limit)


def _jump_at(
    values: Sequence[float], index: int, limits: JumpLimits, *, is_backed: bool
) -> Jump | None:
    before, tail = _settled(values[max(0, index - MAX_BEFORE) : index]), values[index:]
    highest = max(before)
    if tail[0] <= highest:
        return None
    power = FEW_POWER.get(len(before), 1.0)
    noise = RANGES.get(len(before), MANY_RANGES) * (highest - min(before))
    if len(before) > MIN_BEFORE:
        limit = max(power * math.log(limits.single), noise)
        if is_backed:
            limit = max(math.log(limits.backed), BACKED_RATIO * noise)
        if tail[0] - highest > limit:
            return Jump(index, highest, limit)
    pair = power * math.log(limits.pair if len(before) > MIN_BEFORE else limits.few)
    limit = max(pair, noise)
    if len(tail) > 1 and min(tail[:2]) - highest > limit:
        return Jump(index, highest, limit)
    if len(before) == MIN_BEFORE:
        return None
    return _climb(index, highest, max(pair, CLIMB_RATIO * noise), tail)


def _settled(before: Sequence[float]) -> Sequence[float]:
    """Leave out the fall with which samples begin, down to the last MIN_SETTLED."""
    first = 0
    while len(before) - first > MIN_SETTLED and before[first] >= max(before[first + 1 :]):
        first += 1
    return before[first:]


def _climb(index: int, highest: float, limit: float, tail: Sequence[float]) -> Jump | None:
    """Return a climb without a way back: every sample above the one before, the last two beyond the limit."""
    falls = (at for at in range(1, len(tail)) if tail[at] <= tail[at - 1])
    length = next(falls, len(tail))
    if length < MIN_CLIMB or min(tail[length - 2 : length]) - highest <= limit:
        return None
    return Jump(index, highest, limit, is_gradual=True)
