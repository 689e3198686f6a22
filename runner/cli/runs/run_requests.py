"""`stoker pause`, `resume`, `restart`, `note` and `ack`: what a person wants of a run, and says about it."""

import re
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from runner.cli.clusters import open_cluster, require_status
from runner.cli.options import command, incident_option, request_options, why_option
from runner.cli.request_client import checked_reason, new_request_id, requester
from runner.cli.runs.operations import pick_live_run, report
from runner.errors import UserError
from runner.facts.messages import requests as q
from runner.facts.messages.cluster_status import ClusterStatus, IncidentStatus
from runner.facts.wording import known_words

_LIVE = ("open", "acting", "proving")


def run_request(
    seconds: float, *, is_run_required: bool = False
) -> Callable[[Callable[..., q.Request]], Callable[..., None]]:
    """Make a command about a live run from a function that takes its request's fields and returns the request.

    It waits so many seconds for the answer, unless `--timeout` says otherwise. Without a run it is about the only one.
    """

    def decorate(request: Callable[..., q.Request]) -> Callable[..., None]:
        @click.argument("run", required=is_run_required)
        @why_option
        @incident_option
        @request_options(seconds)
        @wraps(request)
        def send(
            *,
            run: str | None,
            reason: str,
            seen: str | None,
            where: str | None,
            timeout_seconds: float,
            as_json: bool,
            **fields: Any,
        ) -> None:
            reason = checked_reason(reason)
            with open_cluster(where) as (cluster, store):
                picked = pick_live_run(store, cluster, run)
                status = require_status(store, cluster)
                wanted = request(
                    id=new_request_id(),
                    by=requester(),
                    reason=reason,
                    run=str(picked.run),
                    **seen_incident(status, seen, run=picked.run),
                    **fields,
                )
                report(store, cluster, wanted, timeout_seconds=timeout_seconds, as_json=as_json)

        return send

    return decorate


def seen_incident(
    status: ClusterStatus, text: str | None, *, run: int | None = None
) -> dict[str, Any]:
    """Return the fields `incident` and `seen` of a request: those that `I3@7` names, or the run's newest open incident.

    Without a version it is that of the status. Raises UserError for an incident that is not there.
    """
    if text is None:
        newest = next((i for i in status.incidents if i.run == run and i.state in _LIVE), None)
        return {} if newest is None else _named(newest, newest.version)
    match = re.fullmatch(r"(i\d+)(?:@(\d+))?", text)
    if match is None:
        raise UserError(f"--incident: {text!r} is no incident; write i3, or i3@7 for its version 7")
    by_name = {incident.incident: incident for incident in status.incidents}
    if match[1] not in by_name:
        raise UserError(f"no incident {match[1]!r}; {known_words(match[1], list(by_name))}")
    incident = by_name[match[1]]
    if run is not None and incident.run not in (None, run):
        raise UserError(f"--incident: {incident.incident} is of run {incident.run}, not of {run}")
    return _named(incident, incident.version if match[2] is None else int(match[2]))


def _named(incident: IncidentStatus, version: int) -> dict[str, Any]:
    return {"incident": incident.incident, "seen": version}


@command(
    'stoker pause tiny --why "the file system moves"',
    "stoker pause tiny --release          other runs may have its nodes",
    "stoker resume tiny",
)
@click.option(
    "--release",
    "releases_nodes",
    is_flag=True,
    help="Let other runs have its nodes meanwhile. Default: they are kept for it.",
)
@run_request(900.0)
def pause(**fields: Any) -> q.Request:
    """Pause a run, with a checkpoint if its ranks can save one.

    Ranks that take requests end at the next step boundary; others get SIGTERM, and SIGKILL after `stop_grace_seconds`. Nothing of
    it is started until `stoker resume` or `stoker restart`, whatever happens and under any supervisor; its ladder waits. `stoker
    status` shows who paused it, and why. Done when no rank is left.
    """
    return q.PauseRun(**fields)


@command(
    'stoker resume tiny --why "the disks are back"', "stoker resume      when there is only one run"
)
@run_request(900.0)
def resume(**fields: Any) -> q.Request:
    """Let a run go on that was paused, or that waits for a person, from its newest trusted checkpoint.

    Attempts that failed before count no longer. Done when its ranks run.
    """
    return q.ResumeRun(**fields)


@command(
    'stoker restart tiny --why "new driver"',
    "stoker restart tiny --from-step 800      from that checkpoint; newer ones are set aside",
    "stoker restart tiny --accept-drift       with other code or packages than before",
)
@click.option(
    "--from-step",
    type=click.IntRange(min=1),
    help="Go on from the checkpoint of this step. Default: one that is saved now.",
)
@click.option(
    "--accept-drift",
    "accepts_drift",
    is_flag=True,
    help="The next attempt may run with other code, packages or variables than those before it.",
)
@run_request(900.0)
def restart(**fields: Any) -> q.Request:
    """Start a run again, from a checkpoint that it saves before if its ranks can.

    Its ladder waits meanwhile; a run that is paused, or waits for a person, goes on. With --from-step it ends at once, and goes on
    from that checkpoint. Done when the ranks of the next attempt run.
    """
    return q.RestartRun(**fields)


@command(
    'stoker note --run tiny "tried x0.9 on Friday, no better"',
    'stoker note --incident i3 "the switch was replaced at 14:10"',
    "stoker story i3      shows it where it belongs",
)
@click.argument("words", nargs=-1, required=True, metavar="TEXT")
@click.option("--run", "run", metavar="RUN", help="The run that it is about, ended ones too.")
@click.option("--incident", "seen", metavar="INCIDENT", help="The incident that it is about.")
@request_options(30.0)
def note(
    words: tuple[str, ...],
    *,
    run: str | None,
    seen: str | None,
    timeout_seconds: float,
    where: str | None,
    as_json: bool,
) -> None:
    """Write a text into the journal, about a run or an incident; `stoker story` shows it there."""
    text = " ".join(words)
    with open_cluster(where) as (cluster, store):
        status = require_status(store, cluster)
        about = seen_incident(status, seen) if seen is not None else {}
        about.pop("seen", None)
        wanted = q.AddNote(id=new_request_id(), by=requester(), text=text, run=run or "", **about)
        report(store, cluster, wanted, timeout_seconds=timeout_seconds, as_json=as_json)


@command(
    'stoker ack i3 --why "I call the data centre"', "stoker explain i3      shows who looks at it"
)
@click.argument("incident")
@why_option
@request_options(30.0)
def ack(
    incident: str,
    *,
    reason: str,
    timeout_seconds: float,
    where: str | None,
    as_json: bool,
) -> None:
    """Say that you look at an incident: pages about it do not repeat, and others see who does.

    Its ladder goes on, and a page is still sent when the ladder ends or asks for a person. One that Stoker gave up can be
    acknowledged, too: its pages repeat until then.
    """
    reason = checked_reason(reason)
    with open_cluster(where) as (cluster, store):
        about = seen_incident(require_status(store, cluster), incident)
        about.pop("seen")
        wanted = q.AcknowledgeIncident(id=new_request_id(), by=requester(), reason=reason, **about)
        report(store, cluster, wanted, timeout_seconds=timeout_seconds, as_json=as_json)
