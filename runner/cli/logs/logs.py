"""`stoker logs`: the output of a run's ranks."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

import click

from runner.cli import clusters, output
from runner.cli.foreground.status_feed import StatusFeed
from runner.cli.logs.attempt_output import (
    Chosen,
    attempt_to_show,
    elsewhere,
    files_here,
    ranks_by_attempt,
    unknown_choice,
)
from runner.cli.logs.follower import OutputFollower
from runner.cli.logs.kept_output import print_kept
from runner.cli.logs.output_lines import OutputFile
from runner.cli.options import cluster_option, command, json_option
from runner.cli.reports.past import journal_entries
from runner.errors import UserError
from runner.facts.ids import AttemptId
from runner.facts.messages.cluster_status import RunStatus
from runner.facts.specs.cluster import ClusterSpec
from runner.store.protocol import Store

# Of each file, where a follower begins; chosen.
FOLLOWED_LINES = 10


class _Form(NamedTuple):
    """How lines are printed. `has_prefix`: several ranks are shown."""

    as_json: bool
    has_prefix: bool


@command(
    "stoker logs                     all output of the newest attempt",
    "stoker logs -f --rank 0         follow one rank, over restarts, to the end of the run",
    "stoker logs --attempt 1.1.0 -n 20",
    "stoker logs --incident i1       the lines and stacks that were kept with an incident, wherever they were written",
)
@click.argument("run", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on with what is written, over restarts.")
@click.option("--rank", "ranks", type=click.IntRange(min=0), multiple=True, help="Only this rank.")
@click.option("--node", help="Only the ranks of this node.")
@click.option("--attempt", metavar="1.1.0", help="This attempt. Default: the newest.")
@click.option("--incident", metavar="I1", help="What was kept with this incident.")
@click.option(
    "-n",
    "--lines",
    "num_lines",
    type=click.IntRange(min=1),
    metavar="N",
    help="Only the last lines of each file. Default: all; with -f 10.",
)
@cluster_option
@json_option
def logs(  # noqa: PLR0913 - one for each option
    run: str | None,
    *,
    follow: bool,
    ranks: tuple[int, ...],
    node: str | None,
    attempt: str | None,
    incident: str | None,
    num_lines: int | None,
    where: str | None,
    as_json: bool,
) -> None:
    """Show what a run's ranks wrote to standard output and standard error.

    Without RUN: the only live run, or else the newest. Several ranks have `[rank N]` before each line; the files of one rank after
    the other, as they have no times, and with -f in the order in which lines are written. Colours are left out; of a progress bar
    its last state is shown. Output stays on its node: for ranks of other machines the path there is printed.
    """
    with clusters.open_cluster(where, only_reads=True) as (cluster, store):
        status = clusters.require_status(store, cluster)
        if incident is not None:
            if follow or ranks or node or attempt:
                raise UserError("--incident: shows all that was kept; leave the other options out")
            found = {one.incident: one for one in status.incidents}
            known = clusters.pick(found, incident, f"incident {incident!r}")
            print_kept(journal_entries(store, cluster), known, status.runs, as_json=as_json)
            return
        found_run = clusters.newest_run(status, run)
        is_needed = bool(node or ranks or attempt)
        find_nodes = partial(_nodes, store, cluster, found_run, is_needed=is_needed)
        chosen = Chosen(
            run=found_run,
            attempt=_attempt_id(attempt),
            ranks=ranks,
            node=node,
            nodes=find_nodes(),
        )
        form = _Form(as_json, has_prefix=len(ranks) != 1)
        if follow:
            if attempt is not None:
                raise UserError("--attempt: -f follows the newest attempt; leave one of them out")
            feed = StatusFeed(store, cluster, output.print_note)
            follower = OutputFollower(feed, chosen, find_nodes, num_lines or FOLLOWED_LINES)
            for one, file, line in follower.lines():
                _print_line(form, one, file, line)
            return
        _print_files(form, chosen, num_lines)


def _attempt_id(text: str | None) -> AttemptId | None:
    try:
        return None if text is None else AttemptId.parse(text)
    except ValueError as error:
        raise UserError(f"--attempt: {error}") from error


def _nodes(
    store: Store, cluster: ClusterSpec, run: RunStatus, *, is_needed: bool
) -> Mapping[AttemptId, Mapping[int, str]]:
    """Return the node of each rank; {} where all output is on this machine, and no option needs it."""
    if not is_needed and cluster.local.nodes > 0 and not cluster.spans_machines:
        return {}
    return ranks_by_attempt(journal_entries(store, cluster), run.run)


def _print_files(form: _Form, chosen: Chosen, num_lines: int | None) -> None:
    attempt = attempt_to_show(chosen)
    wrong = unknown_choice(chosen, attempt)
    if wrong:
        raise UserError(wrong)
    files = files_here(chosen, attempt)
    if not form.as_json:
        output.print_note(f"attempt {attempt} of run {chosen.run.run} {chosen.run.name}")
    has_lines = False
    for file in files:
        for line in _lines_of(file, num_lines):
            has_lines = True
            _print_line(form, attempt, file, line)
    missing = list(elsewhere(chosen, attempt, [file.rank for file in files]))
    for text in missing:
        output.print_note(text)
    if not has_lines and not missing:
        output.print_note("its ranks have written nothing")


def _lines_of(file: OutputFile, num_lines: int | None) -> Iterator[str]:
    if num_lines is not None:
        file.seek_last_lines(num_lines)
    else:
        # What the agent cut off, so that the file keeps within its limit.
        older = OutputFile(file.path.with_name(f"{file.path.name}.1"), file.rank, file.stream)
        yield from older.read(is_last=True)
    yield from file.read(is_last=True)


def _print_line(form: _Form, attempt: AttemptId, file: OutputFile, line: str) -> None:
    if form.as_json:
        output.print_json(
            {"attempt": attempt, "rank": file.rank, "stream": file.stream, "line": line}
        )
        return
    prefix = ""
    if form.has_prefix:
        prefix = f"[rank {file.rank}{'' if file.stream == 'out' else ' err'}] "
    output.print_text(f"{prefix}{line}")
