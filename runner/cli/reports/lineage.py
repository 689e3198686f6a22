"""`stoker lineage`: the tree of a run's attempts, and the run in figures."""

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from runner.cli import clusters, output
from runner.cli.options import cluster_option, command, json_option
from runner.cli.reports.past import journal_option, past_entries
from runner.errors import UserError
from runner.facts.remedies import remedies_text
from runner.facts.wording import counted, join_words, known_words, printable

if TYPE_CHECKING:
    from runner.facts.messages.records import JournalEntry
    from runner.history.lineage import LineageRow
    from runner.history.run_figures import FailureClass, RunFigures
    from runner.steps import StepRow

ATTEMPT_COLUMNS: dict[str, Callable[["LineageRow"], str]] = {
    "attempt": lambda row: str(row.attempt),
    "from": lambda row: str(row.parent or "-"),
    "at step": lambda row: str(row.resume_step),
    "reached": lambda row: output.count(row.last_step),
    "steps kept": lambda row: "{}-{}".format(*row.contributes) if row.contributes else "none",
    "nodes": lambda row: ",".join(row.nodes),
    "start": lambda row: output.seconds(row.start_seconds),
    "ended": lambda row: row.outcome or "-",
    "cause": lambda row: printable(row.cause, 60) + (f" ({row.incident})" if row.incident else ""),
    "remedies": lambda row: printable(remedies_text(row.remedies)) or "-",
}
FAILURE_COLUMNS: dict[str, Callable[["FailureClass"], str]] = {
    "failures": lambda each: each.scope,
    "count": lambda each: str(each.count),
    "MTBF": lambda each: output.seconds(each.mtbf_seconds),
    "95 % interval": lambda each: (
        f"{output.seconds(each.least_seconds)} to {output.seconds(each.most_seconds)}"
        if each.most_seconds is not None
        else f"more than {output.seconds(each.least_seconds)}"
    ),
    "faults": lambda each: join_words(each.faults, most=4) or "-",
}


@command(
    "stoker lineage tiny --rate 2.5    what it cost at 2.5 per GPU and hour",
    "stoker lineage --json | jq '.[-1].remedies'",
    "stoker lineage tiny --figures --json | jq .ettr_ratio",
    "stoker lineage tiny --plot tiny.png",
)
@click.argument("run", required=False)
@click.option(
    "--rate",
    "rate_per_hour",
    type=click.FloatRange(min=0),
    metavar="PRICE",
    help="Price of one rank (usually one GPU) for an hour: what the run and its lost time cost.",
)
@click.option("--figures", "only_figures", is_flag=True, help="Only the figures, no attempts.")
@click.option(
    "--plot",
    "plot_file",
    metavar="FILE",
    help="Draw perplexity over wall-clock time, with what was done to the run, as .png, .svg or .pdf.",
)
@journal_option
@cluster_option
@json_option
def lineage(  # noqa: PLR0913 - click hands over each option
    run: str | None,
    *,
    rate_per_hour: float | None,
    only_figures: bool,
    plot_file: str | None,
    copy: Path | None,
    where: str | None,
    as_json: bool,
) -> None:
    """List a run's attempts: their parent, the steps they contribute, and how they ended.

    `steps kept` are those that no later attempt overwrote: together they are the run's state. In the tree `*` marks attempts with
    such steps, `o` the others; a branch that was left behind stands further in. Below it: the longest stretches without
    interruption, the mean time between failures, lost steps and seconds, and with --rate what they cost.
    """
    from runner.history.lineage import lineage as trace
    from runner.history.run_figures import run_figures

    entries = list(past_entries(where, copy))
    number = _picked(entries, run) if copy is not None else _picked_here(where, run)
    rows = trace(entries, number)
    if plot_file is not None:
        output.print_note(_draw(plot_file, entries, rows, _kept_rows(where, copy, number)))
    # A run whose beginning is in files that cannot be seen from here has neither rows nor figures.
    figures = run_figures(entries, number, rate_per_hour) if rows else None
    if only_figures and figures is None:
        raise UserError(
            f"the journal that can be read here does not have the beginning of run {number}"
        )
    if as_json:
        output.print_json(figures if only_figures else rows)
        return
    if not only_figures:
        output.print_text(_tree(rows) + _conditions(rows))
    if figures is not None:
        output.print_text(f"\n{_figures_text(figures)}")


