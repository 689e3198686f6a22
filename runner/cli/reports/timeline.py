"""`stoker story`: what happened, read from the journal."""

import re
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from runner.cli import clusters, output
from runner.cli.options import cluster_option, command, json_option
from runner.cli.reports.past import journal_entries
from runner.errors import UserError
from runner.facts.messages.cluster_status import ClusterStatus
from runner.facts.wording import known_words

if TYPE_CHECKING:
    from runner.history.timeline import TimelineLine


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

    with clusters.open_cluster(where, only_reads=True) as (cluster, store):
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
    for text in story_lines(lines):
        output.print_text(text)
    if not lines:
        output.print_text("nothing happened")


def story_lines(events: Iterable["TimelineLine"]) -> Iterator[str]:
    """Write events for people: the date where it changes, then for each event its time and what was decided."""
    day = ""
    for event in events:
        if output.moment(event.now)[:10] != day:
            day = output.moment(event.now)[:10]
            yield day
        what = event.input_text or "then"
        yield f"{output.clock(event.now)}  +{event.offset_seconds:9.3f} s  {what}"
        for text in event.decided:
            yield f"{'':28}-> {text}"


def _last_now(status: ClusterStatus | None) -> float:
    """Return the controller's clock now: its time in the status, plus the status's age."""
    return time.time() if status is None else status.now + clusters.status_age_seconds(status)


def age_seconds(text: str) -> float:
    """Parse 90s, 15m, 3h or 2d into seconds; raise UserError for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip())
    if match is None:
        raise UserError(f"--since: {text!r} is not an age; write 90s, 15m, 3h or 2d")
    return float(match.group(1)) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[match.group(2)]
