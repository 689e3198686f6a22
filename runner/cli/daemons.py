"""Commands that stay: a supervisor, an agent, the metrics page. Heavy imports happen only when one of them runs."""

from __future__ import annotations

import re
import signal
import socket
import threading
from functools import partial
from pathlib import Path

import click

from runner.cli import output
from runner.cli.clusters import SPEC, find_cluster, has_leader, store_of, with_token, write_spec
from runner.cli.options import cluster_option, examples
from runner.errors import UserError
from runner.facts import wire
from runner.signer import signer_of
from runner.store.registry import check_durable, open_store_in_time

_NODE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,59}")


@click.command(
    epilog=examples(
        "stoker supervise --cluster cluster.yaml",
        "stoker supervise        # lead this folder's cluster again after a crash",
        "stoker supervise --standby --cluster cluster.yaml    # lead as soon as nobody else does",
    )
)
@click.option(
    "--standby",
    is_flag=True,
    help="Wait while another supervisor leads, following what it does, and take over when it dies.",
)
@click.option(
    "--volatile-store",
    is_flag=True,
    help="Lead even by a Redis server that may forget what it acknowledged (`stoker store doctor` says why).",
)
@cluster_option
def supervise(*, standby: bool, volatile_store: bool, where: str | None) -> None:
    """Supervise a cluster until `stoker shutdown`: start its agents, watch its runs, repair faults.

    Only one supervisor leads a cluster. When it dies, agents and ranks go on; the next one takes over where it was. With
    --standby, on this machine or another that reaches the store, that is at most `lease_seconds` later. A standby ends by Ctrl-C,
    and with the cluster's shutdown.
    """
    from runner.serve.metrics import serving_metrics
    from runner.supervisor.main import run

    cluster = with_token(find_cluster(where))
    # it is there for when others fail, also when the store is back before them
    if standby:
        open_store_in_time(cluster, output.print_note).close()
    with store_of(cluster, create=True) as store:
        if not volatile_store:
            check_durable(store)
        if not (standby and has_leader(cluster)):
            write_spec(cluster)
        serving = partial(serving_metrics, store, port=cluster.metrics_port)
        code = run(cluster, standby=standby, serving=serving)
    click.get_current_context().exit(code)


@click.command(
    epilog=examples(
        "stoker agent --cluster cluster.yaml --node n3    on the machine that is to be n3",
        "stoker agent --cluster STATE --node n3 --slots 8",
    )
)
@click.option("--node", required=True, help="Name of the node.")
@click.option(
    "--slots", type=click.IntRange(min=1), help="Ranks it can hold; default: as the cluster says."
)
@click.option(
    "--address",
    help="Where other nodes reach it; default: this machine's address on the way to the store.",
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

    Supervisors start the agents of local nodes by themselves; this is for nodes that are other machines. All it needs there is
    cluster.yaml and the files that it names: the cluster's token, and the store's password.
    """
    from runner.agent.__main__ import main as run_agent
    from runner.atomic_files import write_atomically

    check_node_name(node)
    cluster = find_cluster(where)
    # a token that is missing is said before anything is started
    signer_of(cluster)
    folder = (folder or Path(cluster.state) / "nodes" / node).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / SPEC, wire.encode(cluster).decode())
    except OSError as error:
        raise UserError(
            f"--folder {folder} cannot be written ({error.strerror}); name another on a local disk"
        ) from error
    arguments = ["--cluster", str(folder / SPEC), "--node", node, "--folder", str(folder)]
    arguments += ["--address", address or address_towards(cluster.store.address)]
    if slots is not None:
        arguments += ["--slots", str(slots)]
    click.get_current_context().exit(run_agent(arguments))


def check_node_name(node: str) -> None:
    """Raise UserError for a name that would not do as a folder's and a register's."""
    if not _NODE.fullmatch(node):
        raise UserError(
            f"--node: {node!r} will not do; give 1 to 60 letters, digits, -, _ and ., not beginning with a dot"
        )


def address_towards(store: str) -> str:
    """Return this machine's address on the way to HOST:PORT; its own loopback for a store that is a file here."""
    if not store:
        return "127.0.0.1"
    host, _, port = store.rpartition(":")
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(
            host.strip("[]"), int(port), type=socket.SOCK_DGRAM
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            # of a datagram socket: nothing is sent
            probe.connect(place)
            return str(probe.getsockname()[0])
    except (OSError, ValueError) as error:
        raise UserError(
            f"--address: no way from here to the store {store} ({error}); say where other nodes reach this one"
        ) from error


@click.command(
    epilog=examples(
        "stoker metrics                                       print them once",
        "stoker metrics --port 9464 --cluster cluster.yaml    serve them at /metrics",
    )
)
@click.option("--port", type=click.IntRange(1, 65535), help="Serve on this port until Ctrl-C.")
@cluster_option
def metrics(*, port: int | None, where: str | None) -> None:
    """Print the cluster's metrics in Prometheus' text format, or serve them.

    They are read from the store, never from the supervisor: this works, and says how old they are, when it is dead.
    """
    from runner.serve.metrics import MetricsServer, metrics_of

    cluster = find_cluster(where)
    with store_of(cluster) as store:
        if port is None:
            click.echo(metrics_of(store).decode(), nl=False)
            return
        server = MetricsServer(store, port=port)
        output.print_note(f"serving http://localhost:{server.port}/metrics; Ctrl-C ends it")
        ended = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: ended.set())
        try:
            ended.wait()
        except KeyboardInterrupt:
            pass
        finally:
            server.close()
