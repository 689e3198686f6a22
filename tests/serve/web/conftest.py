"""The web page of a state folder that the test writes, served on a free port, and HTTP as a program or a browser speaks it."""

import http.client
import json
import re
import ssl
import urllib.parse
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from runner.serve.web.server import WebServer
from runner.token_file import WebRole, read_token_file, web_token_file
from tests.cli.conftest import Cluster
from tests.cli.conftest import cluster as cluster
from tests.cli.conftest import folder as folder

# For an answer of a loaded machine.
WAIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer: headers by their lower-case names."""

    code: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def plain(self) -> Any:
        """Its body as JSON."""
        return json.loads(self.body)


@dataclass(slots=True)
class Visit:
    """What a browser or a program keeps: its headers, cookies among them."""

    port: int
    headers: dict[str, str] = field(default_factory=dict)
    tls: ssl.SSLContext | None = None

    def connect(self) -> http.client.HTTPConnection:
        """Open a connection."""
        if self.tls is not None:
            return http.client.HTTPSConnection(
                "127.0.0.1", self.port, timeout=WAIT_SECONDS, context=self.tls
            )
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_SECONDS)

    def ask(
        self, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answered:
        """Send a GET, or a POST with a body."""
        connection = self.connect()
        try:
            method = "GET" if body is None else "POST"
            connection.request(method, path, body, {**self.headers, **(headers or {})})
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answered(answer.status, found, answer.read())
        finally:
            connection.close()

    def log_in(self, token: str, name: str = "ann") -> Answered:
        """Log in as the form does, and keep the cookie."""
        form = urllib.parse.urlencode({"token": token, "name": name}).encode()
        answer = self.ask("/login", form, {"origin": f"http://127.0.0.1:{self.port}"})
        cookie = answer.headers.get("set-cookie", "")
        if answer.code == 303:
            self.headers["cookie"] = cookie.partition(";")[0]
        return answer

    def write(self, headers: Mapping[str, str] | None = None, **wanted: object) -> Answered:
        """Ask for something, as the page's script does; `headers` replace those of the page."""
        check = self.ask("/api/session").plain.get("check", "")
        of_page = {"origin": f"http://127.0.0.1:{self.port}", "x-stoker-check": check}
        sent = {name: value for name, value in {**of_page, **(headers or {})}.items() if value}
        return self.ask("/api/requests", json.dumps(wanted).encode(), sent)

    def events(self) -> Generator[dict[str, Any]]:
        """Yield the events of the page, until the caller closes the iterator: then the connection breaks off."""
        connection = self.connect()
        try:
            connection.request("GET", "/api/events", headers=self.headers)
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            while line := answer.readline():
                if line.startswith(b"data: "):
                    yield json.loads(line[len(b"data: ") :])
        finally:
            connection.close()


class Site:
    """A cluster and its page."""

    def __init__(self, cluster: Cluster, server: WebServer) -> None:
        self.cluster, self.server = cluster, server

    def visit(self, **headers: str) -> Visit:
        """Return a visitor without a token."""
        return Visit(self.server.port, headers)

    def token(self, role: WebRole) -> str:
        """Return the token that counts."""
        return read_token_file(Path(web_token_file(self.cluster.spec, role))).tokens[0].decode()

    def viewer(self) -> Visit:
        """Return a program with a viewer's token."""
        return self.visit(authorization=f"Bearer {self.token('viewer')}")

    def browser(self, role: WebRole = "operator", name: str = "ann") -> Visit:
        """Return a browser that has logged in."""
        visit = self.visit()
        assert visit.log_in(self.token(role), name).code == 303
        return visit


@pytest.fixture
def site(cluster: Cluster) -> Iterator[Site]:
    """The page of a cluster whose status and journal tell of one crash; no supervisor leads it."""
    with WebServer(cluster.store, cluster.spec, port=0, address="127.0.0.1") as server:
        yield Site(cluster, server)


def texts(plain: object) -> Iterator[str]:
    """Yield every text of a JSON value, keys included."""
    if isinstance(plain, str):
        yield plain
    elif isinstance(plain, dict):
        for key, value in plain.items():
            yield from (key, *texts(value))
    elif isinstance(plain, list):
        for value in plain:
            yield from texts(value)


def is_harmless(text: str) -> bool:
    """Whether a text is short and has nothing that a terminal or a line of text would obey."""
    return len(text) <= 400 and text.isprintable() and not re.search("\x1b", text)
