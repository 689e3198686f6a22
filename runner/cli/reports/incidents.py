"""`stoker incidents` and `stoker explain`."""

import click

from runner.cli import output
from runner.cli.clusters import pick, pick_run
from runner.cli.options import cluster_option, command, json_option
from runner.cli.reports.status import read_cluster_status
from runner.cli.reports.tables import explanation, incidents_table, runs_with_in_words


@command("stoker incidents", "stoker incidents tiny --json")
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
    output.print_answer(found, incidents_table(found), as_json=as_json)


@command("stoker explain i1", "stoker explain i1 --json | jq .cause.lines")
@click.argument("incident")
@cluster_option
@json_option
def explain(incident: str, where: str | None, *, as_json: bool) -> None:
    """Explain an incident: its cause, the culprit, the confidence, and the log lines behind it."""
    status = read_cluster_status(where)
    incidents = {one.incident: one for one in status.incidents}
    found = pick(incidents, incident, f"incident {incident!r} in cluster {status.cluster!r}")
    text = explanation(found)
    run = next((one for one in status.runs if one.run == found.run), None)
    if run is not None and run.runs_with:
        text += f"\nrun {run.name} runs with: {runs_with_in_words(run.runs_with)}"
    output.print_answer(found, text, as_json=as_json)
