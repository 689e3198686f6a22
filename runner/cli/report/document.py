"""A report in sections, for any format: paragraphs, lists, tables and charts. It says nothing about how they are written."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from runner.cli import output
from runner.cli.foreground.summary import CAUSE_NAMES
from runner.cli.nodes.details import verdict_text
from runner.cli.report.content import RunReport
from runner.cli.report.redaction import Redaction
from runner.cli.reports.forecasts import deadline_in_words, end_in_words, spending_in_words
from runner.cli.reports.plot import interventions
from runner.facts.ids import AttemptId
from runner.facts.remedies import remedies_text
from runner.facts.wording import counted, join_words, printable
from runner.history.lineage import LineageRow
from runner.history.logbook import LogbookEntry
from runner.steps import StepRow, contributing

# Rows of one table; the file names how many there are more. Chosen: a post-mortem is read by people.
MAX_ROWS = 500
# Pieces of one cell of the table of interventions.
MAX_PIECES = 12
MAX_EVIDENCE_CHARACTERS = 300
# Columns of a step history that have a chart, and their names.
CURVES = {
    "loss": "loss",
    "validation_loss": "validation loss",
    "grad_norm": "gradient norm",
    "tokens_per_second": "tokens per second",
    "lr": "learning rate",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportTable:
    """Cells are texts from anywhere. `left_out`: rows that are not in it."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """A list of texts."""

    texts: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptCurve:
    """Points of one attempt, by step; values are finite. `is_kept`: they are part of the run's state."""

    label: str
    points: Sequence[tuple[float, float]]
    is_kept: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Curves over steps. `not_finite`: steps whose value was NaN or infinite."""

    title: str
    curves: Sequence[AttemptCurve]
    not_finite: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineSpan:
    """A piece of time on a row: from and to in seconds, and what it is ("start", "steps", "lost steps")."""

    row: int
    begin: float
    end: float
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Attempts over time, one row each, oldest first, and moments of incidents."""

    rows: Sequence[str]
    spans: Sequence[TimelineSpan]
    marks: Sequence[tuple[float, str]]
    begin: float
    end: float


Block = str | Items | ReportTable | Chart | Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSection:
    """A heading and the text below it."""

    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportDocument:
    """A whole report."""

    title: str
    sections: Sequence[ReportSection]


def document(report: RunReport, *, with_paths: bool) -> ReportDocument:
    """Say a report in sections; what must not leave is removed."""
    redaction = Redaction(report.spec.environment, with_paths=with_paths)
    clean = redaction.text
    sections = [
        _at_a_glance(report, clean, with_paths=with_paths),
        _lost_time(report),
        _timeline(report, clean),
        _curves(report),
        _interventions(report, clean),
        _failures(report),
        _hardware(report, clean),
        ReportSection(title="What would have helped", blocks=[Items(texts=report.advice)]),
    ]
    return ReportDocument(title=f"Run {report.run} {report.spec.name}", sections=sections)


def _at_a_glance(
    report: RunReport, clean: Callable[[str], str], *, with_paths: bool
) -> ReportSection:
    spec, summary, figures = report.spec, report.summary, report.figures
    rows = [
        ("state", clean(f"{report.state}{output.because(report.reason)}")),
        ("cluster", report.cluster),
        ("started by", printable(report.user, 60) or "-"),
        ("from", output.moment(report.begun_at)),
        ("as of", output.moment(report.as_of)),
        ("gang", f"{counted(spec.nodes, 'node')} x {counted(spec.ranks_per_node, 'rank')}"),
        ("wall time", _exact(summary.wall_seconds)),
        ("productive", _exact(summary.productive_seconds)),
        ("lost", _exact(sum(summary.lost_seconds.values()))),
        ("ETTR", output.ratio(summary.ettr_ratio)),
        ("steps kept", str(figures.steps)),
        ("steps lost", str(figures.lost_steps)),
        ("attempts", str(summary.num_attempts)),
        ("used", spending_in_words(report.spending)),
    ]
    if not summary.ended:
        rows.append(("end", end_in_words(report.forecast, report.as_of)))
    deadline = deadline_in_words(report.forecast, report.as_of)
    rows.append(("deadline", deadline.removeprefix("deadline ") or "none"))
    if with_paths:
        rows.append(("started in", spec.working_directory))
    blocks: list[Block] = [ReportTable(columns=("", ""), rows=rows)]
    if not figures.steps:
        blocks.append(
            "No step of this run is part of its state: ETTR, curves and an end cannot be given. What it did until then is below."
        )
    if report.notes:
        blocks.append(Items(texts=[clean(note) for note in report.notes]))
    return ReportSection(title="At a glance", blocks=blocks)


