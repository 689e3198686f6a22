"""The page's server: a socket of ours, and uvicorn on it in a thread, until it is closed."""

import errno
import logging
import os
import socket
import stat
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import uvicorn

from runner.errors import UserError
from runner.facts.specs.cluster import ClusterSpec
from runner.serve.port_holder import holder_of
from runner.serve.web.access import Access
from runner.serve.web.app import PageRoutes
from runner.serve.web.feed import Feed
from runner.store.protocol import Store

# Connections at once; a page has two. Chosen.
MAX_CONNECTIONS = 500
# For answers in progress when the server is closed; chosen.
CLOSE_SECONDS = 2.0
BACKLOG = 128


class WebServer:
    """Serves one cluster's page while the block runs. `port` 0: any free one. `path`: a unix socket instead, for its owner only.

    Raises UserError when it cannot listen there, or a token's or TLS file cannot be used.
    """

    def __init__(
        self,
        store: Store,
        cluster: ClusterSpec,
        *,
        port: int = 0,
        address: str = "",
        path: str = "",
    ) -> None:
        self.access = Access(cluster, is_private=bool(path))
        self._path = path
        self._socket = _unix_socket(path) if path else _tcp_socket(address, port)
        self._feed = Feed(store, cluster)
        self._is_tls = bool(cluster.web_certificate_file) and not path
        config = uvicorn.Config(
            PageRoutes(store, cluster, self.access, self._feed).app(),
            http="h11",
            ws="none",
            lifespan="off",
            loop="asyncio",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_graceful_shutdown=int(CLOSE_SECONDS),
            ssl_certfile=cluster.web_certificate_file if self._is_tls else None,
            ssl_keyfile=cluster.web_key_file if self._is_tls else None,
        )
        try:
            config.load()
        except OSError as error:
            self._socket.close()
            raise UserError(
                f"web_certificate_file: {cluster.web_certificate_file} and {cluster.web_key_file} cannot be used ({error}); name a "
                "PEM file of the certificate, and one of its key"
            ) from error
        # It logs each request that a browser broke off.
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, args=([self._socket],), name="web", daemon=True
        )
        self._closing = ExitStack()

    @property
    def port(self) -> int:
        """The port it listens on; 0 for a unix socket."""
        return 0 if self._path else int(self._socket.getsockname()[1])

    @property
    def place(self) -> str:
        """What a person opens: a URL, or the path of the socket."""
        if self._path:
            return self._path
        host = self._socket.getsockname()[0]
        host = f"[{host}]" if ":" in host else host
        return f"{'https' if self._is_tls else 'http'}://{host}:{self.port}/"

    def __enter__(self) -> Self:
        self._closing.enter_context(self._feed)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._closing.close()
        self._thread.join(timeout=2 * CLOSE_SECONDS)
        self._socket.close()
        if self._path:
            Path(self._path).unlink(missing_ok=True)


def _tcp_socket(address: str, port: int) -> socket.socket:
    try:
        family, _, _, _, place = socket.getaddrinfo(
            address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise UserError(f"web_address: {address} is no address ({error}); name one") from error
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(place)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise UserError(_refused(address, port, error)) from error
    return listening


def _unix_socket(path: str) -> socket.socket:
    """Listen on a unix socket of mode 0600. One that a server left behind when it was killed is replaced."""
    file = Path(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if file.exists() and stat.S_ISSOCK(file.stat().st_mode):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                if probe.connect_ex(path) == 0:
                    raise UserError(f"--socket: {path} is in use by another process; name another")
            file.unlink()
        # No moment in which others could connect.
        before = os.umask(0o177)
        try:
            listening.bind(path)
        finally:
            os.umask(before)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        raise UserError(f"--socket: {path} cannot be made ({error}); name another") from error
    except UserError:
        listening.close()
        raise
    return listening


def _refused(address: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRNOTAVAIL:
        return f"web_address: {address} is no address of this machine; name one, or 127.0.0.1"
    if error.errno != errno.EADDRINUSE:
        return f"web_port: cannot listen on {port} ({error.strerror}); give another port"
    return (
        f"web_port: {port} is in use{holder_of(port)}; give another port, by `web_port` or --port"
    )
