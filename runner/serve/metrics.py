"""The published status as Prometheus text, served over HTTP."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from runner.errors import StokerError, StoreUnavailable, UserError
from runner.facts.messages.cluster_status import ClusterStatus
from runner.serve import metric_families
from runner.serve.metric_families import gauge
from runner.serve.status_reader import StoreStatus, read_status, read_store_status
from runner.store.protocol import Store

# Until a closed server ends. Chosen, not measured.
POLL_SECONDS = 1.0
# Slower clients are disconnected. Chosen, not measured.
REQUEST_SECONDS = 10.0


class StatusCollector(Collector):
    """Turns the published status into metrics at each scrape."""

    def __init__(self, read: Callable[[], tuple[ClusterStatus | None, StoreStatus | None]]) -> None:
        """`read` returns None for what was not published; it may raise StoreUnavailable."""
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families; without store or status, only that they are missing."""
        status, store_status, reached = None, None, 1.0
        try:
            status, store_status = self._read()
        except StoreUnavailable:
            reached = 0.0
        yield gauge("stoker_store_up", "Whether the store answers.", (), [((), reached)])
        yield gauge(
            "stoker_up", "Whether a status was found.", (), [((), float(status is not None))]
        )
        if store_status is not None:
            yield from metric_families.store(store_status)
        if status is not None:
            yield from metric_families.cluster(status)
            yield from metric_families.nodes(status.nodes)
            yield from metric_families.hardware(status)
            yield from metric_families.runs(status.runs)
            yield from metric_families.incidents(status)


def metrics_text(status: ClusterStatus | None, store_status: StoreStatus | None = None) -> bytes:
    """Render a status, and that of its store, in Prometheus' text format."""
    return _rendered(lambda: (status, store_status))


def metrics_of(store: Store) -> bytes:
    """Render what the store holds now. An unreachable store is a metric; foreign content raises PermanentError."""
    return _rendered(lambda: (read_status(store), read_store_status(store)))


def _rendered(read: Callable[[], tuple[ClusterStatus | None, StoreStatus | None]]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(StatusCollector(read))
    return generate_latest(registry)


class MetricsServer:
    """Serves `/metrics` from threads of its own until it is closed. Port 0: any free one, see `port`.

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
            """Serve the metrics."""
            self._answer(with_body=True)

        def do_HEAD(self) -> None:
            """Serve the headers alone."""
            self._answer(with_body=False)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the signature of http.server
            """Log nothing: scrapes are routine."""

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
                body = metrics_of(store)
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
    """Name the process that listens on a port, if this process may see it."""
    import psutil

    try:
        for connection in psutil.net_connections(kind="tcp"):
            taken = connection.laddr and connection.laddr.port == port
            if taken and connection.status == psutil.CONN_LISTEN and connection.pid:
                return f" by {psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except psutil.Error:
        pass
    return " by another process"
