"""`stoker lineage --plot`: the perplexity of a run over wall-clock time, and what was done to it, as a picture.

A line for each attempt's steps that count, in grey those that a later attempt overwrote. A vertical line marks the start of each
attempt after the first: with other remedies, after a rewind, or a restart. What they were is listed below, by number.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from runner.cli import output
from runner.errors import UserError
from runner.facts.ids import AttemptId
from runner.facts.remedies import value_text
from runner.facts.wording import counted, printable
from runner.steps import StepRow, contributing

if TYPE_CHECKING:
    from runner.history.lineage import LineageRow

FORMATS = ("png", "svg", "pdf")
# Of the list below the picture: remedies and rewinds come before restarts. Chosen.
MAX_LISTED = 16
# matplotlib counts days since 1970.
DAY_SECONDS = 86_400.0
# Above that a float ends.
MAX_EXPONENT = 700.0
# Colours of the Okabe-Ito palette, which the colour-blind can tell apart.
COLORS = {"remedy": "#D55E00", "rewind": "#0072B2", "restart": "#999999"}
LINE, LOST = "#1b3a4b", "#c9c9c9"
WIDTH_INCHES, HEIGHT_INCHES, LISTED_INCHES = 11.0, 5.2, 0.2


class Intervention(NamedTuple):
    """The start of an attempt after the first: what kind it is, and in words what was changed and why."""

    at: float
    kind: str
    text: str


class Rewound(NamedTuple):
    """A run went back on purpose, at this moment."""

    at: float
    step: int
    reason: str


def plot(
    path: str,
    run_name: str,
    attempts: Sequence["LineageRow"],
    steps: Sequence[StepRow],
    rewinds: Sequence[Rewound] = (),
) -> str:
    """Write the picture of a run; return a sentence about it.

    Raises UserError for a name that is no picture's, without matplotlib, and for a run that has reported no loss.
    """
    file = Path(path)
    if file.suffix.lstrip(".").lower() not in FORMATS:
        raise UserError(f"--plot: {path!r} ends with none of {', '.join(FORMATS)}")
    ranges = {row.attempt: row.contributes for row in attempts if row.contributes is not None}
    branch = [row for row in contributing(steps, ranges or None) if row.loss is not None]
    if not branch:
        raise UserError(
            f"--plot: run {run_name!r} has no step with a loss that counts; see `stoker steps {run_name} --all`"
        )
    counted = {(row.attempt, row.step): True for row in branch}
    lost = [row for row in steps if row.loss is not None and (row.attempt, row.step) not in counted]
    try:
        _draw(
            file,
            _title(run_name, attempts, branch, lost),
            interventions(attempts, rewinds),
            (branch, lost),
        )
    except OSError as error:
        raise UserError(f"--plot: {error}; name a file that can be written") from error
    return f"{path}: {len(branch)} steps of {len(_by_attempt(branch))} attempts"


def interventions(
    attempts: Sequence["LineageRow"], rewinds: Sequence[Rewound] = ()
) -> list[Intervention]:
    """Return what began each attempt after the first, oldest first."""
    found = []
    for before, row in pairwise(attempts):
        at = row.planned_at if row.first_step_at is None else row.first_step_at
        changed = _changes(before.remedies, row.remedies)
        num_lost = max(0, (before.last_step or 0) - row.resume_step)
        back = [one for one in rewinds if before.planned_at <= one.at <= row.planned_at]
        kind = "remedy" if changed else "rewind" if back else "restart"
        why = f" ({row.incident})" if row.incident else ""
        words = [f"{row.attempt}, from step {row.resume_step}", *changed]
        words += [f"{counted(num_lost, 'step')} lost"] if num_lost else []
        words += [f"went back: {printable(one.reason, 60)}" for one in back]
        words += [printable(row.cause, 60) + why]
        found.append(Intervention(at, kind, "; ".join(words)))
    return found


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    names = [name for name in (*before, *after) if before.get(name) != after.get(name)]
    return [
        f"{name} {value_text(after[name])}" if name in after else f"{name} reverted"
        for name in dict.fromkeys(names)
    ]


def _title(
    run_name: str,
    attempts: Sequence["LineageRow"],
    branch: Sequence[StepRow],
    lost: Sequence[StepRow],
) -> str:
    last = branch[-1]
    begin = attempts[0].planned_at if attempts else branch[0].at
    wall, count = output.seconds(last.at - begin), max(len(attempts), len(_by_attempt(branch)))
    of_attempts = f"{count} attempt{'' if count == 1 else 's'}"
    overwritten = "" if not lost else ", grey: steps that a later attempt overwrote"
    return f"{run_name}: step {last.step} after {wall}, {of_attempts}{overwritten}"


def _draw(
    file: Path,
    title: str,
    changes: Sequence[Intervention],
    rows: tuple[Sequence[StepRow], Sequence[StepRow]],
) -> None:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
        from matplotlib.figure import Figure
        from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
    except ImportError as error:
        raise UserError(
            f"--plot: pictures are made with matplotlib, which is not installed ({error}); `pip install 'stoker[plot]'`"
        ) from error
    listed = _listed(changes)
    height = HEIGHT_INCHES + LISTED_INCHES * len(listed)
    figure = Figure(figsize=(WIDTH_INCHES, height), dpi=130)
    FigureCanvasAgg(figure)
    bottom = (0.75 + LISTED_INCHES * len(listed)) / height
    axes = figure.add_axes((0.075, bottom, 0.9, 1 - bottom - 0.65 / height))
    _draw_steps(axes, *rows)
    _draw_interventions(axes, changes, listed)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("perplexity (exp of the loss)")
    axes.set_title(title, loc="left", fontsize=11, pad=16)
    zone = datetime.now().astimezone().tzinfo
    axes.xaxis_date(zone)
    locator = AutoDateLocator(zone)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, zone))
    axes.grid(visible=True, which="major", color="#eeeeee", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for place, (number, change) in enumerate(listed.items()):
        y = (0.3 + LISTED_INCHES * (len(listed) - 1 - place)) / height
        text = f"{number:>3}  {change.text}"
        color = "#555555" if change.kind == "restart" else COLORS[change.kind]
        figure.text(0.075, y, text, fontsize=8, color=color, family="DejaVu Sans Mono")
    if len(listed) < len(changes):
        more = f"and {len(changes) - len(listed)} more: `stoker lineage`"
        figure.text(0.075, 0.1 / height, more, fontsize=8, color="#555555")
    figure.savefig(file)


def _listed(changes: Sequence[Intervention]) -> dict[int, Intervention]:
    """Return the interventions that are listed, by their number from 1: where there are too many, the weightiest and newest."""
    numbered = list(enumerate(changes, start=1))
    weights = list(COLORS)
    kept = sorted(numbered, key=lambda each: (weights.index(each[1].kind), -each[0]))[:MAX_LISTED]
    return dict(sorted(kept))


def _draw_steps(axes: Any, branch: Sequence[StepRow], lost: Sequence[StepRow]) -> None:
    for rows, color, width in ((lost, LOST, 0.9), (branch, LINE, 1.1)):
        for some in _by_attempt(rows).values():
            finite = [row for row in some if math.isfinite(row.loss or 0.0)]
            axes.plot(
                [row.at / DAY_SECONDS for row in finite],
                [math.exp(min(row.loss or 0.0, MAX_EXPONENT)) for row in finite],
                color=color,
                linewidth=width,
                marker="." if len(finite) == 1 else None,
                solid_joinstyle="round",
            )
    broken = [row.at for row in (*branch, *lost) if not math.isfinite(row.loss or 0.0)]
    if broken:
        axes.plot(
            [at / DAY_SECONDS for at in broken],
            [0.985] * len(broken),
            "x",
            color="#b00020",
            markersize=5,
            transform=axes.get_xaxis_transform(),
            label="loss not finite",
        )


def _by_attempt(rows: Iterable[StepRow]) -> dict[AttemptId, list[StepRow]]:
    found: dict[AttemptId, list[StepRow]] = {}
    for row in rows:
        found.setdefault(row.attempt, []).append(row)
    return found


def _draw_interventions(
    axes: Any, changes: Sequence[Intervention], listed: Mapping[int, Intervention]
) -> None:
    seen: dict[str, None] = {}
    for number, change in enumerate(changes, start=1):
        at = change.at / DAY_SECONDS
        label = None if change.kind in seen else change.kind
        seen[change.kind] = None
        is_restart = change.kind == "restart"
        axes.axvline(
            at,
            color=COLORS[change.kind],
            linewidth=0.9 if is_restart else 1.3,
            linestyle=":" if is_restart else "--",
            label=label,
            zorder=1,
        )
        if number in listed:
            axes.annotate(
                str(number),
                (at, 1.0),
                xycoords=axes.get_xaxis_transform(),
                xytext=(0, 3),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                color=COLORS[change.kind],
            )
    if axes.get_legend_handles_labels()[1]:
        axes.legend(loc="upper right", fontsize=8, framealpha=0.9)
