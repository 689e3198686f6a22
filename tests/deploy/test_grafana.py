"""Files for Grafana: the dashboards are what the program makes, the SDK reads them, and provisioning agrees with Prometheus."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
FILES = sorted(DEPLOY.glob("grafana/*.json"))
# Of Prometheus' annotations; the SDK's class lacks them.
LEFT_OUT = ("titleFormat", "tagKeys", "step")


def test_the_committed_dashboards_are_what_the_program_makes(tmp_path: Path) -> None:
    """`make dashboards` changes no file, and leaves none out."""
    subprocess.run(
        [sys.executable, "-m", "tools.dashboards", tmp_path], cwd=ROOT, check=True, timeout=60
    )
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_text() for path in FILES}
    assert len(made) == 2


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_sdk_reads_each_dashboard_without_a_loss(path: Path) -> None:
    """Grafana's own classes read every field of the file, and write the same again."""
    register_default_plugins()
    text = json.loads(path.read_text())
    for mark in text["annotations"]["list"]:
        for name in LEFT_OUT:
            del mark[name]
    read = Dashboard.from_json(text)
    assert json.loads(json.dumps(read, cls=JSONEncoder)) == text


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_panels_have_places_of_their_own(path: Path) -> None:
    """No two panels overlap, none is wider than the grid, each says what it shows, and ids are unique."""
    panels = json.loads(path.read_text())["panels"]
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert all(panel.get("description") for panel in panels if panel["type"] != "row")
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_provisioning_agrees_with_the_other_files() -> None:
    """The data source asks for no finer steps than Prometheus scrapes, and the dashboards take any Prometheus."""
    [source] = yaml.safe_load((DEPLOY / "grafana/datasource.yaml").read_text())["datasources"]
    scraped = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["global"]
    assert source["jsonData"]["timeInterval"] == scraped["scrape_interval"]
    assert source["type"] == "prometheus"
    [provider] = yaml.safe_load((DEPLOY / "grafana/dashboards.yaml").read_text())["providers"]
    assert provider["type"] == "file"
    for path in FILES:
        variables = json.loads(path.read_text())["templating"]["list"]
        assert [each["name"] for each in variables if each["type"] == "datasource"]
