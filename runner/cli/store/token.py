"""`stoker token`: make the secret with which a cluster's agents, supervisors and commands sign messages."""

from pathlib import Path

import click

from runner.cli import output
from runner.cli.clusters import find_cluster, has_leader
from runner.cli.made_clusters import make_token_file
from runner.cli.options import cluster_option, command, json_option
from runner.errors import UserError
from runner.facts.specs.cluster import ClusterSpec
from runner.store.registry import exists
from runner.token_file import (
    MIN_VALID_SECONDS,
    WebRole,
    default_token_file,
    make_token,
    read_token_file,
    replace_token,
    utc,
    web_token_file,
)

_MADE = "made; copy it to the same place on every machine of the cluster"


@command(
    "stoker token --cluster cluster.yaml    make it, once, and copy it to every machine:",
    "scp .stoker/NAME/cluster.token n7:/etc/stoker/cluster.token",
    "stoker token --rotate --valid 7200     another one, while the cluster runs; copy it within an hour",
    "stoker token --replace                 after `stoker shutdown`: another one; copy it again",
    "stoker token --web operator --replace  another one for the web page",
)
@click.option("--replace", is_flag=True, help="Make another one, of a cluster that is shut down.")
@click.option("--rotate", is_flag=True, help="Make another one, of a cluster that may run.")
@click.option(
    "--valid",
    "valid_seconds",
    type=click.FloatRange(min=MIN_VALID_SECONDS),
    default=3600.0,
    show_default=True,
    metavar="SECONDS",
    help="With --rotate: how long the present one stays valid.",
)
@click.option(
    "--web",
    "role",
    type=click.Choice(("viewer", "operator")),
    help="The token of the web page's viewers or operators, instead of the cluster's.",
)
@cluster_option
@json_option
def token(
    *,
    replace: bool,
    rotate: bool,
    valid_seconds: float,
    role: WebRole | None,
    where: str | None,
    as_json: bool,
) -> None:
    """Make the cluster's token, unless it exists; print its path, never its content.

    Agents, supervisors and commands sign messages with it, so that reaching the store is not enough
    to join or to be obeyed. It is the same on every machine: copy the file, and keep it readable by
    its owner only (mode 600). A cluster of one machine makes its token by itself. --rotate and
    --replace keep the earlier ones below the new one: they verify the journal's older entries, and
    no message. With --rotate, every process signs with the new one from half of --valid on.
    --web: the web page takes the new one at once; sessions with the earlier one end with --valid, with --replace now.
    """
    cluster = find_cluster(where)
    if role is not None:
        _web_token(cluster, role, valid_seconds if rotate else 0.0, replace or rotate, as_json)
        return
    token_file = cluster.token_file or default_token_file(cluster.state)
    made, note = True, _MADE
    if not Path(token_file).exists():
        _check_idle(cluster, "without this token")
        made = make_token_file(token_file)
    elif rotate:
        rotated = replace_token(token_file, valid_seconds)
        note = (
            f"{_MADE} before {utc(rotated.signs_from)}, when the new one begins to sign; the earlier one is accepted until "
            f"{utc(rotated.valid_until)}, and processes read the file by themselves"
        )
    elif replace:
        _check_idle(cluster, "with the present token")
        replace_token(token_file)
    else:
        made, note = False, "it exists already and was not changed"
    # Raises for a token that exists and is not valid.
    tokens = read_token_file(Path(token_file))
    answer = {"token_file": token_file, "made": made}
    if tokens.valid_until:
        answer |= {"signs_from": tokens.signs_from, "valid_until": tokens.valid_until}
    output.print_answer(answer, token_file, as_json=as_json)
    if not as_json:
        output.print_note(note)


def _web_token(
    cluster: ClusterSpec, role: WebRole, valid_seconds: float, replaces: bool, as_json: bool
) -> None:
    """Make a token of the web page, or another one; the page reads the file by itself."""
    token_file = web_token_file(cluster, role)
    made = make_token(token_file)
    if replaces and not made:
        replace_token(token_file, valid_seconds)
        made = True
    answer = {"token_file": token_file, "made": made}
    output.print_answer(answer, token_file, as_json=as_json)


def _check_idle(cluster: ClusterSpec, with_what: str) -> None:
    """Raise UserError while agents run that sign with another token or none: their messages would be refused."""
    from runner.cli.foreground.leftovers import processes_of

    if not exists(cluster):
        return
    running = [] if cluster.spans_machines else [each.what for each in processes_of(cluster)]
    if running or has_leader(cluster):
        names = ", ".join(running[:5]) + (", ..." if len(running) > 5 else "")
        raise UserError(
            f"cluster {cluster.name!r} runs {with_what} ({names or 'it has a supervisor'}) and would refuse its own agents; "
            "end it first with `stoker shutdown`"
        )