def _draw(
    plot_file: str,
    entries: Sequence["JournalEntry"],
    attempts: Sequence["LineageRow"],
    steps: Sequence["StepRow"],
) -> str:
    from runner.cli.reports.plot import Rewound, plot
    from runner.facts.messages.records import RunAdmitted
    from runner.facts.messages.records_checkpoints import RunRewound

    runs = [row.attempt.run for row in attempts][:1] or [row.attempt.run for row in steps][:1]
    rewinds, name = list[Rewound](), str(*runs)
    for entry in entries:
        for record in entry.records:
            if isinstance(record, RunRewound) and record.run in runs:
                rewinds.append(Rewound(entry.now, record.rewind.step, record.reason))
            elif isinstance(record, RunAdmitted) and record.run in runs:
                name = record.spec.name
    return plot(plot_file, name, attempts, steps, rewinds)


def _kept_rows(where: str | None, copy: Path | None, run: int) -> Sequence["StepRow"]:
    """Return the step history of a run: the cluster's, or the one beside a copied journal. Raises UserError without any."""
    from runner.cli.reports.steps import kept_rows
    from runner.steps import folder_beside, read

    if copy is None:
        return kept_rows(clusters.find_cluster(where), run)
    folders = [folder_beside(copy), folder_beside(copy / "journal"), folder_beside(copy.parent)]
    for folder in folders:
        if folder.is_dir():
            return read(folder, run)
    raise UserError(
        f"--plot: beside the copied journal {copy} there is no step history; copy the folder {folders[0].name!r} of the journal's "
        "folder, too"
    )


def _picked_here(where: str | None, run: str | None) -> int:
    with clusters.open_cluster(where, only_reads=True) as (cluster, store):
        return clusters.pick_run(clusters.require_status(store, cluster), run).run


def _picked(entries: Sequence["JournalEntry"], run: str | None) -> int:
    """Return the number of the newest run of that name or number in a copied journal, or of its only one."""
    from runner.facts.messages.records import RunAdmitted

    admitted = (d for entry in entries for d in entry.records if isinstance(d, RunAdmitted))
    names = {record.run: record.spec.name for record in admitted}
    found = [number for number, name in names.items() if run in (None, name, str(number))]
    if not found or (run is None and len(found) > 1):
        which = f"no run {run!r} in this journal" if run is not None else "which run?"
        raise UserError(f"{which}; {known_words(run or '', names.values())}")
    return found[-1]


def _tree(rows: Sequence["LineageRow"]) -> str:
    from runner.history.run_figures import branches

    drawn = branches(rows)
    return output.table({**ATTEMPT_COLUMNS, "tree": lambda row: drawn[row.attempt]}, rows)


def _conditions(rows: Sequence["LineageRow"]) -> str:
    """Say what the attempts run with: a line for each stretch of attempts with the same."""
    from runner.cli.reports.tables import runs_with_in_words

    known = [row for row in rows if row.runs_with]
    lines = ["\n"] if known else []
    for _, group in itertools.groupby(known, key=lambda row: row.runs_with):
        alike = list(group)
        first, last = alike[0].attempt, alike[-1].attempt
        which = str(first) if first == last else f"{first} to {last}"
        lines.append(f"{which} ran with {runs_with_in_words(alike[0].runs_with)}")
    return "\n".join(lines)


def _figures_text(figures: "RunFigures") -> str:
    lost = ", ".join(f"{c} {output.seconds(s)}" for c, s in figures.lost_seconds.items())
    lines = [
        f"{figures.name}: {output.seconds(figures.wall_seconds)}, ETTR {output.ratio(figures.ettr_ratio)}, "
        f"{counted(figures.steps, 'step')} kept, {counted(figures.lost_steps, 'step')} lost",
        f"lost: {lost or 'nothing'}",
    ]
    lines += [
        f"uninterrupted: {each.attempt} {output.seconds(each.seconds)}, steps {each.first_step}-{each.last_step}"
        for each in figures.longest
    ]
    if figures.cost is not None:
        share = f", {figures.lost_cost:.2f} of it lost"
        lines.append(f"cost: {figures.cost:.2f} for {figures.rank_hours:.2f} rank hours{share}")
    return "\n".join([*lines, "", output.table(FAILURE_COLUMNS, figures.failures)])
