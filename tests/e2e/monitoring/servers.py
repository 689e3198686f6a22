"""Prometheus and Alertmanager with the files of deploy/, on free ports, and a webhook that keeps what they send."""

import json
import os
import shutil
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest
import yaml

DEPLOY = Path(__file__).parents[3] / "deploy"
WAIT_SECONDS = 60.0
# In place of the delivered times, so that a test need not wait. An alert outlasts several scrapes that a loaded machine misses.
SCRAPE, HOLD = "1s", "4s"
# Of rules that wait by their expression: alert -> what its wait is, and what it is in tests.
SOONER = {"StokerProposalWaits": ("> 900", "> 4")}

T = TypeVar("T")


def need(program: str) -> str:
    """Return the program's path; without it the test is skipped, but not in CI, which installs it."""
    found = shutil.which(program)
    if found is None:
        assert not os.environ.get("CI"), f"tests/install-tools.sh installs {program}"
        pytest.skip(f"no {program}; tests/install-tools.sh installs it")
    return found


def until(holds: Callable[[], T | None], what: str, *, seconds: float = WAIT_SECONDS) -> T:
    """Poll until a condition holds; return its value."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = holds()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"never: {what}")


@contextmanager
def serving(command: list[str], log: Path) -> Iterator[str]:
    """Run a server that takes a free port by itself; give its address once it is ready."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    try:
        port = until(lambda: _port_of(process, log), f"{command[0]} listens")
        address = f"http://127.0.0.1:{port}"
        until(lambda: _is_ready(address), f"{command[0]} is ready")
        yield address
    finally:
        process.terminate()
        process.wait(30)


def _port_of(process: subprocess.Popen[bytes], log: Path) -> int | None:
    assert process.poll() is None, log.read_text()
    connections = psutil.Process(process.pid).net_connections(kind="tcp")
    return next((each.laddr.port for each in connections if each.status == "LISTEN"), None)


def _is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/-/ready", timeout=30):
            return True
    except OSError:
        return False


def ask(address: str, path: str, **parameters: str) -> Any:
    """Return what an API answers to GET."""
    query = urllib.parse.urlencode(parameters)
    with urllib.request.urlopen(f"{address}{path}?{query}", timeout=30) as answer:
        return json.load(answer)


class Prometheus:
    """A Prometheus that scrapes as deploy/prometheus.yml says, but a metrics port of the test's, and more often."""

    def __init__(self, address: str) -> None:
        self.address = address

    def query(self, text: str) -> list[dict[str, Any]]:
        """Return the series that an instant query gives."""
        found: list[dict[str, Any]] = ask(self.address, "/api/v1/query", query=text)["data"][
            "result"
        ]
        return found

    def names(self, label: str, series: str) -> list[str]:
        """Return the values of a label of series."""
        path = f"/api/v1/label/{label}/values"
        found: list[str] = ask(self.address, path, **{"match[]": series})["data"]
        return found

    def alerts(self) -> dict[str, str]:
        """Return name -> state of alerts that fire or wait for their time."""
        found = ask(self.address, "/api/v1/alerts")["data"]["alerts"]
        return {alert["labels"]["alertname"]: alert["state"] for alert in found}


def configured(folder: Path, *, metrics_port: int, alertmanager: str | None = None) -> Path:
    """Write deploy/prometheus.yml with the test's ports and intervals, and rules that fire sooner; return the file."""
    config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    for name in ("scrape_interval", "scrape_timeout", "evaluation_interval"):
        config["global"][name] = SCRAPE
    [job] = [job for job in config["scrape_configs"] if job["job_name"] == "stoker"]
    [static] = job["static_configs"]
    assert len(static["targets"]) == 1
    static["targets"] = [f"127.0.0.1:{metrics_port}"]
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            if "for" in rule:
                rule["for"] = HOLD
            if rule["alert"] in SOONER:
                before, after = SOONER[rule["alert"]]
                assert rule["expr"].count(before) == 1
                rule["expr"] = rule["expr"].replace(before, after)
    config["rule_files"] = [str(folder / "alerts.yml")]
    [static] = config["alerting"]["alertmanagers"][0]["static_configs"]
    static["targets"] = [alertmanager] if alertmanager else []
    (folder / "alerts.yml").write_text(yaml.safe_dump(rules))
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    return path


@contextmanager
def prometheus(
    folder: Path, *, metrics_port: int, alertmanager: str | None = None
) -> Iterator[Prometheus]:
    """Run a Prometheus in a folder."""
    folder.mkdir(exist_ok=True)
    config = configured(folder, metrics_port=metrics_port, alertmanager=alertmanager)
    options = [f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    options += ["--web.listen-address=127.0.0.1:0", "--log.level=warn"]
    with serving([need("prometheus"), *options], folder / "prometheus.log") as address:
        yield Prometheus(address)


@contextmanager
def alertmanager(folder: Path, *, webhook: str) -> Iterator[str]:
    """Run an Alertmanager with the delivered routes, without most of their waiting; give host and port.

    Its receivers are the delivered webhooks, below another address.
    """
    folder.mkdir(exist_ok=True)
    config = yaml.safe_load((DEPLOY / "alertmanager.yml").read_text())
    for route in (config["route"], *config["route"]["routes"]):
        route |= {"group_wait": "0s", "group_interval": "1s"}
    for receiver in config["receivers"]:
        [hook] = receiver["webhook_configs"]
        hook["url"] = webhook + urllib.parse.urlsplit(hook["url"]).path
    path = folder / "alertmanager.yml"
    path.write_text(yaml.safe_dump(config))
    options = [f"--config.file={path}", f"--storage.path={folder / 'data'}"]
    options += ["--web.listen-address=127.0.0.1:0", "--cluster.listen-address="]
    command = [need("prometheus-alertmanager"), *options]
    with serving(command, folder / "alertmanager.log") as address:
        yield urllib.parse.urlsplit(address).netloc


class Webhook:
    """Receives what Alertmanager sends, each message with the path that it was sent to."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, dict[str, Any]]] = []
        messages = self.messages

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                messages.append((self.path, json.loads(body)))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's signature
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def of(self, alert: str, status: str) -> list[tuple[str, Mapping[str, Any]]]:
        """Return the alerts of a name and status that have come so far, each with the path."""
        return [
            (path, each)
            for path, message in list(self.messages)
            for each in message["alerts"]
            if each["labels"]["alertname"] == alert and each["status"] == status
        ]
