"""`stoker token`: make the secret with which a cluster's agents, supervisors and commands sign messages."""

from __future__ import annotations

from pathlib import Path

import click

from runner.cli import output
from runner.cli.clusters import find_cluster, has_leader
from runner.cli.options import cluster_option, examples, json_option
from runner.errors import UserError
from runner.facts.specs.cluster import ClusterSpec
from runner.signer import default_token_file, load_signer, make_token
from runner.store.registry import exists


@click.command(
    epilog=examples(
        "stoker token --cluster cluster.yaml    make it, once, and copy it to every machine:",
        "scp .stoker/NAME/cluster.token n7:/etc/stoker/cluster.token",
    )
)
@cluster_option
@json_option
def token(*, where: str | None, as_json: bool) -> None:
    """Make the cluster's token, unless it exists; print its path, never its content.

    Agents, supervisors and commands sign messages with it, so that reaching the store is not enough
    to join or to be obeyed. It is the same on every machine: copy the file, and keep it readable by
    its owner only (mode 600). A cluster of one machine makes its token by itself.
    """
    cluster = find_cluster(where)
    token_file = cluster.token_file or default_token_file(cluster.state)
    made = False
    if not Path(token_file).exists():
        _check_idle(cluster)
        try:
            made = make_token(token_file)
        except OSError as error:
            raise UserError(
                f"token_file: {token_file} cannot be written ({error.strerror}); choose another place in cluster.yaml"
            ) from error
    # Raises for a token that exists and is not valid.
    load_signer(token_file)
    if as_json:
        output.print_json({"token_file": token_file, "made": made})
        return
    output.print_text(token_file)
    output.print_note(
        "made; copy it to the same place on every machine of the cluster"
        if made
        else "it exists already and was not changed"
    )


def _check_idle(cluster: ClusterSpec) -> None:
    """Raise UserError while agents run that sign with another token or none: their messages would be refused."""
    from runner.cli.foreground.leftovers import processes_of

    if cluster.store.address or not exists(cluster):
        return
    running = [process.what for process in processes_of(cluster)]
    if running or has_leader(cluster):
        names = ", ".join(running[:5]) + (", ..." if len(running) > 5 else "")
        raise UserError(
            f"cluster {cluster.name!r} runs without this token ({names or 'it has a supervisor'}) and would refuse its own agents; "
            "end it first with `stoker shutdown`"
        )
