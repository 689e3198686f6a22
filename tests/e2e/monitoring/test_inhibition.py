"""One cause pages once: what a real Alertmanager holds back of alerts about the same run, the same rack, the same supervisor."""

import json
import time
import urllib.request
from pathlib import Path
from typing import Any

from runner.act.pager.text import alert
from runner.facts.actions import OperatorPage
from tests.e2e.monitoring.servers import Webhook, alertmanager, ask, until

HERE = {"cluster": "lab", "instance": "localhost:9838"}


def of_prometheus(name: str, severity: str, **labels: str) -> dict[str, Any]:
    """Return an alert as Prometheus sends it."""
    return {"labels": {"alertname": name, "severity": severity, **HERE, **labels}}


def test_a_cause_is_sent_once_and_another_run_is_not_held_back(
    webhook: Webhook, tmp_path: Path
) -> None:
    """Stoker's urgent page hides what Prometheus sees of that run, and a rack that is down the nodes that are lost."""
    content = OperatorPage(text="gave up", urgent=True, run="tiny", incident="i1")
    now = time.time()
    own = alert("lab", "p-1", content, team="oncall", starts_at=now, ends_at=now + 600)
    sent = [
        own,
        of_prometheus("StokerRunFailed", "critical", run="tiny"),
        of_prometheus("StokerRunWaits", "warning", run="tiny"),
        of_prometheus("StokerRunFailed", "critical", run="other"),
        of_prometheus("StokerDomainDown", "critical", domain="rack r2"),
        of_prometheus("StokerManyNodesLost", "critical"),
        of_prometheus("StokerNotScraped", "critical"),
        of_prometheus("StokerStatusStale", "critical"),
    ]
    with alertmanager(tmp_path / "alertmanager", webhook=webhook.address) as place:
        request = urllib.request.Request(
            f"http://{place}/api/v2/alerts",
            data=json.dumps(sent).encode(),
            headers={"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=30).close()

        def held_back() -> set[tuple[str, str]]:
            return {
                (each["labels"]["alertname"], each["labels"].get("run", ""))
                for each in ask(f"http://{place}", "/api/v2/alerts")
                if each["status"]["inhibitedBy"]
            }

        wanted = {
            ("StokerRunFailed", "tiny"),
            ("StokerRunWaits", "tiny"),
            ("StokerManyNodesLost", ""),
            ("StokerStatusStale", ""),
        }
        until(lambda: held_back() == wanted, "these and no others are held back")
        until(lambda: webhook.of("StokerPage", "firing"), "the page is sent")
