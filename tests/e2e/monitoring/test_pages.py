"""Pages of a real run by a real Alertmanager with the delivered routes, and its dead-man's switch."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster_harness import ClusterHarness
from tests.e2e.monitoring.servers import Webhook, alertmanager, ask, need, until

pytestmark = pytest.mark.timeout(600)

SIGNS_SECONDS = 1.0


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    """The receiver behind Alertmanager."""
    made = Webhook()
    yield made
    made.close()


def raised(place: str) -> list[dict[str, Any]]:
    """Return the labels of the alerts that Alertmanager takes for raised."""
    found = ask(f"http://{place}", "/api/v2/alerts", active="true")
    return [each["labels"] for each in found]


def urgent(webhook: Webhook) -> list[Mapping[str, Any]]:
    """Return the pages that the receiver of pages was notified of; those that can wait go elsewhere."""
    return [each for path, each in webhook.of("StokerPage", "firing") if path == "/page"]


def test_a_page_is_notified_once_and_a_dead_supervisor_is_noticed(
    harness: ClusterHarness, webhook: Webhook, tmp_path: Path
) -> None:
    """The page goes to the receiver of pages, with the command that helps; when the supervisor dies, the watchdog is over."""
    need("prometheus-alertmanager")
    with alertmanager(tmp_path / "alertmanager", webhook=webhook.address) as place:
        path = harness.folder / "pages.addresses"
        path.write_text(f"oncall alertmanager://{place}\n")
        path.chmod(0o600)
        pages = {"addresses_file": path.name, "heartbeat_seconds": SIGNS_SECONDS}
        harness.write_cluster(nodes=1, slots=1, limits={"pages": pages, "checks": []})
        script = harness.write_script("raise ValueError('<b>no such option</b>')\n")
        harness.write_run(command=f"{{python}} {script.name}", python=sys.executable, nodes=1)
        supervisor = harness.start("supervise")
        harness.until(harness.view, "a first View")
        until(lambda: webhook.of("StokerWatchdog", "firing"), "the watchdog is raised")
        assert harness.stoker("run", "run.yaml", "--detach").returncode == 0
        alert = until(lambda: urgent(webhook), "the page is notified")[0]
        labels, annotations = alert["labels"], alert["annotations"]
        assert labels["run"] == harness.name
        assert annotations["command"] == f"stoker explain {labels['incident']}"
        assert f"stoker ack {labels['incident']}" in annotations["description"]
        assert harness.stoker("ack", labels["incident"], "--why", "I look").returncode == 0
        supervisor.kill()
        supervisor.wait()
        until(
            lambda: not [x for x in raised(place) if x["alertname"] == "StokerWatchdog"],
            "the watchdog is over",
        )
        until(lambda: webhook.of("StokerWatchdog", "resolved"), "its receiver is told")
        assert [each["labels"]["page"] for each in urgent(webhook)] == [labels["page"]]
        following = harness.start("supervise")
        until(
            lambda: [x for x in raised(place) if x["alertname"] == "StokerWatchdog"],
            "the next supervisor raises it",
        )
        assert harness.stoker("shutdown").returncode == 0
        assert following.wait(60) == 0
