"""Benchmarks print what they promise; how fast anything is, no test asks."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench.__main__ import main, names
from bench.report import Report, median_interval
from tests.e2e.fleet_harness import redis_server

ROOT = Path(__file__).parents[2]
FIGURE = re.compile(
    r"^  (?P<name>[^|]+?) \| (?P<value>[^|]+) \| (?P<limit>[^|]+) \| (?P<verdict>PASS|MISS|-)$"
)
# A peer that takes part in the comparison without any model: the steps of rank 0, as lines.
PEER = """
import json, os, sys

def main():
    steps = int(sys.argv[sys.argv.index("--steps") + 1])
    for step in range(steps if os.environ["RANK"] == "0" else 0):
        print(json.dumps({"step": step}), flush=True)
"""


def run_bench(name: str, *arguments: str) -> dict[str, re.Match[str]]:
    """Run one benchmark; return its figures by name. A missed limit is no failure here."""
    done = subprocess.run(
        [sys.executable, "-m", f"bench.{name}", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    matches = [FIGURE.match(line) for line in done.stdout.splitlines()]
    figures = [match for match in matches if match]
    has_missed = any(match["verdict"] == "MISS" for match in figures)
    assert done.returncode == has_missed, done.stdout
    assert "\n  method: " in done.stdout
    return {match["name"]: match for match in figures}


def test_the_time_of_a_level_is_printed_for_each_fleet() -> None:
    """In virtual time, which no machine's load changes: one node more than are checked at once takes twice as long."""
    figures = run_bench("check_levels", "--sizes", "64", "65")
    assert figures["64 nodes at level quick, 64 at once"]["value"] == "60 s"
    assert figures["65 nodes at level quick, 64 at once"]["value"] == "120 s"
    assert all(figure["verdict"] == "PASS" for figure in figures.values())


def test_every_benchmark_can_be_named() -> None:
    """`python -m bench` knows each benchmark and takes none of their shared parts for one."""
    assert names() == [
        "agent",
        "calibration",
        "check_levels",
        "check_recipes",
        "checkpoint_load",
        "client",
        "client_restart",
        "detectors",
        "first_run",
        "fleet",
        "folders",
        "gpu",
        "heartbeat",
        "isolation",
        "journal",
        "live",
        "memory_patterns",
        "monitoring_cost",
        "rank_edges",
        "reassignment",
        "recovery",
        "scan",
        "scrape",
        "status_start",
        "step_time",
        "steps",
        "supervision",
        "survey",
        "takeover",
        "watch",
        "watch_only",
        "web",
    ]


@pytest.mark.costly
@pytest.mark.parametrize(
    ("name", "arguments", "limited"),
    [
        ("client", (), {"step with a channel", "step without Stoker"}),
        ("heartbeat", (), set()),
        (
            "watch",
            ("--seconds=1", "--settle-seconds=1"),
            {"8 nodes, 80x24", "2000 nodes, 80x24", "2000 nodes, 200x60"},
        ),
        ("rank_edges", (), {"report, median", "report that finds no room, median"}),
        (
            "scan",
            ("--megabytes=1", "--gigabytes=0.01"),
            {
                "stoker diagnose, mixed log",
                "stoker diagnose, a new process, 1 MB",
                "memory grown over 0.01 GB",
                "a byte of a line of 10 MB, to a byte of short lines",
            },
        ),
        (
            "journal",
            ("--appends=20", "--entries=3000", "--rounds=1"),
            {
                *(
                    f"journal append, {which} codes, {what}"
                    for which in ("without", "with")
                    for what in ("median", "p99")
                ),
                "replay from disk",
                "its memory",
                "replay, with codes",
                "with codes to without",
            },
        ),
        ("scrape", ("--nodes=50", "--rounds=2"), {"scrape at 50 nodes", "its size"}),
        ("status_start", ("--rounds=1",), {"with a cluster.yaml", "without one"}),
        ("steps", ("--steps=20000",), {"on disk", "read for a plot"}),
        (
            "web",
            ("--nodes=50", "--seconds=1"),
            {
                "50 nodes: from the request to the first state, median of 20",
                "10 readers, 5 updates a second",
                "10 readers, 5 updates a second: memory",
            },
        ),
    ],
)
def test_costs_of_single_calls_are_measured(
    name: str, arguments: tuple[str, ...], limited: set[str]
) -> None:
    """Each prints its figures, and has limits for these."""
    figures = run_bench(name, *arguments)
    assert {each for each, match in figures.items() if match["limit"] != "-"} == limited


