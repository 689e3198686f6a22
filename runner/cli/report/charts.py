"""Pictures of a report as SVG, by hand: curves over steps, and attempts over time. Every text in them is escaped."""

import math
from collections.abc import Iterator, Sequence
from html import escape

from runner.cli import output
from runner.cli.report.document import AttemptCurve, Chart, Timeline
from runner.facts.wording import visible

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 900, 260, 80, 15, 26, 34
ROW_HEIGHT, MAX_TIMELINE_ROWS = 18, 120
# Of one curve: as many as a screen has columns; of each group the smallest and the largest value stay.
MAX_POINTS = 1200
NUM_TICKS = 5
# Colours of the Okabe-Ito palette, which the colour-blind can tell apart.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
LOST, BAD = "#b0b0b0", "#b00020"
SPAN_COLORS = {"start": "#E69F00", "steps": "#009E73", "lost steps": LOST}
MAX_LEGEND = 8


def chart_svg(chart: Chart) -> str:
    """Draw curves over steps."""
    return "".join(_chart(chart))


def timeline_svg(timeline: Timeline) -> str:
    """Draw attempts over time, and a line where an incident began."""
    return "".join(_timeline(timeline))


def _chart(chart: Chart) -> Iterator[str]:
    points = [point for curve in chart.curves for point in curve.points]
    steps = [point[0] for point in points] + [float(step) for step in chart.not_finite]
    values = [point[1] for point in points] or [0.0, 1.0]
    x = _Axis(min(steps), max(steps), LEFT, WIDTH - RIGHT)
    y = _Axis(min(values), max(values), HEIGHT - BOTTOM, TOP)
    yield _open(HEIGHT, chart.title)
    yield from _grid(x, y, HEIGHT)
    yield _label(LEFT, 16, chart.title, "title")
    colors = {
        label: COLORS[number % len(COLORS)]
        for number, label in enumerate(dict.fromkeys(c.label for c in chart.curves if c.is_kept))
    }
    for curve in chart.curves:
        yield _curve(curve, colors.get(curve.label, LOST) if curve.is_kept else LOST, x, y)
    for step in chart.not_finite[:MAX_POINTS]:
        at = x.place(step)
        title = f"<title>step {step}: not finite</title>"
        yield f'<path d="M{at - 3:.1f} {TOP - 3}l6 6m0 -6l-6 6" stroke="{BAD}" fill="none">{title}</path>'
    for number, (label, color) in enumerate([*colors.items()][:MAX_LEGEND]):
        at = LEFT + 140 + 90 * number
        yield f'<rect x="{at}" y="8" width="10" height="10" fill="{color}"/>'
        yield _label(at + 14, 17, label)
    yield "</svg>"


def _curve(curve: AttemptCurve, color: str, x: "_Axis", y: "_Axis") -> str:
    thin = list(thinned(curve.points))
    title = f"<title>{_words(curve.label)}</title>"
    if len(thin) == 1:
        step, value = thin[0]
        return f'<circle cx="{x.place(step):.1f}" cy="{y.place(value):.1f}" r="2" fill="{color}">{title}</circle>'
    places = " ".join(f"{x.place(step):.1f},{y.place(value):.1f}" for step, value in thin)
    return f'<polyline points="{places}" fill="none" stroke="{color}" stroke-width="1.3">{title}</polyline>'


def thinned(points: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Yield at most about `MAX_POINTS` points: of each group the smallest and the largest value, so that no spike is lost."""
    if len(points) <= MAX_POINTS:
        yield from points
        return
    size = -(-2 * len(points) // MAX_POINTS)
    for at in range(0, len(points), size):
        group = points[at : at + size]
        least, most = min(group, key=lambda each: each[1]), max(group, key=lambda each: each[1])
        yield from sorted({least, most})


class _Axis:
    """Maps values from `least` to `most` to places from `begin` to `end`, and has round ticks."""

    def __init__(self, least: float, most: float, begin: float, end: float) -> None:
        if not most > least:
            least, most = least - 0.5, most + 0.5
        self._least, self._scale = least, (end - begin) / (most - least)
        self._begin, self._most = begin, most

    def place(self, value: float) -> float:
        """Return where a value is."""
        return self._begin + (value - self._least) * self._scale

    def ticks(self) -> list[float]:
        """Return a few round values."""
        raw = (self._most - self._least) / NUM_TICKS
        magnitude = 10.0 ** math.floor(math.log10(raw))
        step = next(magnitude * each for each in (1, 2, 5, 10) if magnitude * each >= raw)
        first = math.ceil(self._least / step)
        last = math.floor(self._most / step)
        return [step * number for number in range(first, last + 1)]


def _grid(x: _Axis, y: _Axis, height: int) -> Iterator[str]:
    for value in y.ticks():
        at = y.place(value)
        yield f'<path class="grid" d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}"/>'
        yield _label(LEFT - 6, at + 4, f"{value:.6g}", "right")
    for value in x.ticks():
        at = x.place(value)
        yield f'<path class="grid" d="M{at:.1f} {TOP}V{height - BOTTOM}"/>'
        yield _label(at, height - BOTTOM + 16, f"{value:.10g}", "middle")


def _timeline(timeline: Timeline) -> Iterator[str]:
    shown = max(0, len(timeline.rows) - MAX_TIMELINE_ROWS)
    rows = timeline.rows[shown:]
    height = TOP + ROW_HEIGHT * len(rows) + BOTTOM
    x = _Axis(timeline.begin, timeline.end, LEFT, WIDTH - RIGHT)
    yield _open(height, "attempts over time")
    for number, label in enumerate(rows):
        yield _label(LEFT - 6, TOP + ROW_HEIGHT * number + 13, label, "right")
    for span in timeline.spans:
        if span.row >= shown:
            begin, end = x.place(span.begin), x.place(span.end)
            top = TOP + ROW_HEIGHT * (span.row - shown) + 3
            title = f"<title>{_words(span.kind)}: {_words(output.seconds(span.end - span.begin))}</title>"
            yield (
                f'<rect x="{begin:.1f}" y="{top}" width="{max(1.0, end - begin):.1f}" height="{ROW_HEIGHT - 6}" '
                f'fill="{SPAN_COLORS[span.kind]}">{title}</rect>'
            )
    for at, text in timeline.marks:
        place = x.place(at)
        title = f"<title>{_words(text)}</title>"
        yield f'<path d="M{place:.1f} {TOP - 4}V{height - BOTTOM}" stroke="{BAD}" stroke-dasharray="3 3" fill="none">{title}</path>'
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        at = timeline.begin + share * (timeline.end - timeline.begin)
        anchor = "right" if share == 1.0 else "middle" if share else ""
        yield _label(x.place(at), height - BOTTOM + 16, output.moment(at), anchor)
    for number, (kind, color) in enumerate(SPAN_COLORS.items()):
        yield f'<rect x="{LEFT + 110 * number}" y="4" width="10" height="10" fill="{color}"/>'
        yield _label(LEFT + 14 + 110 * number, 13, kind)
    yield _label(LEFT + 344, 13, "dashed: incidents")
    yield "</svg>"


def _open(height: int, title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{_words(title)}">'
    )


def _label(x: float, y: float, text: str, kind: str = "") -> str:
    anchor = {"right": "end", "middle": "middle"}.get(kind, "start")
    weight = ' font-weight="bold"' if kind == "title" else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{weight}>{_words(text)}</text>'


def _words(text: str) -> str:
    return escape(visible(text), quote=True)
