"""`stoker story` and `stoker lineage`: a run's past, read from the journal."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import click

from runner.cli import output
from runner.cli.clusters import find_cluster, pick_run, require_status, status_age_seconds, store_of
from runner.cli.options import cluster_option, examples, json_option
from runner.errors import UserError
from runner.facts.messages.cluster_status import ClusterStatus
from runner.facts.messages.records import JournalEntry
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.wording import known_words, printable
from runner.serve.status_reader import read_status
from runner.store.protocol import Store


@click.command(epilog=examples("stoker story i1", "stoker story --run tiny --since 15m"))
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

    cluster = find_cluster(where)
    with store_of(cluster) as store:
        status = read_status(store)
        run = (
            pick_run(require_status(store, cluster), run_name).run if run_name is not None else None
        )
        begin = None if since is None else _last_now(status) - age_seconds(since)
        lines = timeline(
            _entries(store, cluster, since=begin), run=run, incident=incident, since=begin
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


@click.command(
    epilog=examples("stoker lineage tiny", "stoker lineage --json | jq '.[-1].remedies'")
)
@click.argument("run", required=False)
@cluster_option
@json_option
def lineage(run: str | None, where: str | None, *, as_json: bool) -> None:
    """List a run's attempts: their parent, the steps they contribute, and how they ended.

    `steps kept` are those that no later attempt overwrote: together they are the run's state.
    """
    from runner.history.lineage import lineage as trace

    cluster = find_cluster(where)
    with store_of(cluster) as store:
        picked = pick_run(require_status(store, cluster), run)
        rows = trace(_entries(store, cluster), picked.run)
    if as_json:
        output.print_json(rows)
        return
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
    output.print_text(
        output.table(
            columns,
            [
                (
                    str(row.attempt),
                    str(row.parent or "-"),
                    str(row.resume_step),
                    "-" if row.last_step is None else str(row.last_step),
                    "none" if row.contributes is None else "{}-{}".format(*row.contributes),
                    ",".join(row.nodes),
                    output.seconds(row.start_seconds),
                    row.outcome or "-",
                    printable(row.cause, 60) + (f" ({row.incident})" if row.incident else ""),
                    ", ".join(f"{name} {value:g}" for name, value in row.remedies.items()) or "-",
                )
                for row in rows
            ],
        )
    )


def _entries(
    store: Store, cluster: ClusterSpec, *, since: float | None = None
) -> Iterator[JournalEntry]:
    """Yield the journal's entries, oldest first, from files and store; from about `since` on, without reading older files.

    Prints a note if the folder of old entries is not visible from this machine.
    """
    from runner.journal.archive import archive_of
    from runner.journal.journal import Journal

    archive = archive_of(cluster)
    journal = Journal(store, archive=archive)
    begin = journal.begins_at()
    if since is not None:
        begin = max(begin, journal.since(since))
    elif begin > 1:
        output.print_note(
            f"from journal entry {begin} on: older entries are in {archive.folder}, which is not visible from this machine"
        )
    yield from journal.replay(begin)


def _last_now(status: ClusterStatus | None) -> float:
    """Return the controller's clock now: its time in the status, plus the status's age."""
    return time.time() if status is None else status.now + status_age_seconds(status)


def age_seconds(text: str) -> float:
    """Parse 90s, 15m, 3h or 2d into seconds; raise UserError for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip())
    if match is None:
        raise UserError(f"--since: {text!r} is not an age; write 90s, 15m, 3h or 2d")
    return float(match.group(1)) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match.group(2)]
