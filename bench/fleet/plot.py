"""The curve as SVG: cores by part, and milliseconds of decisions, over the number of nodes; both axes logarithmic."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, PANEL, MARGIN, GAP = 900, 260, 60, 70
COLOURS = {
    "supervisor": "#1f6feb",
    "redis": "#cf222e",
    "agents": "#8b949e",
    "median": "#1f6feb",
    "99 %": "#8250df",
    "limit": "#d1242f",
}
TICKS = tuple(digit * 10.0**power for power in range(-3, 6) for digit in (1, 2, 5))


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One picture: lines by name, each a value for every number of nodes, and a limit."""

    title: str
    unit: str
    lines: dict[str, Sequence[float]]
    limit: float


def plot(nodes: Sequence[int], panels: Sequence[Panel]) -> str:
    """Return an SVG image; ValueError without points."""
    if not nodes:
        raise ValueError("no points to draw")
    height = MARGIN + len(panels) * (PANEL + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
    ]
    for index, panel in enumerate(panels):
        parts += _panel(nodes, panel, MARGIN + index * (PANEL + GAP))
    return "\n".join([*parts, "</svg>", ""])


def _panel(nodes: Sequence[int], panel: Panel, top: float) -> list[str]:
    values = [max(value, 1e-3) for line in panel.lines.values() for value in line] + [panel.limit]
    low, high = min(values) / 1.3, max(values) * 1.3
    bottom, left, right = top + PANEL, MARGIN, WIDTH - 140

    def x(count: float) -> float:
        span = math.log(nodes[-1] / nodes[0]) or 1.0
        return round(left + math.log(count / nodes[0]) / span * (right - left), 1)

    def y(value: float) -> float:
        ratio = math.log(max(value, 1e-3) / low) / math.log(high / low)
        return round(bottom - ratio * PANEL, 1)

    parts = [f'<text x="{left}" y="{top - 12}">{panel.title}</text>']
    for tick in (tick for tick in TICKS if low <= tick <= high):
        parts.append(f'<path d="M{left} {y(tick)}H{right}" stroke="#d8dee4"/>')
        parts.append(f'<text x="{left - 6}" y="{y(tick) + 4}" text-anchor="end">{tick:g}</text>')
    for count in nodes:
        parts.append(f'<path d="M{x(count)} {top}V{bottom}" stroke="#d8dee4"/>')
        parts.append(
            f'<text x="{x(count)}" y="{bottom + 16}" text-anchor="middle">{count:,}</text>'
        )
    limit = y(panel.limit)
    parts.append(
        f'<path d="M{left} {limit}H{right}" stroke="{COLOURS["limit"]}" stroke-dasharray="6 4"/>'
    )
    text = f"limit {panel.limit:g} {panel.unit}"
    parts.append(f'<text x="{right + 8}" y="{limit + 4}" fill="{COLOURS["limit"]}">{text}</text>')
    for name, line in panel.lines.items():
        points = " ".join(
            f"{x(count)},{y(value)}" for count, value in zip(nodes, line, strict=True)
        )
        colour = COLOURS[name]
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        parts.append(f'<text x="{right + 8}" y="{y(line[-1]) + 4}" fill="{colour}">{name}</text>')
    return parts
