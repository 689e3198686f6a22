"""The runbooks in effect as pages: Markdown to HTML, with any HTML in it as text. They need no script."""

import html
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

from runner.load.runbooks import Page, ladder_lines, load_pages

_FRAME = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="/static/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/page.css">
</head>
<body>
<a class="skip" href="#main">Skip to content</a>
<header class="top"><nav aria-label="Pages"><a href="/">Overview</a> <a href="/runbooks">Runbooks</a></nav></header>
<main id="main" class="prose">
{body}
</main>
</body>
</html>
"""


def list_page(site: str) -> str:
    """Return the page that lists the runbooks. Raises SpecError for a page of the site that is wrong."""
    rows = "".join(_row(page) for page in load_pages(site=site).values())
    body = f"<h1>Runbooks</h1>\n<ul class='plain'>{rows}</ul>"
    return _FRAME.format(title="Runbooks", body=body)


def page_of(name: str, site: str) -> str | None:
    """Return the page of a runbook, by its name or by a fault that it answers; None for an unknown one. Raises SpecError."""
    pages = load_pages(site=site)
    page = pages.get(name) or next((p for p in pages.values() if name in _faults(p)), None)
    if page is None:
        return None
    ladder = "" if page.runbook is None else _ladder(page)
    body = f"{ladder}\n{_rendered(page.prose, pages)}"
    return _FRAME.format(title=html.escape(page.title), body=body)


def _faults(page: Page) -> tuple[str, ...]:
    return page.runbook.faults if page.runbook is not None else ()


def _row(page: Page) -> str:
    answers = ", ".join(_faults(page)) or "by hand"
    name, title = html.escape(page.name), html.escape(page.title)
    return (
        f"<li><a href='/runbooks/{name}'>{title}</a> <small>{html.escape(answers)}</small></li>\n"
    )


def _ladder(page: Page) -> str:
    assert page.runbook is not None
    lines = html.escape("\n".join(ladder_lines(page.runbook)))
    return f"<section aria-label='What Stoker does'><pre>{lines}</pre></section>"


def _rendered(prose: str, pages: dict[str, Page]) -> str:
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = parser.parse(prose)
    for token in tokens:
        for child in token.children or ():
            if child.type == "link_open":
                _aim(child, pages)
    return str(parser.renderer.render(tokens, parser.options, {}))


def _aim(link: Token, pages: dict[str, Page]) -> None:
    """Point a link at the page here that it means; one to a file that is not served becomes text."""
    target = str(link.attrs.get("href", ""))
    stem = Path(target).stem
    if target.startswith("https://"):
        link.attrSet("rel", "noreferrer")
    elif target.endswith(".md") and "/" not in target and stem in pages:
        link.attrSet("href", f"/runbooks/{stem}")
    else:
        del link.attrs["href"]
