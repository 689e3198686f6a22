"""Metrics: the View as Prometheus text, served over HTTP."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, get_args

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from runner.errors import StokerError, UserError
from runner.facts.incidents import IncidentState
from runner.facts.records import NodeStateName, RunStateName
from runner.facts.view import NodeView, RunView, View
from runner.history.account import CAUSES
from runner.serve.published import read_view
from runner.store.store import Store

NODE_STATES: tuple[str, ...] = get_args(NodeStateName)
RUN_STATES: tuple[str, ...] = get_args(RunStateName)
INCIDENT_STATES = tuple(state.value for state in IncidentState)
POLL_SECONDS = 1.0  # how long closing may take; chosen, not measured
REQUEST_SECONDS = 10.0  # a client that is slower than this is hung up on; chosen, not measured

Row = tuple[Sequence[str], float | None]

# Name, help, labels and value of what is said of each run. The names carry Prometheus' units.
_RUN_GAUGES: tuple[tuple[str, str, Callable[[RunView], float | None]], ...] = (
    ("stoker_run_step", "Last finished step of the newest attempt.", lambda r: r.step),
    ("stoker_run_best_step", "Furthest step any attempt reached.", lambda r: r.best_step),
    ("stoker_run_goal_steps", "Steps at which the run ends.", lambda r: r.total_steps),
    ("stoker_run_attempts", "Attempts planned so far.", lambda r: r.num_attempts),
    (
        "stoker_run_checkpoint_step",
        "Step of the newest trusted checkpoint.",
        lambda r: r.checkpoint_step,
    ),
    (
        "stoker_run_ettr_ratio",
        "Productive time / wall time since admission.",
        lambda r: r.ettr_ratio,
    ),
    (
        "stoker_run_last_progress_age_seconds",
        "Time since the last finished step.",
        lambda r: r.phase_seconds,
    ),
    ("stoker_run_loss", "Loss of the last step.", lambda r: r.last.loss if r.last else None),
    (
        "stoker_run_grad_norm",
        "Gradient norm before clipping.",
        lambda r: r.last.grad_norm if r.last else None,
    ),
    (
        "stoker_run_learning_rate",
        "Learning rate of the last step.",
        lambda r: r.last.lr if r.last else None,
    ),
    (
        "stoker_run_loss_scale",
        "Loss scale of the last step.",
        lambda r: r.last.loss_scale if r.last else None,
    ),
    (
        "stoker_run_tokens_per_second",
        "Tokens per second, whole run.",
        lambda r: r.last.tokens_per_second if r.last else None,
    ),
    (
        "stoker_run_mfu_ratio",
        "Model FLOPs utilisation.",
        lambda r: r.last.mfu_ratio if r.last else None,
    ),
    (
        "stoker_run_peak_memory_bytes",
        "Largest peak memory of a rank.",
        lambda r: r.last.peak_memory_bytes_max if r.last else None,
    ),
)


class ViewCollector(Collector):
    """Turns the View into metrics, each time it is asked. `read` returns None when nothing was published yet."""

    def __init__(self, read: Callable[[], View | None]) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families; only `stoker_up` when there is no View."""
        view = self._read()
        yield _gauge("stoker_up", "Whether a View was found.", (), [((), float(view is not None))])
        if view is not None:
            yield from _cluster(view)
            yield from _nodes(view.nodes)
            yield from _runs(view.runs)
            yield from _incidents(view)


def metrics_text(view: View | None) -> bytes:
    """Render a View in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ViewCollector(lambda: view))
    return generate_latest(registry)


class MetricsServer:
    """Serves `/metrics` from threads of its own until it is closed. Port 0 takes any free one, see `port`.

    Raises UserError when the port is taken.
    """

    def __init__(self, store: Store, *, port: int, address: str = "") -> None:
        try:
            self._server = ThreadingHTTPServer((address, port), _handler_for(store))
        except OSError as error:
            raise UserError(_refused(port, error)) from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": POLL_SECONDS},
            name="metrics",
            daemon=True,
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop serving and free the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(timeout=REQUEST_SECONDS)


@contextmanager
def serving_metrics(store: Store, *, port: int) -> Iterator[MetricsServer | None]:
    """Serve `/metrics` while the block runs; port 0 means not at all."""
    server = MetricsServer(store, port=port) if port else None
    try:
        yield server
    finally:
        if server is not None:
            server.close()


def _handler_for(store: Store) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Answers GET and HEAD of /metrics."""

        timeout = REQUEST_SECONDS
        server_version = "stoker"
        sys_version = ""

        def do_GET(self) -> None:
            """Serve the metrics, or say where they are."""
            self._answer(with_body=True)

        def do_HEAD(self) -> None:
            """Serve the headers alone."""
            self._answer(with_body=False)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the signature of http.server
            """Scrapes are no news."""

        def _answer(self, *, with_body: bool) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self._send(
                    404,
                    b"metrics are at /metrics\n",
                    "text/plain; charset=utf-8",
                    with_body=with_body,
                )
                return
            try:
                body = metrics_text(read_view(store))
            except StokerError as error:
                text = f"{error}\n".encode()
                self._send(503, text, "text/plain; charset=utf-8", with_body=with_body)
                return
            self._send(200, body, CONTENT_TYPE_LATEST, with_body=with_body)

        def _send(self, code: int, body: bytes, content_type: str, *, with_body: bool) -> None:
            self.send_response(code)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if with_body:
                self.wfile.write(body)

    return Handler