def _exact(seconds: float) -> str:
    """Write a duration for people and, for sums, in seconds."""
    return f"{output.seconds(seconds)} ({seconds:.0f} s)"


def _lost_time(report: RunReport) -> ReportSection:
    summary = report.summary
    rows = [
        (CAUSE_NAMES.get(cause, cause), cause, _exact(seconds), _share(seconds, report))
        for cause, seconds in sorted(summary.lost_seconds.items(), key=lambda item: -item[1])
    ]
    rows.append(
        (
            "steps that count",
            "productive",
            _exact(summary.productive_seconds),
            _share(summary.productive_seconds, report),
        )
    )
    table = ReportTable(columns=("what", "cause", "time", "share"), rows=rows)
    return ReportSection(
        title="Where the time went", blocks=["By the ledger; together it is the wall time.", table]
    )


def _share(seconds: float, report: RunReport) -> str:
    wall = report.summary.wall_seconds
    return f"{seconds / wall:.1%}" if wall > 0 else "-"


def _timeline(report: RunReport, clean: Callable[[str], str]) -> ReportSection:
    spans = []
    for number, row in enumerate(report.attempts):
        ended = row.ended_at if row.ended_at is not None else report.as_of
        first = row.first_step_at if row.first_step_at is not None else ended
        kind = "steps" if row.contributes is not None else "lost steps"
        spans.append(TimelineSpan(row=number, begin=row.planned_at, end=first, kind="start"))
        if first < ended:
            spans.append(TimelineSpan(row=number, begin=first, end=ended, kind=kind))
    marks = [
        (entry.at, f"{entry.id} {printable(entry.what, 60)}")
        for entry in report.interventions
        if entry.kind == "incident"
    ]
    drawing = Timeline(
        rows=[str(row.attempt) for row in report.attempts],
        spans=spans,
        marks=marks,
        begin=report.begun_at,
        end=max(
            report.as_of
            if not report.summary.ended
            else report.begun_at + report.summary.wall_seconds,
            report.begun_at + 1,
        ),
    )
    rows = [_attempt_row(row, clean) for row in report.attempts]
    columns = (
        "attempt",
        "from",
        "at step",
        "reached",
        "steps kept",
        "nodes",
        "start",
        "ended",
        "cause",
        "remedies",
    )
    blocks: list[Block] = [drawing] if rows else ["No attempt was ever planned."]
    blocks.append(_table(columns, rows))
    return ReportSection(title="Timeline", blocks=blocks)


def _attempt_row(row: LineageRow, clean: Callable[[str], str]) -> tuple[str, ...]:
    kept = "{}-{}".format(*row.contributes) if row.contributes else "none"
    why = f" ({row.incident})" if row.incident else ""
    return (
        str(row.attempt),
        str(row.parent or "-"),
        str(row.resume_step),
        output.count(row.last_step),
        kept,
        join_words(row.nodes, most=8),
        output.seconds(row.start_seconds),
        row.outcome or "-",
        clean(printable(row.cause, MAX_EVIDENCE_CHARACTERS)) + why,
        clean(printable(remedies_text(row.remedies))) or "-",
    )


def _curves(report: RunReport) -> ReportSection:
    ranges = {row.attempt: row.contributes for row in report.attempts if row.contributes}
    kept = {(row.attempt, row.step) for row in contributing(report.steps, ranges or None)}
    charts: list[Block] = []
    for column, title in CURVES.items():
        chart = _chart(title, column, report.steps, kept)
        if chart is not None:
            charts.append(chart)
    changes = [
        f"{output.moment(one.at)} {one.kind}: {one.text}" for one in interventions(report.attempts)
    ]
    if not charts:
        return ReportSection(
            title="Curves",
            blocks=["No numbers of its steps are known: no rank has reported or printed any."],
        )
    legend = "A curve for each attempt, over steps; in grey what a later attempt made again."
    blocks: list[Block] = [legend, *charts]
    if changes:
        redaction = Redaction(report.spec.environment, with_paths=False)
        blocks += [
            "What began each later attempt:",
            Items(texts=[*map(redaction.text, changes[:MAX_ROWS])]),
        ]
    return ReportSection(title="Curves", blocks=blocks)


