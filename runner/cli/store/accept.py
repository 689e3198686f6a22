"""`stoker store accept`: accept a store that came back with less than it acknowledged."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from runner.cli import output
from runner.cli.clusters import find_cluster, store_of
from runner.cli.options import cluster_option, examples, json_option
from runner.cli.request_client import requester
from runner.errors import UserError
from runner.facts.specs.cluster import ClusterSpec

if TYPE_CHECKING:
    from runner.supervisor.store_rollback import RollbackLoss


@click.command(
    epilog=examples(
        "stoker store accept            show what is lost, and ask",
        "stoker store accept --yes      without asking",
        "stoker store accept --json     only show it, for programs",
    )
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@cluster_option
@json_option
def accept(*, yes: bool, where: str | None, as_json: bool) -> None:
    """Accept a store that came back with less than it acknowledged, as it is now.

    Until then no supervisor acts on it. If a newer copy of the store exists, restore that instead:
    nothing is lost then. Accepting gives up the missing entries, and raises the next generation above
    every known one. Afterwards start `stoker supervise`. See runbooks/store-rolled-back.md.
    """
    from runner.signer import signer_of
    from runner.supervisor.lease import LeaseKeeper
    from runner.supervisor.store_rollback import accept_rollback, assess_loss

    cluster = find_cluster(where)
    with store_of(cluster) as opened:
        known = assess_loss(cluster, opened, signer_of(cluster))
        if as_json:
            more = {"lost": known.lost, "is_any": known.is_any}
            output.print_json({"cluster": cluster.name, **output.plain(known), **more})
            if not yes:
                return
        if not known.is_any:
            raise UserError(
                f"the store of cluster {cluster.name!r} has everything that it is known to have acknowledged "
                f"({known.ends_at} entries): nothing to accept"
            )
        if not as_json:
            output.print_text(_in_words(cluster, known))
        _confirm(yes)
        with LeaseKeeper(cluster, opened) as keeper:
            number = accept_rollback(cluster, opened, keeper.lease, known, by=requester())
    if not as_json:
        output.print_text(f"accepted, as journal entry {number}; now start `stoker supervise`")


def _in_words(cluster: ClusterSpec, known: RollbackLoss) -> str:
    lost = (
        f"{known.lost} entries are known to be missing"
        if known.lost
        else "how many are missing is not known"
    )
    lines = [
        f"cluster {cluster.name}: {known.reason or 'agents are ahead of the journal'}",
        f"the journal ends at entry {known.ends_at}; {lost}",
    ]
    if known.seen_generation >= known.next_generation:
        lines.append(
            f"assignments up to generation {known.seen_generation} were issued, "
            f"the journal knows those before {known.next_generation}"
        )
    lines.append("what happened after that entry is given up for good")
    return "\n".join(lines)


def _confirm(yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UserError("store accept: there is no terminal to ask; confirm with --yes")
    if not click.confirm("Accept the store as it is?", err=True):
        raise UserError("store accept: nothing was done")
