"""Real engines build the delivered image and start compose.yaml, unchanged: it leads, is scraped, pages, and comes back.

`make containers` runs it. Images of registries are replaced by substitutes (`substitute_images.py`); Grafana is left out.
"""

import json
import os
import signal
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy import engines
from tests.deploy.engines import COMPOSE_FILE, Engine
from tests.deploy.substitute_images import make_base, make_images
from tests.e2e.monitoring.servers import until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.alone,
    pytest.mark.skipif(
        "STOKER_CONTAINERS" not in os.environ,
        reason="`make containers` runs it: as root, with engines, debootstrap and a package index",
    ),
]

SERVICES = yaml.safe_load(COMPOSE_FILE.read_text())["services"]
STARTED = [name for name in SERVICES if name != "grafana"]
CLUSTER = ("--cluster", "/etc/stoker/cluster.yaml")
RECEIVED = "/tmp/received"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of a root file system with Python."""
    engines.need("debootstrap")
    return make_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(params=["podman", "docker"])
def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, base: Path
) -> Iterator[Engine]:
    """An engine with the substitute images, on which the services were started and are ended."""
    folder = tmp_path_factory.mktemp(request.param)
    pulled = {SERVICES[name]["image"] for name in STARTED if "build" not in SERVICES[name]}
    with getattr(engines, request.param)(folder) as started:
        make_images(started, folder, base, pulled)
        try:
            started.compose("up", "--build", "-d", *STARTED)
            yield started
        finally:
            started.compose("down", "-v")
        assert not started("ps", "-aq").strip()
        assert not started("volume", "ls", "-q").strip()


def ask_prometheus(path: str) -> Any:
    """Ask the API at the port that compose.yaml publishes."""
    with urllib.request.urlopen(f"http://localhost:9090/api/v1/{path}", timeout=10) as answer:
        return json.load(answer)["data"]


def value_of(metric: str) -> float | None:
    """Return the newest value that Prometheus has; None: it has none."""
    samples = ask_prometheus(f"query?query={metric}")["result"]
    return float(samples[0]["value"][1]) if samples else None


def received(engine: Engine) -> list[tuple[str, str, bool]]:
    """Return what the webhook got: path, alert, and whether it came from Prometheus."""
    lines = engine.in_service("network", "cat", RECEIVED).splitlines()
    rows = [json.loads(line) for line in lines]
    return [(path, alert, "instance" in labels) for path, alert, _, labels in rows]


def has_received(engine: Engine, path: str, alert: str, is_of_prometheus: bool) -> bool:
    """Whether the webhook got such an alert."""
    return (path, alert, is_of_prometheus) in received(engine)


def start_receiver(engine: Engine) -> None:
    """Start the webhook to which the delivered alertmanager.yml sends, in the shared network."""
    program = (Path(__file__).parent / "receiver.py").read_text()
    engine.in_service("network", "touch", RECEIVED)
    name = f"{engines.PROJECT}_network_1"
    engine("exec", "-d", name, "python", "-c", program, "9095", RECEIVED)


def kill(engine: Engine, service: str) -> None:
    """Kill a service's first process, as a crash would end it; wait until the engine has started another."""
    pid = int(engine.inspect(service, "{{.State.Pid}}"))
    os.kill(pid, signal.SIGKILL)

    def is_another() -> bool:
        state = engine.inspect(service, "{{.State.Status}} {{.State.Pid}}").split()
        return state[0] == "running" and int(state[1]) not in (0, pid)

    until(is_another, f"{service} runs again")


def test_the_delivered_containers_lead_page_and_come_back(engine: Engine) -> None:
    """Healthy, scraped, paging; killed servers come back; one that is stopped is reported by Prometheus' rule."""
    until(lambda: engine.is_healthy("supervisor"), "the supervisor is healthy", seconds=120)
    start_receiver(engine)
    assert "cluster lab: supervisor" in engine.in_service(
        "supervisor", "stoker", "status", *CLUSTER
    )
    [target] = until(lambda: ask_prometheus("targets")["activeTargets"], "Prometheus has a target")
    assert target["labels"]["job"] == "stoker"
    until(lambda: value_of("up") == 1, "Prometheus scrapes the supervisor")
    assert "accepted" in engine.in_service("supervisor", "stoker", "page", "--test", *CLUSTER)
    for wanted in (("/ticket", "StokerPage", False), ("/dead-mans-switch", "StokerWatchdog", True)):
        until(partial(has_received, engine, *wanted), f"the webhook gets {wanted}", seconds=120)
    groups = ask_prometheus("rules")["groups"]
    assert {rule["health"] for group in groups for rule in group["rules"]} == {"ok"}
    age = value_of("stoker_status_age_seconds")
    assert age is not None
    assert age < 10
    for service in ("redis", "supervisor"):
        kill(engine, service)
    until(lambda: engine.is_healthy("supervisor"), "the supervisor is healthy again", seconds=120)
    engine("stop", f"{engines.PROJECT}_supervisor_1")
    page = partial(has_received, engine, "/page", "StokerNotScraped", True)
    until(page, "the page about the supervisor", seconds=300)
    assert {alert for path, alert, _ in received(engine) if path == "/page"} <= {
        "StokerNotScraped",
        "StokerNoLeader",
    }
