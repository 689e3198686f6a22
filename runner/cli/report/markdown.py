"""A report as Markdown. Text from outside makes no Markdown and no HTML of its own."""

from collections.abc import Iterator

from runner.cli import output
from runner.cli.report.document import Block, Chart, Items, ReportDocument, ReportTable, Timeline
from runner.cli.reports.logbook import plain_markdown
from runner.facts.wording import visible


def markdown(document: ReportDocument) -> str:
    """Write a report as Markdown."""
    lines = [f"# {_text(document.title)}"]
    for section in document.sections:
        lines += ["", f"## {_text(section.title)}"]
        for block in section.blocks:
            lines += ["", *_block(block)]
    return "\n".join([*lines, ""])


def _block(block: Block) -> Iterator[str]:
    match block:
        case str():
            yield _text(block)
        case Items():
            yield from (f"- {_text(text)}" for text in block.texts)
        case ReportTable():
            yield from _table(block)
        case Chart():
            yield from _chart(block)
        case Timeline():
            yield f"{len(block.rows)} attempts and {len(block.marks)} incidents, as a picture in the HTML report."


def _table(table: ReportTable) -> Iterator[str]:
    yield f"| {' | '.join(_text(name) or ' ' for name in table.columns)} |"
    yield f"|{'---|' * len(table.columns)}"
    for row in table.rows:
        yield f"| {' | '.join('<br>'.join(map(_text, cell.splitlines())) for cell in row)} |"
    if table.left_out:
        yield ""
        yield f"and {table.left_out} more"


def _chart(chart: Chart) -> Iterator[str]:
    yield f"{_text(chart.title)}:"
    yield ""
    for curve in chart.curves:
        (first, begin), (last, end) = curve.points[0], curve.points[-1]
        values = [value for _, value in curve.points]
        every = max(1, len(values) // 60)
        drawn = output.sparkline(values[::every])
        lost = "" if curve.is_kept else ", made again later"
        yield (
            f"- {_text(curve.label)}: steps {first:.0f} to {last:.0f}{lost}: {begin:.6g} to {end:.6g} `{drawn}`"
        )
    if chart.not_finite:
        steps = ", ".join(map(str, chart.not_finite[:20]))
        more = f" and {len(chart.not_finite) - 20} more" if len(chart.not_finite) > 20 else ""
        yield f"- NaN or infinite at steps {steps}{more}"


def _text(text: str) -> str:
    return plain_markdown(visible(text).replace("\n", " "))
