"""`stoker store accept`: accept a store that came back with less than it acknowledged."""

from typing import TYPE_CHECKING

import click

from runner.cli import output
from runner.cli.clusters import open_cluster
from runner.cli.options import cluster_option, command, confirm, json_option
from runner.cli.request_client import requester
from runner.errors import UserError
from runner.facts.specs.cluster import ClusterSpec

if TYPE_CHECKING:
    from runner.supervisor.store_rollback import RollbackLoss


@command(
    "stoker store accept            show what is lost, and ask",
    "stoker store accept --yes      without asking",
    "stoker store accept --json     only show it, for programs",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@cluster_option
@json_option
def accept(*, yes: bool, where: str | None, as_json: bool) -> None:
    """Accept a store that came back with less than it acknowledged, as it is now.

    Until then no supervisor acts on it. If a newer copy of the store exists, restore that instead:
    nothing is lost then. Accepting gives up the missing entries, and raises the next generation above
    every known one. A journal of a release that made no codes for its entries is accepted in the
    same way, once. Afterwards start `stoker supervise`. See `stoker runbook store-rolled-back`.
    """
    from runner.signer import signer_of
    from runner.supervisor.lease import LeaseKeeper
    from runner.supervisor.store_rollback import accept_rollback, assess_loss

    with open_cluster(where) as (cluster, opened):
        signer = signer_of(cluster)
        known = assess_loss(cluster, opened, signer)
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
        if not yes:
            confirm("store accept: entries would be given up", "Accept the store as it is?")
        with LeaseKeeper(cluster, opened) as keeper:
            number = accept_rollback(
                cluster, opened, keeper.lease, known, by=requester(), signer=signer
            )
    if not as_json:
        output.print_text(f"accepted, as journal entry {number}; now start `stoker supervise`")


def _in_words(cluster: ClusterSpec, known: "RollbackLoss") -> str:
    if known.unsigned_through:
        return "\n".join(
            (
                f"cluster {cluster.name}: its {known.unsigned_through} journal entries carry no codes; "
                "a release before codes wrote them, or a program with the store's password",
                "accept them if they are your own; these runs go on:"
                if known.commands
                else "no run goes on",
                *known.commands,
            )
        )
    lost = f"{known.lost} entries are known to be missing"
    lines = [
        f"cluster {cluster.name}: {known.reason or 'agents are ahead of the journal'}",
        f"the journal ends at entry {known.ends_at}; "
        f"{lost if known.lost else 'how many are missing is not known'}",
    ]
    if known.seen_generation >= known.next_generation:
        lines.append(
            f"assignments up to generation {known.seen_generation} were issued, "
            f"the journal knows those before {known.next_generation}"
        )
    lines.append("what happened after that entry is given up for good")
    return "\n".join(lines)