@pytest.mark.costly
def test_results_are_written_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A result file begins with the machine and has all that is printed; a benchmark that breaks leaves the one before."""
    monkeypatch.setattr("bench.__main__.RESULTS", tmp_path)
    assert main(["heartbeat"]) == 0
    assert list(tmp_path.iterdir()) == []
    assert main(["heartbeat", "--write"]) == 0
    written = (tmp_path / "heartbeat.txt").read_text()
    assert written.startswith("Linux")
    assert "\nfull heartbeat, now\n  method: " in written
    assert written.partition("\n")[2].rstrip() in capsys.readouterr().out
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.chdir(tmp_path)
    assert main(["heartbeat", "--write"]) == 1
    assert (tmp_path / "heartbeat.txt").read_text() == written


@pytest.mark.slow
def test_what_a_supervisor_does_about_a_death_is_measured() -> None:
    """Of each kind of death: both decisions in their order, and their sum, which alone has a limit."""
    small = ("--nodes=8", "--rounds=2", "--lines-rounds=1", "--gang-rounds=0")
    figures = run_bench("reassignment", *small)
    fleet, words = "8 nodes in gangs of 8: ", "8 nodes, a rank that wrote why it ended"
    assert list(figures) == [
        f"{fleet}killed rank's exit to idle assignments",
        f"{fleet}last node clear to launch assignments",
        f"{fleet}both, from finding to assignment",
        f"{fleet}both, 90 %",
        f"{fleet}with the nodes' own part between the two",
        f"{words}: both, once its node has read that",
        f"{words}, its node silent: beyond that wait",
    ]
    limited = [name for name, match in figures.items() if match["limit"] == "<= 50 ms"]
    assert [name.partition(": ")[2].partition(",")[0] for name in limited] == ["both", "both"]
    # An answer that did not wait for lines would come a second before.
    assert float(figures[f"{words}, its node silent: beyond that wait"]["value"].split()[0]) > 0


def test_an_unknown_benchmark_is_refused() -> None:
    """A wrong name ends with 2 and the right ones."""
    done = subprocess.run(
        [sys.executable, "-m", "bench", "jurnal"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "journal" in done.stderr


def test_a_figure_above_its_limit_is_a_miss(capsys: pytest.CaptureFixture[str]) -> None:
    """Only a figure with a limit gets a verdict, and a miss is counted."""
    report = Report("title", "how")
    report.figure("free", 9.0, "ms")
    report.figure("held", 1.0, "ms", at_most=1.0)
    report.figure_of("broken", [3.0, 1.0, 2.0], "ms", at_most=1.5)
    assert report.num_missed == 1
    assert capsys.readouterr().out.splitlines()[2:] == [
        "  method: how",
        "  free | 9 ms | - | -",
        "  held | 1 ms | <= 1 ms | PASS",
        "  broken | 2 (1 to 3) ms | <= 1.5 ms | MISS",
    ]


@pytest.mark.parametrize(
    ("count", "expected"),
    [(1, (1.0, 1.0)), (5, (1.0, 5.0)), (6, (1.0, 6.0)), (10, (2.0, 9.0)), (20, (6.0, 15.0))],
)
def test_the_interval_of_a_median_follows_from_order_alone(
    count: int, expected: tuple[float, float]
) -> None:
    """As many values are cut off at each end as 95 % allow, by the binomial distribution."""
    low, high, coverage_ratio = median_interval([float(value) for value in range(count, 0, -1)])
    assert (low, high) == expected
    assert (coverage_ratio >= 0.95) == (count >= 6)


def test_step_time_is_skipped_without_its_peer(tmp_path: Path) -> None:
    """A checkout without the peer beside it has no ratio to print, and misses nothing."""
    assert run_bench("step_time", "--peer", str(tmp_path)) == {}


@pytest.mark.trainer
@pytest.mark.slow
def test_step_time_runs_both_sides(tmp_path: Path) -> None:
    """The real trainer at the peer's shape and the peer run in turn; ratio, interval and floor are printed."""
    tmp_path.joinpath("ds_train.py").write_text(PEER)
    figures = run_bench("step_time", "--peer", str(tmp_path), "--pairs", "1", "--steps", "6")
    assert list(figures) == [
        "trainer, step",
        "peer, step",
        "peer, whole activations, step",
        "floor: peer, slowest run to fastest",
        "trainer to peer, median (0% interval)",
        "trainer to peer, whole activations, median (0% interval)",
    ]


@pytest.mark.e2e
@pytest.mark.trainer
@pytest.mark.slow
# It trains for some time; a loaded machine is slow.
@pytest.mark.timeout(300)
def test_supervision_weighs_every_process() -> None:
    """Supervisor, agents, keepers and readers are measured, together and each, and a rank of the trainer reports its own cost."""
    figures = run_bench("supervision", "--seconds", "2", "--steps", "5")
    cpu = [
        f"CPU, {kind}" for kind in ("supervisor", "agents", "keepers", "readers", "all together")
    ]
    nodes = [f"resident, agent of n{number}" for number in (1, 2, 3)]
    # n3 is a spare
    nodes_read = {f"resident, reader of n{number}" for number in (1, 2)}
    assert {*cpu, *nodes, *nodes_read, "resident, supervisor"} <= set(figures)
    assert "in a rank, per step" in figures
    limited = {name for name, match in figures.items() if match["limit"] != "-"}
    assert limited == {cpu[-1], *nodes, "resident, supervisor", "in a rank, per step"}


@pytest.mark.slow
def test_a_small_fleet_runs_dies_and_comes_back(tmp_path: Path) -> None:
    """Its agents and requests are believed by a supervisor of today."""
    # Skips where there is no server.
    redis_server(tmp_path)
    small = ("--nodes=16", "--seconds=1", "--rounds=1", "--deaths=1", "--gang-rounds=1")
    figures = run_bench("fleet", *small)
    limited = {name for name, match in figures.items() if match["limit"] != "-"}
    assert "all 2 decisions, 99 %" in limited
    assert "one gang of 15 nodes, from the request to its first step" in figures


@pytest.mark.slow
def test_what_looking_at_a_fleet_costs_its_supervisor_is_measured(tmp_path: Path) -> None:
    """Scrapes, readers and signs of life reach a supervisor of today while it is measured, and the cost has a limit."""
    redis_server(tmp_path)
    figures = run_bench("monitoring_cost", "--nodes=16", "--seconds=2", "--rounds=1", "--settle=0")
    meanwhile = [figures[name]["verdict"] for name in figures if name.endswith(" meanwhile")]
    assert meanwhile == ["PASS"] * 3
    assert [figure["limit"] for name, figure in figures.items() if "as usual:" in name] == [
        "<= 1 %"
    ]
