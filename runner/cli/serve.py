"""Commands that stay: a supervisor, an agent, the metrics page. Heavy imports happen only when one of them runs."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import click

from runner.cli import show
from runner.cli.clusters import SPEC, find_cluster, keep_spec, store_of
from runner.cli.options import cluster_option, examples


@click.command(
    epilog=examples(
        "stoker supervise --cluster cluster.yaml",
        "stoker supervise        # lead this folder's cluster again after a crash",
    )
)
@cluster_option
def supervise(*, where: str | None) -> None:
    """Lead a cluster until `stoker shutdown`: start its agents, watch its runs, put right what goes wrong.

    Only one supervisor leads a cluster. When it dies, agents and ranks go on; the next one takes over where it was.
    """
    from runner import supervisor
    from runner.serve.metrics import serving_metrics

    cluster = find_cluster(where)
    keep_spec(cluster)
    with store_of(cluster, create=True) as store, serving_metrics(store, port=cluster.metrics_port):
        code = supervisor.main(cluster)
    click.get_current_context().exit(code)


@click.command(epilog=examples("stoker agent --cluster STATE --node n3"))
@click.option("--node", required=True, help="Name of the node.")
@click.option(
    "--slots", type=click.IntRange(min=1), help="Ranks it can hold; default: as the cluster says."
)
@click.option(
    "--address", default="127.0.0.1", show_default=True, help="Where other nodes reach it."
)
@cluster_option
def agent(*, node: str, slots: int | None, address: str, where: str | None) -> None:
    """Run one node's agent until SIGTERM. Supervisors start agents by themselves; this is for doing it by hand."""
    from runner.agent.__main__ import main as run_agent

    cluster = find_cluster(where)
    arguments = ["--cluster", str(Path(cluster.state) / SPEC), "--node", node, "--address", address]
    if slots is not None:
        arguments += ["--slots", str(slots)]
    click.get_current_context().exit(run_agent(arguments))


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
    from runner.serve.metrics import MetricsServer, metrics_text
    from runner.serve.published import read_view

    cluster = find_cluster(where)
    with store_of(cluster) as store:
        if port is None:
            click.echo(metrics_text(read_view(store)).decode(), nl=False)
            return
        server = MetricsServer(store, port=port)
        show.print_note(f"serving http://localhost:{server.port}/metrics; Ctrl-C ends it")
        ended = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: ended.set())
        try:
            ended.wait()
        except KeyboardInterrupt:
            pass
        finally:
            server.close()
