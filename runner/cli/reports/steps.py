"""`stoker steps`: the numbers of a run, read from its step history."""

import csv
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from runner.cli import clusters, output
from runner.cli.options import cluster_option, command, json_option
from runner.errors import UserError
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.wire import to_plain

if TYPE_CHECKING:
    from runner.steps import StepRow

# Of a table; programs get all. Chosen.
ROWS_SHOWN = 20

STEP_COLUMNS: dict[str, Callable[["StepRow"], str]] = {
    "step": lambda row: str(row.step),
    "time": lambda row: output.moment(row.at),
    "attempt": lambda row: str(row.attempt),
    "loss": lambda row: output.number(row.loss, 6),
    "grad norm": lambda row: output.number(row.grad_norm),
    "activation norm": lambda row: output.number(row.activation_norm),
    "loss scale": lambda row: output.number(row.loss_scale, 6),
    "lr": lambda row: output.number(row.lr),
    "tok/s": lambda row: output.number(row.tokens_per_second),
    "validation loss": lambda row: output.number(row.validation_loss, 6),
    "data step": lambda row: "-" if row.data_step is None else f"{row.data_step:.0f}",
    "skipped": lambda row: "skipped" if row.skipped else "-",
}
ALWAYS = ("step", "time", "attempt", "loss")


@command("stoker steps tiny", "stoker steps tiny --range 900-1000 --csv > loss.csv")
@click.argument("run", required=False)
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Only the newest N rows.")
@click.option("--range", "wanted", metavar="FIRST-LAST", help="Only these steps.")
@click.option("--all", "with_all", is_flag=True, help="Also steps that a later attempt overwrote.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, with a line of names.")
@cluster_option
@json_option
def steps(  # noqa: PLR0913 - click hands over each option
    run: str | None,
    *,
    last: int | None,
    wanted: str | None,
    with_all: bool,
    as_csv: bool,
    where: str | None,
    as_json: bool,
) -> None:
    """Print the numbers of a run: loss, norms, learning rate and throughput of each step.

    They are kept beside the journal's files and outlive the supervisor. Of older steps some are left out, evenly. Without --last
    and --range, a table shows the newest 20 rows; JSON and CSV have all.
    """
    from runner.steps import contributing

    first, final = (None, None) if wanted is None else step_range(wanted)
    with clusters.open_cluster(where, only_reads=True) as (cluster, store):
        number = clusters.pick_run(clusters.require_status(store, cluster), run).run
    rows = kept_rows(cluster, number)
    rows = rows if with_all else contributing(rows)
    if first is not None and final is not None:
        rows = [row for row in rows if first <= row.step <= final]
    if last is None and wanted is None and not (as_json or as_csv):
        last = ROWS_SHOWN
    rows = rows if last is None else rows[-last:]
    if as_csv:
        _print_csv(rows)
        return
    text = "no step is known: no rank has reported one, or its supervisor was of an earlier release"
    if rows:
        text = output.table(
            STEP_COLUMNS, rows, optional=[name for name in STEP_COLUMNS if name not in ALWAYS]
        )
    output.print_answer([row._asdict() for row in rows], text, as_json=as_json)


def kept_rows(cluster: ClusterSpec, run: int) -> list["StepRow"]:
    """Return a run's step history, of all attempts, with a note for what is damaged. Raises StoreUnavailable if it is elsewhere."""
    from runner.serve.past import read_step_history

    history = read_step_history(cluster, run)
    for problem in history.damage:
        output.print_note(f"step history: {problem}; the rest is shown")
    return history.rows


def step_range(text: str) -> tuple[int, int]:
    """Parse 900-1000; raise UserError for anything else."""
    match = re.fullmatch(r"(\d+)-(\d+)", text.strip())
    if match is None or int(match[1]) > int(match[2]):
        raise UserError(
            f"--range: {text!r} is no range of steps; write the first and the last, as in 900-1000"
        )
    return int(match[1]), int(match[2])


def _print_csv(rows: Sequence["StepRow"]) -> None:
    from runner.steps import StepRow

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(StepRow._fields)
    for row in rows:
        writer.writerow(["" if value is None else to_plain(value) for value in row])
