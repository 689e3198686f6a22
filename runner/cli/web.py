"""`stoker web`: the web page of a cluster, and the process of its own in which a supervisor has it served."""

import contextlib
import gc
import signal
import threading
from collections.abc import Iterator

import click

from runner.cli import clusters, output
from runner.cli.options import cluster_option, command
from runner.errors import UserError
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.specs.programs import module_command

# Where neither cluster.yaml nor the command names one; chosen.
DEFAULT_PORT = 8470
# A status is thousands of objects, which form no cycles and are gone before a collection; chosen, bench/web.
GC_THRESHOLDS = (50_000, 20, 50)


@command(
    "stoker web                                        the page of this folder's cluster, for this machine",
    "stoker web --address 0.0.0.0 --port 8470          for others, too; give web_certificate_file in cluster.yaml",
    "stoker web --socket /run/user/1000/stoker.sock    for its owner only; from a laptop:",
    "ssh -L 8470:/run/user/1000/stoker.sock HOST       and then http://localhost:8470/",
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help=f"Serve on this port. Default: `web_port` of cluster.yaml, or {DEFAULT_PORT}.",
)
@click.option("--address", help="Serve on this address. Default: `web_address`.")
@click.option(
    "--socket", "path", metavar="PATH", help="Serve on a unix socket that only its owner may use."
)
@click.option("--while-stdin-is-open", "is_child", is_flag=True, hidden=True)
@cluster_option
def web(
    *, port: int | None, address: str | None, path: str | None, is_child: bool, where: str | None
) -> None:
    """Serve the cluster's web page until Ctrl-C: runs, nodes, incidents, and what people may ask.

    It reads the store, not the supervisor, so it works on any machine, also while none leads. A visitor shows the token of a
    viewer or of an operator, whose files it prints; on a unix socket its owner reads without one. `stoker docs web` says more.
    """
    try:
        from runner.serve.serving_child import on_end_of_parent
        from runner.serve.web.server import WebServer
    except ImportError as error:
        raise UserError(
            f"the web page needs a package that is not here ({error.name}); `pip install 'stoker[web]'`"
        ) from error

    gc.set_threshold(*GC_THRESHOLDS)
    with clusters.open_cluster(where, only_reads=True) as (cluster, store):
        server = WebServer(
            store,
            cluster,
            port=port or cluster.web_port or DEFAULT_PORT,
            address=address or cluster.web_address,
            path=path or "",
        )
        ended = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: ended.set())
        if is_child:
            on_end_of_parent(ended.set)
        with server, contextlib.suppress(KeyboardInterrupt):
            output.print_note(f"serving {server.place}; Ctrl-C ends it")
            output.print_note(f"token of viewers: {server.access.file_of('viewer')}")
            output.print_note(f"token of operators: {server.access.file_of('operator')}")
            ended.wait()


@contextlib.contextmanager
def web_child(cluster: ClusterSpec, where: str | None) -> Iterator[None]:
    """Have a process of its own serve the page while the block runs, if cluster.yaml gives `web_port`.

    Where it cannot serve, it logs why and is tried again, and the supervisor goes on.
    """
    if not cluster.web_port:
        yield
        return
    from runner.serve.serving_child import ServingChild

    arguments = ["web", "--while-stdin-is-open", *([] if where is None else ["--cluster", where])]
    with ServingChild("web page", module_command("runner.cli.main", *arguments)):
        yield
