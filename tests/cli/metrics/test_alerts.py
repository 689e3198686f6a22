"""Alerts: every rule uses existing metrics, and fires when it should and only then."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from bench.scrape import fleet_status
from runner.facts.messages.cluster_status import (
    CheckStatus,
    NodeChecks,
    NodeStatus,
    ProposalStatus,
    SparesStatus,
)
from runner.facts.messages.records_checks import OutcomeGroup
from runner.load.runbooks import load_pages
from runner.serve.metrics import metrics_text
from runner.serve.status_reader import StoreStatus
from tests.cli.conftest import example_view

RULES = Path(__file__).parents[3] / "deploy" / "alerts.yml"
CASES = Path(__file__).parent / "alerts.test.yml"


def rules() -> list[dict[str, Any]]:
    """Read the rules."""
    found: list[dict[str, Any]] = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    return found


def test_every_alert_uses_existing_metrics() -> None:
    """A rule about a metric that Stoker does not serve could never fire."""
    page = fleet_status(1)
    view = example_view(
        runs=page.runs,
        pages=page.pages,
        proposals=(ProposalStatus(action="a1", run=1, incident="i1", text="", since=1.0),),
        nodes=(NodeStatus(node="n1", state="lost"),),
        pool=SparesStatus(spares=0),
        domains_down={"rack r2": ("n1",)},
        refused_messages={"unsigned": 1},
    )
    beside = StoreStatus(lease_token=1, lease_left_seconds=4.0)
    group = OutcomeGroup(outcome="FAIL", at=1.0, checks=("memory",))
    checks = CheckStatus(cluster="c", nodes=(NodeChecks(node="n1", outcomes=(group,)),))
    text = metrics_text(view, beside, checks=checks).decode()
    served = {
        sample.name for family in text_string_to_metric_families(text) for sample in family.samples
    }
    asked = {name for rule in rules() for name in re.findall(r"\bstoker_\w+", rule["expr"])}
    assert asked
    assert asked <= served


def test_every_alert_has_a_runbook_that_comes_with_stoker() -> None:
    """Its address is that of the web page, which serves the runbooks by these names; the page names the alert."""
    pages = load_pages()
    for rule in rules():
        url = rule["annotations"]["runbook_url"]
        found = re.fullmatch(r"http://stoker\.example:8470/runbooks/([a-z-]+)", url)
        assert found is not None, url
        page = pages[found[1]]
        assert page.runbook is not None or f"`{rule['alert']}`" in page.text, rule["alert"]


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_is_silent() -> None:
    """The cases that promtool runs leave no rule out."""
    cases = yaml.safe_load(CASES.read_text())["tests"]
    names = {rule["alert"] for rule in rules()}
    silent = {test["alertname"] for case in cases for test in case.get("alert_rule_test", ())}
    firing = " ".join(
        sample["labels"]
        for case in cases
        for test in case.get("promql_expr_test", ())
        for sample in test["exp_samples"]
    )
    assert silent == names
    assert set(re.findall(r'alertname="(\w+)"', firing)) == names


@pytest.mark.costly
def test_promtool_checks_the_rules(tmp_path: Path) -> None:
    """Prometheus' own tool finds the rules valid, and each fires and stays silent as in its cases."""
    if shutil.which("promtool") is None:
        assert not os.environ.get("CI"), "tests/install-tools.sh installs promtool"
        pytest.skip("no promtool; tests/install-tools.sh installs it")
    for source, name in ((RULES, "alerts.yml"), (CASES, "alerts.test.yml")):
        (tmp_path / name).write_text(source.read_text())
    for command in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts.test.yml"]):
        done = subprocess.run(
            ["promtool", *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
