"""`stoker story` and `stoker lineage`: a run's past, read from the journal."""

import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from runner.cli import clusters, output
from runner.cli.options import cluster_option, command, json_option
from runner.cli.reports.past import journal_entries
from runner.errors import UserError
from runner.facts.messages.cluster_status import ClusterStatus
from runner.facts.remedies import remedies_text
from runner.facts.wording import known_words, printable

if TYPE_CHECKING:
    from runner.history.lineage import LineageRow


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


@command("stoker story i1", "stoker story --run tiny --since 15m")
@click.argument("incident", required=False)
@click.option("--run", "run_name", metavar="RUN", help="Only this run.")
@click.option(
    "--since", metavar="AGE", help="Only this long ago and later, such as 90s, 15m, 3h or 2d."
)
@cluster_option
@json_option
def story(
    incident: str | None,
    *,
    run_name: str | None,
    since: str | None,
    where: str | None,
    as_json: bool,
) -> None:
    """Print what happened and why, from the first signal to the last effect.

    INCIDENT is an id such as i3 (see `stoker incidents`); without it, everything is printed.
    """
    from runner.history.timeline import story as timeline

    with clusters.open_cluster(where) as (cluster, store):
        status = clusters.status_in(store, cluster)
        run = (
            clusters.pick_run(clusters.require_status(store, cluster), run_name).run
            if run_name is not None
            else None
        )
        begin = None if since is None else _last_now(status) - age_seconds(since)
        lines = timeline(
            journal_entries(store, cluster, since=begin), run=run, incident=incident, since=begin
        )
    if incident is not None and not lines:
        names = [i.incident for i in status.incidents] if status is not None else []
        raise UserError(
            f"no incident {incident!r} in cluster {cluster.name!r}; {known_words(incident, names)}"
        )
    if as_json:
        output.print_json(lines)
        return
    day = ""
    for line in lines:
        if output.moment(line.now)[:10] != day:
            day = output.moment(line.now)[:10]
            output.print_text(day)
        event = line.input_text or "then"
        output.print_text(f"{output.clock(line.now)}  +{line.offset_seconds:9.3f} s  {event}")
        for text in line.decided:
            output.print_text(f"{'':28}-> {text}")
    if not lines:
        output.print_text("nothing happened")


@command("stoker lineage tiny", "stoker lineage --json | jq '.[-1].remedies'")
@click.argument("run", required=False)
@cluster_option
@json_option
def lineage(run: str | None, where: str | None, *, as_json: bool) -> None:
    """List a run's attempts: their parent, the steps they contribute, and how they ended.

    `steps kept` are those that no later attempt overwrote: together they are the run's state.
    """
    from runner.history.lineage import lineage as trace

    with clusters.open_cluster(where) as (cluster, store):
        picked = clusters.pick_run(clusters.require_status(store, cluster), run)
        rows = trace(journal_entries(store, cluster), picked.run)
    output.print_answer(rows, output.table(ATTEMPT_COLUMNS, rows), as_json=as_json)


def _last_now(status: ClusterStatus | None) -> float:
    """Return the controller's clock now: its time in the status, plus the status's age."""
    return time.time() if status is None else status.now + clusters.status_age_seconds(status)


def age_seconds(text: str) -> float:
    """Parse 90s, 15m, 3h or 2d into seconds; raise UserError for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip())
    if match is None:
        raise UserError(f"--since: {text!r} is not an age; write 90s, 15m, 3h or 2d")
    return float(match.group(1)) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match.group(2)]
