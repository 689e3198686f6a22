"""`stoker runbook`: the pages in effect, those of the cluster's site included."""

from collections.abc import Callable

import click

from runner.cli import output
from runner.cli.clusters import find_cluster
from runner.cli.options import cluster_option, command, json_option
from runner.errors import UserError
from runner.facts import wire
from runner.facts.specs.runbook import Runbook
from runner.facts.wording import known_words
from runner.load.runbooks import Page, ladder_lines, load_pages


@command(
    "stoker runbook                 the pages, and the faults that each answers",
    "stoker runbook gpu_lost        the page that answers a fault, or has this name",
    "stoker runbook --json",
)
@click.argument("fault", required=False)
@cluster_option
@json_option
def runbook(fault: str | None, where: str | None, *, as_json: bool) -> None:
    """List the runbooks in effect, or print the page of a fault: its ladder, and what to do by hand."""
    pages = load_pages(site=_site(where))
    if fault is None:
        listed = [_plain(page) for page in pages.values()]
        output.print_answer(listed, output.table(COLUMNS, pages.values()), as_json=as_json)
        return
    page = _page_of(fault, pages)
    output.print_answer(_plain(page) | {"text": page.text}, _printed(page), as_json=as_json)


def _site(where: str | None) -> str:
    """Return the folder of the cluster's own pages; without a cluster here, none."""
    try:
        return find_cluster(where).runbooks_folder
    except UserError:
        if where is not None:
            raise
        return ""


def _page_of(fault: str, pages: dict[str, Page]) -> Page:
    by_fault = {
        name: page
        for page in pages.values()
        for name in (page.runbook.faults if page.runbook is not None else ())
    }
    known = {**by_fault, **pages}
    if fault not in known:
        raise UserError(f"no fault or runbook {fault!r}; {known_words(fault, list(known))}")
    return known[fault]


def _plain(page: Page) -> dict[str, object]:
    plain: dict[str, object] = {"name": page.name, "title": page.title, "file": page.file}
    if page.runbook is not None:
        plain |= {"runbook": wire.to_plain(page.runbook)}
    return plain


COLUMNS: dict[str, Callable[[Page], str]] = {
    "page": lambda page: page.name,
    "does": lambda page: _verbs(page.runbook),
    "answers": lambda page: ", ".join(page.runbook.faults) if page.runbook else "(by hand)",
}


def _verbs(book: Runbook | None) -> str:
    return ", ".join(dict.fromkeys(rung.do for rung in book.ladder)) if book is not None else "-"


def _printed(page: Page) -> str:
    """Return the page as people read it: the ladder first, then the prose below the front matter."""
    ladder = [] if page.runbook is None else ladder_lines(page.runbook)
    return "\n".join([f"{page.name} ({page.file})", *ladder, "", page.prose])
