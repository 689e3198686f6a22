"""`stoker rewind`, `skip`, `revert`, `approve` and `deny`: what people change about how a run trains, or let the daemon change."""

from typing import Any

import click

from runner.cli.clusters import open_cluster, require_status
from runner.cli.options import command, request_options, why_option
from runner.cli.request_client import checked_reason, new_request_id, requester
from runner.cli.runs.operations import report
from runner.cli.runs.run_requests import run_request
from runner.errors import UserError
from runner.facts.messages import requests as q


@command(
    'stoker rewind tiny --before-step 900 --why "the loss rises from 910 on"',
    "stoker pause tiny; stoker rewind tiny --before-step 900; stoker skip tiny 905 920; stoker resume tiny",
)
@click.option(
    "--before-step",
    type=click.IntRange(min=1),
    required=True,
    help="It goes on from its newest checkpoint before this step.",
)
@run_request(900.0)
def rewind(**fields: Any) -> q.Request:
    """Go back to a run's newest checkpoint before a step; what was saved after it is set aside for good.

    The attempt ends at once. A paused run stays paused, so that more can be changed before it goes on.
    """
    return q.RewindRun(**fields)


@command("stoker skip tiny 905 920", "stoker revert tiny r1      reads them after all")
@run_request(300.0, is_run_required=True)
@click.argument("first", type=click.IntRange(min=1))
@click.argument("last", type=click.IntRange(min=1))
def skip(*, first: int, last: int, **fields: Any) -> q.Request:
    """Leave out the data of steps FIRST to LAST, from the next attempt on, which starts at a checkpoint saved now.

    Data that is trained already stays so: go back first (`stoker rewind`). Done when the trainer has read it back.
    """
    if last < first:
        raise UserError(f"skip: {first} to {last} is no range; write the lower step first")
    return q.AddRemedy(**fields, remedy="skip_steps", value=((first, last),))


@command("stoker revert tiny r2", "stoker status      lists the remedies of each run")
@run_request(300.0, is_run_required=True)
@click.argument("remedy")
def revert(**fields: Any) -> q.Request:
    """Take a remedy of a run back: a learning rate, skipped data, what a page or a person changed.

    From the next attempt on, which starts at a checkpoint saved now. Done when the trainer has read back what is in effect then.
    """
    return q.RevertRemedy(**fields)


@command("stoker approve a12", 'stoker approve --why "as on Friday"      when there is only one')
@click.argument("action", required=False)
@why_option
@request_options(60.0)
def approve(action: str | None, **options: Any) -> None:
    """Let the daemon take a rung that it proposes (mode advise); `stoker status` lists what waits.

    Refused, with the reason, once it is approved or denied, or when the incident is over or its ladder elsewhere.
    """
    _decide(q.ApproveAction, action, **options)


@command('stoker deny a12 --why "it heals by itself"')
@click.argument("action", required=False)
@why_option
@request_options(60.0)
def deny(action: str | None, **options: Any) -> None:
    """Refuse a rung that the daemon proposes (mode advise): nothing changes, and the incident is left to people."""
    _decide(q.DenyAction, action, **options)


def _decide(
    kind: type[q.ApproveAction | q.DenyAction],
    action: str | None,
    *,
    reason: str,
    timeout_seconds: float,
    where: str | None,
    as_json: bool,
) -> None:
    reason = checked_reason(reason)
    with open_cluster(where) as (cluster, store):
        known = [each.action for each in require_status(store, cluster).proposals]
        if action is None and len(known) != 1:
            which = f"name one: {', '.join(known)}" if known else "nothing is proposed"
            raise UserError(f"{which}; see `stoker status`")
        wanted = kind(id=new_request_id(), by=requester(), reason=reason, action=action or known[0])
        report(store, cluster, wanted, timeout_seconds=timeout_seconds, as_json=as_json)
