"""Alerts: from a drill in a real run through a real Prometheus and Alertmanager to a webhook, and the dead-man's switch."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.cluster_harness import ClusterHarness, run_of
from tests.e2e.monitoring.servers import Prometheus, Webhook, alertmanager, prometheus, until
from tests.e2e.monitoring.training import (
    SCRIPT,
    Monitored,
    end,
    free_port,
    monitored_run,
    started,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SWITCH = "/dead-mans-switch"
# While the file is there, the loss is no number.
POISON = """    if os.path.exists("poison"):
        loss = float("nan")
"""


@contextmanager
def alerting(monitored: Monitored, webhook: Webhook, folder: Path) -> Iterator[Prometheus]:
    """Run a Prometheus that scrapes the supervisor, and an Alertmanager that notifies the webhook."""
    port = monitored.metrics_port
    with (
        alertmanager(folder / "alertmanager", webhook=webhook.address) as manager,
        prometheus(folder / "prometheus", metrics_port=port, alertmanager=manager) as server,
    ):
        yield server


def test_an_alert_of_a_drill_arrives_once_and_resolves_and_a_dead_supervisor_is_noticed(
    harness: ClusterHarness, webhook: Webhook, tmp_path: Path
) -> None:
    """Spares that a killed node uses up are one ticket until it is back; a killed supervisor is a page, and the switch opens."""
    monitored = monitored_run(harness)
    with alerting(monitored, webhook, tmp_path) as server:

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


def advised_run(harness: ClusterHarness) -> Monitored:
    """Start a supervisor, a node and a spare, and a run about which Stoker does nothing by itself; return once it trains."""
    port = free_port()
    harness.write_cluster(nodes=1, slots=1, spares=1, limits={"metrics_port": port})
    harness.write_script(SCRIPT.replace("    time.sleep(0.05)", POISON + "    time.sleep(0.05)"))
    command = {"command": "{python} train.py", "python": sys.executable}
    harness.write_run(**command, nodes=1, ranks_per_node=1, mode="advise", checkpoints="saved")
    return started(harness, port)


def test_a_proposal_that_waits_is_a_ticket_and_a_run_that_fails_is_a_page(
    harness: ClusterHarness, webhook: Webhook, tmp_path: Path
) -> None:
    """The ticket resolves once the run's numbers are back; each alert comes once, to its receiver, and names its run."""
    monitored = advised_run(harness)
    with alerting(monitored, webhook, tmp_path):

        def notified(alert: str, status: str) -> list[tuple[str, str]]:
            return [(path, each["labels"]["name"]) for path, each in webhook.of(alert, status)]

        ticket = [("/ticket", harness.name)]
        poison = harness.folder / "poison"
        poison.touch()
        until(lambda: notified("StokerProposalWaits", "firing") == ticket, "a ticket")
        assert not notified("StokerRunFailed", "firing")
        poison.unlink()
        until(lambda: notified("StokerProposalWaits", "resolved") == ticket, "it resolves")

        # On the spare.
        harness.write_run(name="broken", command="false", nodes=1)
        assert harness.stoker("run", "run.yaml", "--detach").returncode == 0
        page = [("/page", "broken")]
        until(lambda: notified("StokerRunFailed", "firing") == page, "a page")
        assert notified("StokerProposalWaits", "firing") == ticket
    end(monitored)
