"""`stoker incidents` and `stoker explain`."""

from __future__ import annotations

import click

from runner.cli import output
from runner.cli.clusters import pick_run
from runner.cli.options import cluster_option, examples, json_option
from runner.cli.reports.status import read_cluster_status
from runner.cli.reports.tables import explanation, incidents_table
from runner.errors import UserError
from runner.facts.wording import known_words


@click.command(epilog=examples("stoker incidents", "stoker incidents tiny --json"))
@click.argument("run", required=False)
@cluster_option
@json_option
def incidents(run: str | None, where: str | None, *, as_json: bool) -> None:
    """List incidents, newest first: fault, place, seconds to detect and to recover, steps lost."""
    status = read_cluster_status(where)
    found = status.incidents
    if run is not None:
        wanted = pick_run(status, run).run
        found = tuple(incident for incident in found if incident.run == wanted)
    if as_json:
        output.print_json(found)
    else:
        output.print_text(incidents_table(found) if found else "no incident")


@click.command(epilog=examples("stoker explain i1", "stoker explain i1 --json | jq .cause.lines"))
@click.argument("incident")
@cluster_option
@json_option
def explain(incident: str, where: str | None, *, as_json: bool) -> None:
    """Explain an incident: its cause, the culprit, the confidence, and the log lines behind it."""
    status = read_cluster_status(where)
    found = next((one for one in status.incidents if one.incident == incident), None)
    if found is None:
        names = [one.incident for one in status.incidents]
        raise UserError(
            f"no incident {incident!r} in cluster {status.cluster!r}; {known_words(incident, names)}"
        )
    if as_json:
        output.print_json(found)
    else:
        output.print_text(explanation(found))
