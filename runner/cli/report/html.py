"""A report as one HTML file: no script, nothing to load, every text escaped; a policy in its head forbids the rest."""

from collections.abc import Iterator
from html import escape

from runner.cli.report.charts import chart_svg, timeline_svg
from runner.cli.report.document import Block, Chart, Items, ReportDocument, ReportTable, Timeline
from runner.facts.wording import visible

_STYLE = """
:root { color-scheme: light dark; --text: #1b1b1b; --back: #ffffff; --line: #d5d5d5; --soft: #f4f4f4; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e4e4; --back: #16181b; --line: #3a3d42; --soft: #202327; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--text); background: var(--back); max-width: 1200px; margin: 2em auto;
  padding: 0 1em; }
table { border-collapse: collapse; margin: 0.6em 0; }
td, th { border-bottom: 1px solid var(--line); padding: 0.25em 0.7em 0.25em 0; text-align: left; vertical-align: top;
  white-space: pre-line; overflow-wrap: anywhere; }
th { background: var(--soft); }
.scroll { overflow-x: auto; }
svg { width: 100%; height: auto; margin: 0.6em 0; }
svg text { font: 11px system-ui, sans-serif; fill: var(--text); }
svg .grid { stroke: var(--line); stroke-width: 0.6; fill: none; }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def html(document: ReportDocument) -> str:
    """Write a report as HTML."""
    title = _text(document.title)
    body = [f"<h1>{title}</h1>"]
    for section in document.sections:
        body.append(f"<section><h2>{_text(section.title)}</h2>")
        for block in section.blocks:
            body += _block(block)
        body.append("</section>")
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title><style>{_STYLE}</style>'
    )
    lines = "\n".join(body)
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{lines}\n</body></html>\n'
    )


def _block(block: Block) -> Iterator[str]:
    match block:
        case str():
            yield f"<p>{_text(block)}</p>"
        case Items():
            yield "<ul>"
            yield from (f"<li>{_text(text)}</li>" for text in block.texts)
            yield "</ul>"
        case ReportTable():
            yield from _table(block)
        case Chart():
            yield chart_svg(block)
        case Timeline():
            yield timeline_svg(block)


def _table(table: ReportTable) -> Iterator[str]:
    yield '<div class="scroll"><table>'
    if any(table.columns):
        yield f"<tr>{''.join(f'<th>{_text(name)}</th>' for name in table.columns)}</tr>"
    for row in table.rows:
        yield f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>"
    yield "</table></div>"
    if table.left_out:
        yield f"<p>and {table.left_out} more</p>"


def _text(text: str) -> str:
    return escape(visible(text), quote=True)
