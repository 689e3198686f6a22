"""`stoker remedy`: change how a run trains, from its next attempt on, in ways other than the learning rate."""

import click

from runner.cli.clusters import open_cluster
from runner.cli.options import command, request_options, why_option
from runner.cli.request_client import checked_reason, new_request_id, requester
from runner.cli.runs.operations import pick_live_run, report
from runner.errors import UserError
from runner.facts.messages.requests import AddRemedy
from runner.facts.remedies import REMEDIES
from runner.facts.wording import known_words

_LIST = "\b\nRemedies:\n" + "".join(
    f"  {name:<17} {kind.form}\n" for name, kind in REMEDIES.items()
)


@command(
    "stoker remedy tiny clip 0.3",
    "stoker remedy tiny betas 0.9,0.95 --reason 'the norm grows'",
    "stoker remedy tiny optimizer sgd,500,520",
    "stoker remedy tiny optimizer_reset",
    more=_LIST,
)
@click.argument("run")
@click.argument("name")
@click.argument("value", default="")
@why_option
@request_options(300.0)
def remedy(  # noqa: PLR0913 - click hands over each option
    run: str,
    name: str,
    value: str,
    *,
    reason: str,
    timeout_seconds: float,
    where: str | None,
    as_json: bool,
) -> None:
    """Change how a run trains, and print what the trainer reports back.

    The run saves a checkpoint, is launched again with the change, and the trainer reports what is in effect. `stoker status` lists
    the remedies of runs, `stoker revert` takes one back. Most are never ordered without a person.
    """
    kind = REMEDIES.get(name)
    if kind is None:
        raise UserError(f"remedy: no remedy {name!r}; {known_words(name, REMEDIES)}")
    try:
        parsed = kind.parse(value)
    except ValueError as error:
        raise UserError(f"remedy: {name}: {error}") from error
    with open_cluster(where) as (cluster, store):
        picked = pick_live_run(store, cluster, run)
        request = AddRemedy(
            id=new_request_id(),
            by=requester(),
            reason=checked_reason(reason),
            run=str(picked.run),
            remedy=kind.name,
            value=parsed,
        )
        report(store, cluster, request, timeout_seconds=timeout_seconds, as_json=as_json)
