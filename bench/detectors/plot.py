"""Recall at equal false alarms as SVG: a row of bars for each kind of fault, a bar for each rule, its median delay beside it."""

import math
from collections.abc import Mapping

from bench.detectors.scores import Score

WIDTH, ROW, GAP, LEFT, RIGHT, TOP = 900, 18, 26, 130, 190, 70
OURS, THEIRS = "#1f6feb", "#8b949e"


def plot(scores: Mapping[str, Mapping[str, Score]], subtitle: str) -> str:
    """Return an SVG image of scores by kind of fault and rule."""
    rows = sum(len(rules) for rules in scores.values())
    height = TOP + rows * ROW + len(scores) * GAP + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        '<text x="20" y="26" font-size="16">Faults found at equal false alarms, and after how many samples</text>',
        f'<text x="20" y="46" fill="#57606a">{subtitle}</text>',
    ]
    y = float(TOP)
    span = WIDTH - LEFT - RIGHT
    for kind, rules in scores.items():
        parts.append(f'<text x="20" y="{y + 14}" font-weight="bold">{kind}</text>')
        y += GAP - 6
        for name, score in rules.items():
            colour = OURS if name == "ours" else THEIRS
            width = 0.0 if math.isnan(score.recall) else score.recall * span
            parts.append(f'<text x="{LEFT - 8}" y="{y + 12}" text-anchor="end">{name}</text>')
            parts.append(
                f'<rect x="{LEFT}" y="{y + 2}" width="{width:.1f}" height="{ROW - 5}" fill="{colour}"/>'
            )
            parts.append(f'<text x="{LEFT + width + 6:.1f}" y="{y + 12}">{_words(score)}</text>')
            y += ROW
        y += 6
    return "\n".join([*parts, "</svg>", ""])


def _words(score: Score) -> str:
    share = f"{len(score.delays)} of {score.num_faults}"
    return share if not score.delays else f"{share}, median {score.median_delay:g} samples"
