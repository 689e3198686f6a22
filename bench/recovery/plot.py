"""A plot of all rounds as SVG, which needs no library: a line a series, a dot a round, bars at the median and at the limit."""

import math
import statistics
from collections.abc import Sequence
from html import escape

from bench.recovery.series import Series

WIDTH, LINE_HEIGHT, MARGIN = 900, 44, 16
AXIS_LEFT, AXIS_RIGHT = MARGIN, WIDTH - MARGIN
# Above the first line.
TOP = 34
OURS, PEER, LIMIT = "#1f6feb", "#8b949e", "#d1242f"
TICKS = tuple(digit * 10.0**power for power in range(-3, 4) for digit in (1, 2, 5))


def plot(measured: Sequence[Series]) -> str:
    """Return an SVG image: seconds on a logarithmic axis. ValueError if there is nothing to draw."""
    values = [value for series in measured for value in series.seconds]
    values += [series.limit_seconds for series in measured if series.limit_seconds is not None]
    if not values:
        raise ValueError("no rounds to draw")
    low, high = min(values) / 1.2, max(values) * 1.2
    height = TOP + LINE_HEIGHT * len(measured) + 40

    def x(seconds: float) -> float:
        ratio = math.log(seconds / low) / math.log(high / low)
        return round(AXIS_LEFT + ratio * (AXIS_RIGHT - AXIS_LEFT), 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{MARGIN}" y="20">Seconds from a fault to the first new step: each round, '
        f"median (bar), limit (red)</text>",
    ]
    bottom = height - 30
    for tick in (tick for tick in TICKS if low <= tick <= high):
        parts.append(f'<path d="M{x(tick)} {TOP}V{bottom}" stroke="#d8dee4"/>')
        parts.append(
            f'<text x="{x(tick)}" y="{bottom + 16}" text-anchor="middle">{tick:g} s</text>'
        )
    for index, series in enumerate(measured):
        top = TOP + LINE_HEIGHT * index
        parts += _line(series, top, [x(value) for value in series.seconds])
        parts.append(_bar(x(statistics.median(series.seconds)), top, _colour(series)))
        if series.limit_seconds is not None:
            parts.append(_bar(x(series.limit_seconds), top, LIMIT))
    return "\n".join([*parts, "</svg>", ""])


def _line(series: Series, top: float, xs: Sequence[float]) -> list[str]:
    """Return the text of a line and its dots."""
    median = statistics.median(series.seconds)
    text = escape(f"{series.name}: {median:.3g} s")
    dots = [
        f'<circle cx="{x}" cy="{top + 30}" r="4" fill="{_colour(series)}" fill-opacity="0.5"/>'
        for x in xs
    ]
    return [f'<text x="{MARGIN}" y="{top + 16}">{text}</text>', *dots]


def _bar(x: float, top: float, colour: str) -> str:
    return f'<path d="M{x} {top + 21}v18" stroke="{colour}" stroke-width="3"/>'


def _colour(series: Series) -> str:
    return PEER if series.is_peer else OURS
