"""Metrics, status, web page, watch and report agree on ETTR and lost seconds with another fold of the journal, over a day.

The simulator plays it, with every kind of incident that a scenario of `tests/scenarios` has, and every change that a person asks of
a run.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from runner.cli import output
from runner.cli.clusters import Leader
from runner.cli.terminal.status_reader import Newest
from runner.cli.terminal.watch_screen import WatchScreen
from runner.decide.state.cluster_state import State
from runner.facts.faults import FAULTS
from runner.facts.messages import records as r
from runner.history.run_accounting import CAUSES
from runner.serve.metrics import metrics_of
from runner.serve.status_reader import read_status
from runner.serve.web.server import WebServer
from runner.simulate.world import World
from tests.cli.conftest import Cluster, stoker
from tests.cli.report.conftest import publish, report
from tests.decide.accounting.effective_time import RunHistory
from tests.decide.accounting.follower import TOLERANCE_SECONDS, Follower
from tests.decide.accounting.simulated_day import DAY_SECONDS, EPISODES, day
from tests.decide.scenario import scenarios
from tests.serve.web.conftest import Site
from tests.suite import share

COMPARED_EVERY_SECONDS = 7200.0
# A snapshot of 26 runs takes as long as a hundred entries.
SNAPSHOT_ENTRIES = 1000
OUTCOMES = {
    *("finished", "crashed", "lost", "refused", "rewound", "moved", "hung", "reconfigured"),
    *("stopped", "restarted", "paused"),
}
REQUESTS = {
    *("start_run", "stop_run", "pause_run", "resume_run", "restart_run", "rewind_run"),
    *("add_remedy", "swap_node", "drain_node", "readmit_node", "quarantine_node", "check_nodes"),
}
# A simulated run ends with its last step, and its ranks report their steps.
NO_TIME = {"finish", "unreported"}
REMEDIES = {"lr_factor", "skip_steps"}

# Run -> seconds by cause, and "ettr"; what a figure is compared with.
Figures = dict[str, dict[str, float]]


class DayFollower(Follower):
    """Counts take-overs besides."""

    num_takeovers = 0

    def on_recovered(self, world: World, before: State | None, after: State) -> None:
        """Count one."""
        self.num_takeovers += before is not None


def played(follower: DayFollower, seed: str) -> World:
    """Play a day; status and metrics are compared with the other fold every two hours, and at the end."""
    scenario = day(seed)
    world = scenario.play(scenario.build(watcher=follower, snapshot_entries=SNAPSHOT_ENTRIES))
    follower.compare(world)
    assert follower.num_compared >= DAY_SECONDS / COMPARED_EVERY_SECONDS
    return world


def assert_every_kind(entries: list[r.JournalEntry], num_takeovers: int) -> None:
    """Assert that each kind of incident, request, remedy and outcome of an attempt came at least once."""
    records = [record for entry in entries for record in entry.records]
    transcripts = " ".join(scenario.transcript for scenario in scenarios())
    names = set(re.findall(r"\bi\d+ (\w+)", transcripts)) & FAULTS.keys()
    kinds = Counter(
        one.fault for one in records if isinstance(one, r.IncidentOpened | r.IncidentAmended)
    )
    assert len(names) > 20
    assert names - kinds.keys() == set()
    done = Counter(
        one.request for one in records if isinstance(one, r.RequestRecorded) and one.state == "done"
    )
    assert REQUESTS - done.keys() == set()
    outcomes = Counter(one.outcome for one in records if isinstance(one, r.AttemptChanged))
    assert OUTCOMES - outcomes.keys() == set()
    remedies = Counter(str(one.remedy) for one in records if isinstance(one, r.RemedyAdded))
    assert REMEDIES - remedies.keys() == set()
    assert num_takeovers > 3


def figures_of(histories: dict[int, RunHistory], now: float) -> Figures:
    """Return what the other fold says of the runs that made a step."""
    found: Figures = {}
    for history in histories.values():
        if history.reports and any(one.marks for one in history.attempts):
            seconds = history.seconds(now)
            wall = min(now, history.ended_at) - history.admitted_at
            assert sum(seconds.values()) == pytest.approx(wall, abs=TOLERANCE_SECONDS)
            ettr = seconds.pop("productive") / wall
            found[str(history.run)] = {**seconds, "ettr": ettr, "wall": wall}
    return found


def assert_agree(expected: Figures, shown: Figures, *, tolerance: float, outlet: str) -> None:
    """Compare every cause of every run."""
    assert shown.keys() >= expected.keys(), outlet
    for run, wanted in expected.items():
        for cause in CAUSES:
            found = shown[run].get(cause, 0.0)
            assert found == pytest.approx(wanted.get(cause, 0.0), abs=tolerance), (outlet, run)
        found = shown[run]["ettr"] * wanted["wall"]
        assert found == pytest.approx(wanted["ettr"] * wanted["wall"], abs=tolerance), (outlet, run)


def of_status() -> Figures:
    """Return the figures of `stoker status --json`."""
    runs = json.loads(stoker("status", "--json").stdout)["status"]["runs"]
    return {
        str(run["run"]): {**run["lost_seconds"], "ettr": run["ettr_ratio"] or 0.0} for run in runs
    }


def of_metrics(cluster: Cluster) -> Figures:
    """Return the figures of `/metrics`."""
    found: Figures = {}
    for family in text_string_to_metric_families(metrics_of(cluster.store).decode()):
        for sample in family.samples:
            if sample.name == "stoker_run_lost_seconds":
                run = found.setdefault(sample.labels["run"], {})
                run[sample.labels["cause"]] = sample.value
            elif sample.name == "stoker_run_ettr_ratio":
                found.setdefault(sample.labels["run"], {})["ettr"] = sample.value
    return found


def of_web_page(cluster: Cluster) -> Figures:
    """Return the figures that the server of the web page sends to a viewer."""
    with WebServer(cluster.store, cluster.spec, port=0, address="127.0.0.1") as server:
        events = Site(cluster, server).viewer().events()
        runs = next(events)["set"]["runs"].values()
        events.close()
    return {str(run["run"]): {**run["lost"], "ettr": run["ettr"] or 0.0} for run in runs}


def of_report(run: str) -> dict[str, float]:
    """Return the seconds of a run's report, steps that count among them."""
    text = report("--format", "md", run)
    rows = re.findall(r"^\| [^|]+ \| (\w+) \| [^|]*\((\d+) s\) \| ", text, re.MULTILINE)
    return {name: float(seconds) for name, seconds in rows}