def _chart(
    title: str, column: str, rows: Sequence[StepRow], kept: set[tuple[AttemptId, int]]
) -> Chart | None:
    curves: dict[tuple[str, bool], list[tuple[float, float]]] = {}
    not_finite: dict[int, None] = {}
    for row in rows:
        value = getattr(row, column)
        if value is None:
            continue
        if not math.isfinite(value):
            not_finite[row.step] = None
            continue
        key = (str(row.attempt), (row.attempt, row.step) in kept)
        curves.setdefault(key, []).append((float(row.step), float(value)))
    if not curves and not not_finite:
        return None
    drawn = [
        AttemptCurve(label=label, points=sorted(points), is_kept=is_kept)
        for (label, is_kept), points in sorted(curves.items(), key=lambda each: each[0][1])
    ]
    return Chart(title=title, curves=drawn, not_finite=[*not_finite])


def _interventions(report: RunReport, clean: Callable[[str], str]) -> ReportSection:
    def cell(texts: Iterable[str]) -> str:
        every = [clean(printable(text, MAX_EVIDENCE_CHARACTERS)) for text in texts]
        more = [f"and {len(every) - MAX_PIECES} more"] if len(every) > MAX_PIECES else []
        return "\n".join([*every[:MAX_PIECES], *more])

    def row(entry: LogbookEntry) -> tuple[str, ...]:
        lost = "" if entry.lost_seconds is None else _exact(entry.lost_seconds)
        steps = "" if entry.lost_steps is None else f", {counted(entry.lost_steps, 'step')}"
        return (
            output.moment(entry.at),
            f"{entry.kind} {entry.id}".strip(),
            str(entry.attempt or "-"),
            cell([entry.what, *entry.evidence]),
            cell(f"{deed.by}: {deed.what}" for deed in entry.done),
            cell([*entry.came_of_it, *([entry.state] if entry.state else [])]),
            f"{lost}{steps}" or "-",
        )

    columns = (
        "when",
        "what",
        "attempt",
        "what happened, evidence",
        "done, by",
        "outcome",
        "lost",
    )
    rows = [row(entry) for entry in report.interventions]
    blocks: list[Block] = [
        "Incidents, what people asked for, and notes; those that ended the same attempt have its cost each.",
        _table(columns, rows),
    ]
    return ReportSection(title="Interventions", blocks=blocks if rows else ["There was none."])


def _failures(report: RunReport) -> ReportSection:
    rows = [
        (
            each.scope,
            str(each.count),
            output.seconds(each.mtbf_seconds),
            output.seconds(each.least_seconds),
            output.seconds(each.most_seconds),
            join_words(each.faults, most=8) or "-",
        )
        for each in report.figures.failures
    ]
    columns = ("failures", "count", "MTBF", "at least", "at most", "faults")
    return ReportSection(
        title="Failures",
        blocks=["The mean time between failures has a 95 % interval.", _table(columns, rows)],
    )


def _hardware(report: RunReport, clean: Callable[[str], str]) -> ReportSection:
    rows = []
    for each in report.hardware:
        faults = [
            f"{output.moment(one.at)} {one.fault} as {one.node}{output.because(one.evidence)}"
            for one in each.faults[-MAX_PIECES:]
        ]
        rows.append(
            (
                "return it" if each.verdict else "watch it",
                printable(each.hardware, 200),
                join_words([printable(part, 80) for part in each.parts], most=16) or "-",
                join_words([printable(name, 60) for name in each.node_names]),
                clean(verdict_text(each)),
                clean("\n".join([*map(printable, each.behind), *faults])) or "-",
            )
        )
    if not rows:
        return ReportSection(
            title="Hardware to return",
            blocks=["None that served this run has faults or is refused."],
        )
    columns = ("", "hardware", "parts", "node names", "verdict", "evidence")
    return ReportSection(title="Hardware to return", blocks=[_table(columns, rows)])


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> ReportTable:
    return ReportTable(columns=columns, rows=rows[:MAX_ROWS], left_out=max(0, len(rows) - MAX_ROWS))
