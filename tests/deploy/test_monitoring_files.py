"""deploy/'s files for Prometheus and Alertmanager, read by their own tools, agree with each other and with Stoker."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

DEPLOY = Path(__file__).parents[2] / "deploy"
MANAGER = DEPLOY / "alertmanager.yml"


def run(*command: str | Path) -> str:
    """Run a tool that must find nothing wrong; return what it prints."""
    if shutil.which(str(command[0])) is None:
        assert not os.environ.get("CI"), f"tests/install-tools.sh installs {command[0]}"
        pytest.skip(f"no {command[0]}; tests/install-tools.sh installs it")
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_promtool_finds_nothing_wrong_with_the_configuration() -> None:
    """Prometheus' own tool reads prometheus.yml and the rules that it names."""
    assert "SUCCESS" in run("promtool", "check", "config", DEPLOY / "prometheus.yml")


def test_amtool_finds_nothing_wrong_with_the_routes() -> None:
    """Alertmanager's own tool reads all parts of alertmanager.yml."""
    output = run("amtool", "check-config", MANAGER)
    assert "SUCCESS" in output
    assert "3 receivers" in output


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        (["alertname=StokerPage", "severity=critical", "team=oncall"], "page"),
        (["alertname=StokerPage", "severity=warning"], "ticket"),
        (["alertname=StokerWatchdog"], "dead-mans-switch"),
        (["alertname=Unknown"], "ticket"),
    ],
)
def test_each_alert_of_stoker_itself_has_its_receiver(labels: list[str], receiver: str) -> None:
    """Urgent pages wake a person; what can wait is a ticket; signs of life reach the switch alone; nothing is lost."""
    command = ["amtool", "config", "routes", "test", f"--config.file={MANAGER}", *labels]
    assert run(*command).splitlines()[-1] == receiver


def test_each_rule_has_the_receiver_that_its_severity_says() -> None:
    """Every alert of alerts.yml is a page, a ticket or the switch, and inhibition names rules that exist."""
    groups = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    rules = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    wanted = {"critical": "page", "warning": "ticket", "none": "dead-mans-switch"}
    for rule in rules:
        severity = rule["labels"]["severity"]
        labels = [f"alertname={rule['alert']}", f"severity={severity}"]
        command = ["amtool", "config", "routes", "test", f"--config.file={MANAGER}", *labels]
        assert run(*command).splitlines()[-1] == wanted[severity], rule["alert"]
    names = {rule["alert"] for rule in rules}
    matchers = [
        matcher
        for inhibition in yaml.safe_load(MANAGER.read_text())["inhibit_rules"]
        for matcher in (*inhibition["source_matchers"], *inhibition["target_matchers"])
        if matcher.startswith("alertname")
    ]
    inhibited = {name for matcher in matchers for name in matcher.split('"')[1].split("|")}
    assert inhibited <= {*names, "StokerPage"}


def test_prometheus_sends_to_the_port_that_alertmanager_serves() -> None:
    """9093 is what Alertmanager listens on unless it is told otherwise."""
    config = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    [manager] = config["alerting"]["alertmanagers"]
    assert manager["static_configs"] == [{"targets": ["localhost:9093"]}]