def _refused(port: int, error: OSError) -> str:
    if error.errno != errno.EADDRINUSE:
        return f"metrics_port: cannot listen on {port} ({error.strerror}); give another port, or 0 for none"
    return f"metrics_port: {port} is in use{_holder_of(port)}; give another port, or 0 for none"


def _holder_of(port: int) -> str:
    """Say which process listens on a port, where we may see that."""
    import psutil

    try:
        for connection in psutil.net_connections(kind="tcp"):
            taken = connection.laddr and connection.laddr.port == port
            if taken and connection.status == psutil.CONN_LISTEN and connection.pid:
                return f" by {psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except psutil.Error:
        pass
    return " by another process"


# ---- families -------------------------------------------------------------------------------------------------------


def _gauge(name: str, text: str, labels: Sequence[str], rows: Sequence[Row]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, value in rows:
        if value is not None:
            family.add_metric(values, value)
    return family


def _counter(name: str, text: str, labels: Sequence[str], rows: Sequence[Row]) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for values, value in rows:
        if value is not None:
            family.add_metric(values, value)
    return family


def _cluster(view: View) -> Iterator[Metric]:
    info = ("cluster", "holder")
    yield _gauge(
        "stoker_cluster_info", "Who leads which cluster.", info, [((view.cluster, view.holder), 1)]
    )
    age = max(0.0, time.time() - view.wall)
    yield _gauge("stoker_view_age_seconds", "Age of what these metrics show.", (), [((), age)])
    yield _counter(
        "stoker_journal_entries", "Entries in the journal.", (), [((), view.journal_sequence)]
    )
    failures = view.decision_failures
    yield _counter("stoker_decision_failures", "Decisions that raised.", (), [((), failures)])
    yield _gauge(
        "stoker_open_actions", "Actions without an outcome.", (), [((), len(view.open_actions))]
    )
    resident = view.supervisor_resident_bytes or None
    yield _gauge(
        "stoker_supervisor_resident_bytes", "Memory of the supervisor.", (), [((), resident)]
    )
    cpu = view.supervisor_cpu_seconds
    yield _counter("stoker_supervisor_cpu_seconds", "CPU time of the supervisor.", (), [((), cpu)])
    events = [((name,), float(count)) for name, count in view.counters.items()]
    yield _counter("stoker_events", "What the controller counted, by its name.", ("event",), events)


def _nodes(nodes: Sequence[NodeView]) -> Iterator[Metric]:
    spares = sum(node.state == "spare" for node in nodes)
    yield _gauge("stoker_spare_nodes", "Nodes that stand by.", (), [((), spares)])
    states = [((n.node, state), float(n.state == state)) for n in nodes for state in NODE_STATES]
    yield _gauge("stoker_node_state", "1 for the state a node is in.", ("node", "state"), states)
    heard = [((n.node,), n.heard_seconds_ago) for n in nodes]
    yield _gauge(
        "stoker_node_heard_age_seconds", "Time since a node's last sign.", ("node",), heard
    )
    ranks = [((n.node,), float(len(n.ranks_alive))) for n in nodes]
    yield _gauge("stoker_node_ranks", "Ranks alive on a node.", ("node",), ranks)
    memory = [((n.node,), n.agent_resident_bytes or None) for n in nodes]
    yield _gauge("stoker_agent_resident_bytes", "Memory of a node's agent.", ("node",), memory)
    warm = [((n.node,), n.warm_resident_bytes or None) for n in nodes]
    text = "Memory of a node's warm process."
    yield _gauge("stoker_warm_resident_bytes", text, ("node",), warm)
    ready = sum(node.warm == "ready" for node in nodes)
    text = "Nodes with a warm process that is ready to fork ranks."
    yield _gauge("stoker_warm_nodes", text, (), [((), ready)])


def _runs(runs: Sequence[RunView]) -> Iterator[Metric]:
    labels = ("run", "name")
    for name, text, value in _RUN_GAUGES:
        yield _gauge(name, text, labels, [((str(run.run), run.name), value(run)) for run in runs])
    states = [((str(r.run), r.name, s), float(r.state == s)) for r in runs for s in RUN_STATES]
    yield _gauge("stoker_run_state", "1 for the state a run is in.", (*labels, "state"), states)
    lost = [
        ((str(run.run), run.name, cause), run.lost_seconds.get(cause, 0.0))
        for run in runs
        for cause in CAUSES
    ]
    text = "Time that went into no contributing step, by cause."
    yield _gauge("stoker_run_lost_seconds", text, (*labels, "cause"), lost)


def _incidents(view: View) -> Iterator[Metric]:
    prefix = "incidents_"
    opened = [
        ((name.removeprefix(prefix),), float(count))
        for name, count in view.counters.items()
        if name.startswith(prefix)
    ]
    yield _counter(
        "stoker_incidents", "Incidents opened, by the fault that opened them.", ("fault",), opened
    )
    faults = dict.fromkeys(incident.fault for incident in view.incidents)
    shown = [
        ((fault, state), float(sum(i.fault == fault and i.state == state for i in view.incidents)))
        for fault in faults
        for state in INCIDENT_STATES
    ]
    text = "Incidents by fault and state, the newest hundred."
    yield _gauge("stoker_recent_incidents", text, ("fault", "state"), shown)