def watched(cluster: Cluster, run: str) -> Iterator[str]:
    """Yield the lines of `stoker watch RUN`."""
    status = read_status(cluster.store)
    assert status is not None
    screen = WatchScreen(on_order=lambda order: None, run=int(run))
    screen.update(Newest(status=status, leader=Leader(holder="a:1:2", alive=True)), status.wall)
    yield from (line.plain for line in screen.lines(200, 60, 0.0))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_all_agree_over_a_day_with_every_kind_of_incident(cluster: Cluster) -> None:
    """Of each run, every cause to the second; `watch` to the digits that it shows. Each commit has another day."""
    follower = DayFollower(COMPARED_EVERY_SECONDS)
    world = played(follower, share.current().commit or "all")
    assert_every_kind(world.entries, follower.num_takeovers)
    publish(cluster, world.entries)
    expected = figures_of(follower.histories, world.entries[-1].now)
    assert len(expected) > len(EPISODES) - 2
    causes = {cause for run in expected.values() for cause, seconds in run.items() if seconds > 0}
    assert {*CAUSES} - causes == NO_TIME
    assert_agree(expected, of_status(), tolerance=1.0, outlet="status")
    assert_agree(expected, of_metrics(cluster), tolerance=1.0, outlet="metrics")
    assert_agree(expected, of_web_page(cluster), tolerance=1.0, outlet="web page")
    for run, wanted in expected.items():
        spent = of_report(run)
        ratio = spent.pop("productive", 0.0) / wanted["wall"]
        # It tells whole seconds.
        assert_agree({run: wanted}, {run: {**spent, "ettr": ratio}}, tolerance=1.5, outlet="report")
        lines = list(watched(cluster, run))
        assert any(f"ETTR {output.ratio(wanted['ettr'])}" in line for line in lines), (run, lines)
