"""Alerts: from a drill in a real run through a real Prometheus and Alertmanager to a webhook, and the dead-man's switch."""

from pathlib import Path

import pytest

from tests.e2e.cluster_harness import ClusterHarness, run_of
from tests.e2e.monitoring.servers import Webhook, alertmanager, prometheus, until
from tests.e2e.monitoring.training import end, monitored_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SWITCH = "/dead-mans-switch"


def test_an_alert_of_a_drill_arrives_once_and_resolves_and_a_dead_supervisor_is_noticed(
    harness: ClusterHarness, webhook: Webhook, tmp_path: Path
) -> None:
    """Spares that a killed node uses up are one ticket until it is back; a killed supervisor is a page, and the switch opens."""
    monitored = monitored_run(harness)
    with (
        alertmanager(tmp_path / "alertmanager", webhook=webhook.address) as manager,
        prometheus(
            tmp_path / "prometheus", metrics_port=monitored.metrics_port, alertmanager=manager
        ) as server,
    ):

        def paths(alert: str, status: str) -> set[str]:
            return {path for path, _ in webhook.of(alert, status)}

        until(lambda: paths("StokerWatchdog", "firing") == {SWITCH}, "the switch is held")
        before = run_of(harness.view()).attempt
        assert harness.stoker("drill", "kill-node", "--node", "n2").returncode == 0
        harness.training(past_step=5, after=before)
        until(lambda: paths("StokerSparesLow", "firing") == {"/ticket"}, "a ticket about spares")
        assert harness.stoker("readmit", "n2").returncode == 0
        until(lambda: paths("StokerSparesLow", "resolved") == {"/ticket"}, "it resolves")
        assert len(webhook.of("StokerSparesLow", "firing")) == 1
        assert len(webhook.of("StokerSparesLow", "resolved")) == 1

        assert not webhook.of("StokerNotScraped", "firing")
        assert not webhook.of("StokerWatchdog", "resolved")
        assert harness.stoker("drill", "kill-supervisor").returncode == 0
        until(lambda: paths("StokerNotScraped", "firing") == {"/page"}, "a page about it")
        until(lambda: paths("StokerWatchdog", "resolved") == {SWITCH}, "the switch opens")
        harness.start("supervise")
        until(lambda: paths("StokerNotScraped", "resolved") == {"/page"}, "the page resolves")
        assert len(webhook.of("StokerNotScraped", "firing")) == 1
        assert "StokerStatusStale" not in server.alerts()
    end(monitored)
