"""Commands that run until they are stopped: a supervisor, an agent."""

import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import click

from runner.cli import clusters, made_clusters, output
from runner.cli.options import cluster_option, command
from runner.errors import UserError
from runner.facts import wire
from runner.facts.specs.cluster import ClusterSpec
from runner.folder_modes import close_folder
from runner.signer import signer_of
from runner.store.registry import check_durable, open_store_in_time

_NODE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,59}")


@command(
    "stoker supervise --cluster cluster.yaml",
    "stoker supervise        # restart the supervisor of this folder's cluster after a crash",
    "stoker supervise --standby --cluster cluster.yaml    # take over when the supervisor dies",
)
@click.option(
    "--standby",
    is_flag=True,
    help="Wait while another supervisor leads, applying its journal, and take over when it dies.",
)
@click.option(
    "--volatile-store",
    is_flag=True,
    help="Accept a Redis server that may lose acknowledged writes (see `stoker store doctor`).",
)
@cluster_option
def supervise(*, standby: bool, volatile_store: bool, where: str | None) -> None:
    """Supervise a cluster until `stoker shutdown`: start its agents, watch its runs, repair faults.

    Only one supervisor leads a cluster. When it dies, agents and ranks go on, and the next one
    continues from the journal. A --standby, on this or another machine that reaches the store,
    takes over within `lease_seconds`. It ends by Ctrl-C, or when the cluster shuts down.
    """
    from runner.supervisor.decisions import policy_of
    from runner.supervisor.main import run

    cluster = made_clusters.with_token(clusters.find_cluster(where))
    # A page of the site that is wrong is refused before anything starts.
    policy_of(cluster)
    # A standby waits for a store that is still starting.
    if standby:
        open_store_in_time(cluster, output.print_note).close()
    with clusters.store_of(cluster, create=True) as store:
        if not volatile_store:
            check_durable(store)
        clusters.require_own_store(store, cluster)
        if not (standby and clusters.has_leader(cluster)):
            made_clusters.write_spec(cluster)
        code = run(cluster, standby=standby, serving=partial(_serving, cluster, where))
    click.get_current_context().exit(code)


@contextmanager
def _serving(cluster: ClusterSpec, where: str | None) -> Iterator[object]:
    """Have metrics and the web page served, each by a process of its own; yield the socket of the metrics."""
    from runner.cli.metrics import metrics_child
    from runner.cli.web import web_child

    with metrics_child(cluster, where) as listening, web_child(cluster, where):
        yield listening


@command(
    "stoker agent --cluster cluster.yaml --node n3    on the machine that becomes n3",
    "stoker agent --cluster STATE --node n3 --slots 8",
)
@click.option("--node", required=True, help="Name of the node.")
@click.option(
    "--slots", type=click.IntRange(min=1), help="Ranks it can hold; default: the cluster's setting."
)
@click.option(
    "--address",
    help="Address for other nodes; default: this machine's address on the route to the store.",
)
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="The node's folder, on a local disk; default: nodes/NODE in the state folder.",
)
@cluster_option
def agent(
    *, node: str, slots: int | None, address: str | None, folder: Path | None, where: str | None
) -> None:
    """Run one node's agent until SIGTERM, or until the cluster shuts down.

    Supervisors start the agents of local nodes by themselves; this is for nodes on other machines. It needs only cluster.yaml
    there, and the files that it names: the cluster's token, and the store's password.
    """
    from runner.agent.__main__ import main as run_agent
    from runner.atomic_files import write_atomically

    if not _NODE.fullmatch(node):
        raise UserError(
            f"--node: {node!r} is not a valid name; use 1 to 60 letters, digits, -, _ and ., not starting with a dot"
        )
    cluster = clusters.find_cluster(where)
    # Raises for a missing token before anything starts.
    signer_of(cluster)
    folder = (folder or Path(cluster.state) / "nodes" / node).absolute()
    try:
        close_folder(folder)
        write_atomically(folder / clusters.SPEC, wire.encode(cluster).decode())
    except OSError as error:
        raise UserError(
            f"--folder {folder} cannot be written ({error.strerror}); choose another on a local disk"
        ) from error
    arguments = ["--cluster", str(folder / clusters.SPEC), "--node", node, "--folder", str(folder)]
    arguments += ["--address", address or address_towards(cluster.store.address)]
    if slots is not None:
        arguments += ["--slots", str(slots)]
    click.get_current_context().exit(run_agent(arguments))


def address_towards(store: str) -> str:
    """Return this machine's address on the route to HOST:PORT; the loopback for a store in local files."""
    if not store:
        return "127.0.0.1"
    host, _, port = store.rpartition("://")[2].rpartition(":")
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            # Of a datagram socket: nothing is sent.
            probe.connect(place)
            return str(probe.getsockname()[0])
    except (OSError, ValueError) as error:
        raise UserError(
            f"--address: no route to the store {store} ({error}); give the address at which other nodes reach this machine"
        ) from error
