"""`stoker metrics`: the cluster's metrics once or served, and the process of its own in which a supervisor has them served."""

import contextlib
import gc
import signal
import socket
import threading
import time
from collections.abc import Iterator

import click

from runner.cli import clusters, output
from runner.cli.options import cluster_option, command
from runner.errors import UserError
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.specs.programs import module_command
from runner.signer import signer_of

# A status is thousands of objects, which form no cycles and are gone before a collection; chosen, bench/scrape.
GC_THRESHOLDS = (50_000, 20, 50)
# In which the process that served for a supervisor that was killed has ended, and freed its port. Chosen, not measured.
PORT_WAIT_SECONDS, PORT_POLL_SECONDS = 3.0, 0.1


@command(
    "stoker metrics                                       print them once",
    "stoker metrics --port 9464 --cluster cluster.yaml    serve them at /metrics",
)
@click.option("--port", type=click.IntRange(1, 65535), help="Serve on this port until Ctrl-C.")
@click.option("--address", help="Serve on this address; default: `metrics_address`.")
@click.option("--listening", "descriptor", type=click.IntRange(min=3), hidden=True)
@cluster_option
def metrics(
    *, port: int | None, address: str | None, descriptor: int | None, where: str | None
) -> None:
    """Print the cluster's metrics in Prometheus' text format, or serve them.

    They are read from the store, not from the supervisor: with a dead supervisor they are served with their age.
    """
    from runner.serve.metrics import MetricsServer, metrics_of
    from runner.serve.serving_child import on_end_of_parent

    gc.set_threshold(*GC_THRESHOLDS)
    with clusters.open_cluster(where) as (cluster, store):
        signer = signer_of(cluster)
        if port is None and descriptor is None:
            click.echo(metrics_of(store, signer).decode(), nl=False)
            return
        ended = threading.Event()
        if descriptor is not None:
            on_end_of_parent(ended.set)
            listening = socket.socket(fileno=descriptor)
            server = MetricsServer(store, signer=signer, listening=listening)
        else:
            address = address or cluster.metrics_address
            server = MetricsServer(store, port=port or 0, address=address, signer=signer)
            output.print_note(f"serving http://{address}:{server.port}/metrics; Ctrl-C ends it")
        signal.signal(signal.SIGTERM, lambda *_: ended.set())
        try:
            ended.wait()
        except KeyboardInterrupt:
            pass
        finally:
            server.close()


@contextlib.contextmanager
def metrics_child(cluster: ClusterSpec, where: str | None) -> Iterator[socket.socket | None]:
    """Have a process of its own serve the metrics while the block runs, if cluster.yaml gives `metrics_port`; yield its socket.

    The caller listens, so that a port in use is its error (UserError), and scrapes wait while that process starts.
    """
    if not cluster.metrics_port:
        yield None
        return
    from runner.serve.serving_child import ServingChild

    with _listen_in_time(cluster.metrics_address, cluster.metrics_port) as listening:
        descriptor = listening.fileno()
        arguments = ["metrics", "--listening", str(descriptor)]
        arguments += [] if where is None else ["--cluster", where]
        command = module_command("runner.cli.main", *arguments)
        with ServingChild("metrics", command, passed=(descriptor,)):
            yield listening


def _listen_in_time(address: str, port: int) -> socket.socket:
    """Listen, within moments of the end of a supervisor that was killed; raise UserError."""
    from runner.serve.metrics import listen

    until = time.monotonic() + PORT_WAIT_SECONDS
    while True:
        try:
            return listen(address, port)
        except UserError:
            if time.monotonic() > until:
                raise
            time.sleep(PORT_POLL_SECONDS)
