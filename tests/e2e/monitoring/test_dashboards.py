"""Dashboards: each query of each panel, annotation and variable is answered by a real Prometheus that scrapes a real run."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster_harness import ClusterHarness, node_of, run_of
from tests.e2e.monitoring.servers import DEPLOY, Prometheus, Webhook, prometheus, until
from tests.e2e.monitoring.training import end, monitored_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

BOARDS = sorted((DEPLOY / "grafana").glob("*.json"))
# What a run of two CPU ranks of a script cannot show: panel -> reason. A panel that is answered all the same fails the test.
NOT_HERE = {
    "MFU": "it needs a GPU, whose peak is known",
    "Loss scale": "it needs training in float16",
    "Checks that do not pass": "every check of this machine passes",
    "Model TFLOP/s": "it needs a trainer that counts its operations",
}


def filled(query: str, values: Mapping[str, str]) -> str:
    """Put values for Grafana's variables, its own (which start with two underscores) among them, into a query."""
    found = re.sub(r"\$\{?(\w+)\}?", lambda match: values[match[1]], query)
    assert "$" not in found
    return found


def variables_of(board: dict[str, Any], server: Prometheus) -> dict[str, str]:
    """Ask for the dashboard's variables as Grafana does, and choose the first value of each."""
    values = {"__rate_interval": "15s", "__interval": "2s", "__range": "1h"}
    for variable in board["templating"]["list"]:
        if variable["type"] == "datasource":
            assert variable["query"] == "prometheus"
            continue
        query = filled(variable["query"], values)
        if label := re.fullmatch(r"label_values\((\w+), (\w+)\)", query):
            values[variable["name"]] = server.names(label[2], label[1])[0]
            continue
        asked = re.fullmatch(r"query_result\((.*)\)", query)
        assert asked, query
        pattern = variable["regex"].strip("/").replace("(?<", "(?P<")
        # Grafana gives each series as one line of text.
        [text] = [_as_text(series) for series in server.query(asked[1])]
        match = re.search(pattern, text)
        assert match, (pattern, text)
        values[variable["name"]] = match["value"]
    return values


def _as_text(series: dict[str, Any]) -> str:
    labels = [f'{name}="{value}"' for name, value in series["metric"].items() if name != "__name__"]
    seconds, value = series["value"]
    return f"{series['metric'].get('__name__', '')}{{{','.join(labels)}}} {value} {seconds}"


def panels_of(board: dict[str, Any]) -> dict[str, list[str]]:
    """Return the queries of each panel by its title."""
    found = [panel for panel in board["panels"] if panel["type"] != "row"]
    queries = {panel["title"]: [target["expr"] for target in panel["targets"]] for panel in found}
    assert len(queries) == len(found)
    return queries


def unanswered(
    server: Prometheus, panels: Mapping[str, list[str]], values: Mapping[str, str]
) -> dict[str, list[str]]:
    """Return the queries without an answer, by panel."""
    empty = {
        title: [query for query in queries if not server.query(filled(query, values))]
        for title, queries in panels.items()
    }
    return {title: queries for title, queries in empty.items() if queries}


def check_answers(board: dict[str, Any], server: Prometheus, harness: ClusterHarness) -> None:
    """Wait until all panels and marks are answered but those that cannot be here, and check that those are not."""
    values, panels = variables_of(board, server), panels_of(board)
    expected = NOT_HERE.keys() & panels.keys()
    with suppress(AssertionError):
        until(lambda: unanswered(server, panels, values).keys() <= expected, "answers")
    empty = unanswered(server, panels, values)
    assert empty.keys() == expected, (empty, harness.report())
    for mark in board["annotations"]["list"]:
        over_time = f"count_over_time(({filled(mark['expr'], values)})[5m:1s])"
        until(partial(server.query, over_time), f"the mark {mark['name']}")


def play_incidents(harness: ClusterHarness) -> None:
    """A node dies and a spare takes its place; a person lowers the rate; another supervisor leads; a foreign message comes."""
    before = run_of(harness.view()).attempt
    assert harness.stoker("drill", "kill-node", "--node", "n2").returncode == 0
    harness.training(past_step=5, after=before)
    harness.wait(
        lambda view: [one for one in view.incidents if one.state == "resolved"],
        "the incident is resolved",
    )
    harness.wait(lambda view: run_of(view).checkpoint_step, "a trusted checkpoint")
    assert node_of(harness.view(), "n2").state == "lost"
    changed = harness.stoker("lr", harness.name, "x0.5")
    assert changed.returncode == 0, changed
    holder = harness.wait(lambda view: view.holder, "the leader's name")
    assert harness.stoker("drill", "kill-supervisor").returncode == 0
    harness.start("supervise")
    harness.wait(lambda view: view.holder != holder, "another supervisor leads")
    harness.store.append("requests", b"without a code")
    harness.wait(lambda view: view.refused_messages, "a refused message")


def test_every_query_of_the_dashboards_is_answered(
    harness: ClusterHarness, webhook: Webhook, tmp_path: Path
) -> None:
    """A panel without an answer fails, unless it is listed with what it needs; each listed one is without an answer here."""
    monitored = monitored_run(harness, pages_to=webhook.address)
    with prometheus(tmp_path / "prometheus", metrics_port=monitored.metrics_port) as server:
        until(lambda: server.query("stoker_run_step"), "Prometheus has scraped the run")
        play_incidents(harness)
        scraped = "stoker_run_checkpoint_step and on (instance) stoker_lease_token > 1"
        until(lambda: server.query(scraped), "Prometheus has scraped the second supervisor")
        for path in BOARDS:
            check_answers(json.loads(path.read_text()), server, harness)
    end(monitored)
