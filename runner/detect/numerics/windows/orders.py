"""How far numbers are in order, and how far they are from a smooth line: what tells a trend of few samples from their noise."""

import math
from collections.abc import Sequence
from statistics import fmean

from runner.detect.numerics.slow_trends import VARIANCE_OF_SECOND_DIFFERENCES


def order(values: Sequence[float]) -> float:
    """Return how far values rise from each to each later one: 1 if all do, -1 if none does; 0 of fewer than two."""
    signs = [
        (later > earlier) - (later < earlier)
        for index, earlier in enumerate(values)
        for later in values[index + 1 :]
    ]
    return fmean(signs) if signs else 0.0


def second_differences(values: Sequence[float]) -> list[float]:
    """Return how much each value but the first and last one is below the middle of its neighbours, twice."""
    return [
        after - 2 * value + before
        for before, value, after in zip(values, values[1:], values[2:], strict=False)
    ]


def spread_around_curve(values: Sequence[float]) -> float:
    """Return the spread of values around a smooth line, by their second differences; 0 of fewer than three."""
    seconds = second_differences(values)
    if not seconds:
        return 0.0
    square = sum(one * one for one in seconds) / len(seconds)
    return math.sqrt(square / VARIANCE_OF_SECOND_DIFFERENCES)


def width(values: Sequence[float]) -> float:
    """Return the range of values."""
    return max(values) - min(values)
