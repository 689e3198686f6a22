"""The published status as Prometheus text, served over HTTP; beside it, what the serving process itself takes."""

import errno
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from runner.errors import Forged, StokerError, StoreUnavailable, UserError
from runner.facts.messages.cluster_status import CheckStatus, ClusterStatus
from runner.serve import check_families, metric_families, page_families, run_families
from runner.serve.exposition import CONTENT_TYPE, MetricFamily, gauge, render
from runner.serve.port_holder import holder_of
from runner.serve.status_reader import (
    StoreStatus,
    read_check_payload,
    read_status,
    read_store_status,
)
from runner.signer import UNSIGNED, Signer
from runner.store.protocol import Store

LOOPBACK = "127.0.0.1"
# Chosen, not measured.
CLOSE_POLL_SECONDS = 1.0
MAX_REQUEST_SECONDS = 10.0
# Scrapes that wait to be accepted.
BACKLOG = 16


class RenderedChecks:
    """The families of checks as text, as long as the register that they are made of holds the same bytes.

    Results of checks change seldom, and are most of what a large fleet's scrape is made of.
    """

    def __init__(self) -> None:
        self._newest: tuple[bytes, bytes] | None = None

    def of(self, payload: bytes | None) -> bytes:
        """Return the text of what the register holds, none of an empty one; raise PermanentError for foreign content."""
        if payload is None:
            return b""
        newest = self._newest
        if newest is None or newest[0] != payload:
            text = render(check_families.checks(check_families.decode_shown(payload)))
            self._newest = newest = payload, text
        return newest[1]


def metrics_of(
    store: Store, signer: Signer = UNSIGNED, rendered_checks: RenderedChecks | None = None
) -> bytes:
    """Render what the store holds now. An unreachable store is a metric; foreign content raises PermanentError.

    A status written without the cluster's token counts as none.
    """
    begun_at = time.perf_counter()
    try:
        status = checks = None
        with suppress(Forged):
            status = read_status(store, signer)
            checks = read_check_payload(store, signer)
        found = read_store_status(store)
        found = replace(found, read_seconds=time.perf_counter() - begun_at)
        return metrics_text(status, found) + (rendered_checks or RenderedChecks()).of(checks)
    except StoreUnavailable:
        return metrics_text(None, is_store_up=False)


def metrics_text(
    status: ClusterStatus | None,
    store_status: StoreStatus | None = None,
    *,
    checks: CheckStatus | None = None,
    is_store_up: bool = True,
) -> bytes:
    """Render a status, its store's, and results of checks as Prometheus' text; without a status, that it is missing."""
    return render(_families(status, store_status, checks, is_store_up))


def _families(
    status: ClusterStatus | None,
    store_status: StoreStatus | None,
    checks: CheckStatus | None,
    is_store_up: bool,
) -> Iterator[MetricFamily]:
    yield gauge("stoker_store_up", "Whether the store answers.", is_store_up)
    yield gauge("stoker_up", "Whether a status was found.", status is not None)
    if store_status is not None:
        yield from metric_families.store(store_status)
    if status is not None:
        yield from metric_families.cluster(status)
        yield from metric_families.nodes(status.nodes)
        yield from metric_families.hardware(status)
        yield from run_families.runs(status.runs)
        yield from run_families.proposals(status)
        yield from metric_families.incidents(status)
        if status.pages is not None:
            yield from page_families.pages(status.pages, status.now)
    if checks is not None:
        yield from check_families.checks(checks)


class MetricsServer:
    """Serves `/metrics` from threads of its own until it is closed. Port 0: any free one, see `port`.

    `listening`: the socket to serve on, instead of one of its own. Raises UserError when the port is taken.
    """

    def __init__(
        self,
        store: Store,
        *,
        port: int = 0,
        address: str = LOOPBACK,
        signer: Signer = UNSIGNED,
        listening: socket.socket | None = None,
    ) -> None:
        listening = listening or listen(address, port)
        handler = _handler_for(store, signer, own_process_metrics())
        self._server = ThreadingHTTPServer(
            listening.getsockname()[:2], handler, bind_and_activate=False
        )
        self._server.socket.close()
        self._server.socket = listening
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": CLOSE_POLL_SECONDS},
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
        # Closes the socket, too.
        self._server.server_close()
        self._thread.join(timeout=MAX_REQUEST_SECONDS)


def listen(address: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0: any free one. Raises UserError, which names who has the port."""
    try:
        return socket.create_server((address, port), backlog=BACKLOG)
    except OSError as error:
        raise UserError(_refused(address, port, error)) from error


def own_process_metrics() -> Callable[[], bytes]:
    """Return what renders CPU time, memory and descriptors of this process, under the standard names of the official client."""
    # Imported here: no command but those that serve metrics should load it.
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    return partial(generate_latest, registry)


def _handler_for(
    store: Store, signer: Signer, own_metrics: Callable[[], bytes]
) -> type[BaseHTTPRequestHandler]:
    rendered_checks = RenderedChecks()

    class Handler(BaseHTTPRequestHandler):
        """Answers GET and HEAD of /metrics."""

        timeout = MAX_REQUEST_SECONDS
        server_version = "stoker"
        sys_version = ""

        def do_GET(self) -> None:
            """Serve the metrics."""
            if self.path.partition("?")[0] != "/metrics":
                self._send(404, b"metrics are at /metrics\n")
                return
            try:
                text = metrics_of(store, signer, rendered_checks) + own_metrics()
                self._send(200, text, CONTENT_TYPE)
            except StokerError as error:
                self._send(503, f"{error}\n".encode())

        # Its answer has no body.
        do_HEAD = do_GET  # noqa: N815 - the name that http.server calls

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the signature of http.server
            """Log nothing: scrapes are routine."""

        def _send(
            self, code: int, body: bytes, content_type: str = "text/plain; charset=utf-8"
        ) -> None:
            self.send_response(code)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    return Handler


def _refused(address: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRNOTAVAIL:
        return f"metrics_address: {address} is no address of this machine; name one, or {LOOPBACK}"
    if error.errno != errno.EADDRINUSE:
        return f"metrics_port: cannot listen on {port} ({error.strerror}); give another port, or 0 for none"
    return f"metrics_port: {port} is in use{holder_of(port)}; give another port, or 0 for none"
