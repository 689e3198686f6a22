"""A real HTTP server on a free port that gets pages: it accepts, refuses, hangs or is gone, as a test says."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self

Behaviour = Literal["accept", "refuse", "hang", "redirect", "no_http"]
_CODES = {"accept": 200, "refuse": 500, "redirect": 302}


class Webhook:
    """One server. `accepted` and `refused` have the bodies of requests, as JSON; one of a GET is None."""

    def __init__(self, behaviour: Behaviour = "accept", port: int = 0) -> None:
        """Start it, on a port of its own by default."""
        self.behaviour: Behaviour = behaviour
        self.accepted: list[Any] = []
        self.refused: list[Any] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self._released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def place(self) -> str:
        """Where it listens, for an address of any scheme."""
        return f"127.0.0.1:{self.port}"

    def close(self) -> None:
        """Be gone; requests that hang end."""
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                self._answer(json.loads(self.rfile.read(size)))

            def do_GET(self) -> None:
                self._answer(None)

            def _answer(self, body: Any) -> None:
                webhook.paths.append(self.path)
                webhook.headers.append(dict(self.headers))
                behaviour = webhook.behaviour
                if behaviour == "accept":
                    webhook.accepted.append(body)
                else:
                    webhook.refused.append(body)
                if behaviour == "hang":
                    webhook._released.wait()
                elif behaviour == "no_http":
                    self.wfile.write(b"\x1b[31mno http\r\n\r\n")
                else:
                    self.send_response(_CODES[behaviour])
                    self.send_header("Location", "/elsewhere")
                    self.send_header("Content-Length", "0")
                    self.end_headers()

            def log_message(self, *_: object) -> None:
                return

        return Handler
