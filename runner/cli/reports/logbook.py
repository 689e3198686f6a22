"""`stoker logbook`: what a team writes by hand, from the journal, as Markdown."""

import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from runner.cli import output
from runner.cli.options import cluster_option, command, json_option
from runner.cli.reports.past import journal_option, past_entries
from runner.errors import UserError
from runner.facts.wording import counted, known_words
from runner.history.logbook import (
    MAX_PIECES,
    Deed,
    Logbook,
    LogbookEntry,
    PieceList,
    RunChapter,
)
from runner.history.logbook import logbook as write_logbook


@command(
    "stoker logbook tiny > logbook.md",
    "stoker logbook --journal copies/tiny --json | jq '.entries[].what'",
)
@click.argument("run", required=False)
@journal_option
@cluster_option
@json_option
def logbook(run: str | None, copy: Path | None, where: str | None, *, as_json: bool) -> None:
    """Write the logbook of a run: incidents and interventions, what was done, and what came of it.

    One section each, as Markdown: when, which attempt, what happened, the evidence, what was done and who did it, what came of it,
    the seconds and steps it cost. RUN is a name or a number; without it, all runs are in it. No supervisor is needed.
    """
    try:
        book = write_logbook(past_entries(where, copy), run=run)
    except KeyError as error:
        raise UserError(
            f"no run {run!r} in this journal; {known_words(run or '', error.args)}"
        ) from error
    if as_json:
        output.print_json(book)
        return
    for line in markdown(book):
        output.print_text(line)


def markdown(book: Logbook) -> Iterator[str]:
    """Return the lines of a logbook as Markdown."""
    names = {chapter.run: chapter.name for chapter in book.runs}
    yield f"# Logbook of {', '.join(names.values()) or 'a cluster without runs'}"
    yield ""
    yield f"Times are {time.strftime('%Z')}."
    for chapter in book.runs:
        yield ""
        yield _summary(chapter)
    for entry in book.entries:
        yield ""
        yield from _section(entry, names)


def _summary(chapter: RunChapter) -> str:
    figures = [
        f"begun {output.moment(chapter.begun_at)}",
        f"{chapter.state} after {output.seconds(chapter.wall_seconds)}",
        counted(chapter.num_attempts, "attempt"),
        f"ETTR {output.ratio(chapter.ettr_ratio)}",
        f"{output.seconds(chapter.lost_seconds)} lost",
    ]
    open_ones = ", ".join(chapter.open_incidents)
    sick = f" **It ended with {open_ones} still open.**" if open_ones else ""
    return f"Run {chapter.run} ({chapter.name}): {', '.join(figures)}.{sick}"


def _section(entry: LogbookEntry, names: dict[int, str]) -> Iterator[str]:
    yield f"## {output.moment(entry.at)} · {' · '.join(_head(entry, names))}"
    yield ""
    what = entry.what if entry.kind != "note" else f"{entry.by} notes: {entry.what}"
    yield f"{plain_markdown(what)}."
    if entry.evidence:
        yield ""
        yield "Evidence:"
        yield from _items(
            entry, "evidence", (f"`{line.replace('`', chr(39))}`" for line in entry.evidence)
        )
    if entry.done:
        yield ""
        yield "Done:"
        yield from _items(
            entry, "done", (f"{output.clock(deed.at)[:8]} {_deed(deed)}" for deed in entry.done)
        )
    if entry.came_of_it:
        yield ""
        yield "What came of it:"
        yield from _items(entry, "came_of_it", map(plain_markdown, entry.came_of_it))
    if entry.lost_seconds is not None:
        steps = "" if entry.lost_steps is None else f", {counted(entry.lost_steps, 'step')}"
        yield ""
        yield f"Lost: {output.seconds(entry.lost_seconds)}{steps}."


def _items(entry: LogbookEntry, name: PieceList, texts: Iterable[str]) -> Iterator[str]:
    """List the pieces of an entry, and where some are left out."""
    num_left_out = entry.left_out.get(name, 0)
    for index, text in enumerate(texts):
        if num_left_out and index == MAX_PIECES // 2:
            yield f"- ({num_left_out} more; `stoker story` has them all)"
        yield f"- {text}"


def _head(entry: LogbookEntry, names: dict[int, str]) -> Iterator[str]:
    if len(names) > 1 and entry.run in names:
        yield names[entry.run]
    if entry.attempt is not None:
        yield str(entry.attempt)
    yield f"{entry.kind} {entry.id}".strip()
    if entry.state:
        yield entry.state


def _deed(deed: Deed) -> str:
    what = plain_markdown(deed.what)
    return what if what.startswith(deed.by) else f"{deed.by}: {what}"


def plain_markdown(text: str) -> str:
    """Text from outside makes no Markdown of its own."""
    return "".join(f"\\{ch}" if ch in "\\`*<>[]|#" else ch for ch in text)
