"""What a fleet costs its supervisor, and how soon it is answered: `python -m bench.fleet`; `--curve` goes up to 10,000 nodes."""

import argparse
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bench.fleet.measures import Decisions, Steady, crash_rounds, deaths, start_runs, steady
from bench.fleet.plot import Panel, plot
from bench.fleet.stage import Stage, stage
from bench.report import SCALE, Report, cores, quantile

NODES, SECONDS, ROUNDS, DEATHS, GANG_ROUNDS = 2000, 60.0, 200, 5, 3
CURVE, CURVE_SECONDS, CURVE_ROUNDS = (250, 500, 1000, 2000, 4000, 7000, 10_000), 20.0, 20
# The first on the first machine.
MAX_CORES, MAX_MB, MAX_MS = 0.22, 300.0, 100.0
WITHIN = 0.99
# More than this of a core used by others: what is measured is their work too; chosen.
BUSY_CORES = 0.2
RESULTS = Path(__file__).parents[1] / "results"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What was measured at one size."""

    nodes: int
    steady: Steady
    decisions: Decisions


def measure_fleet(report: Report, given: argparse.Namespace) -> None:
    """Measure a fleet in gangs of eight nodes: cost, decisions, deaths."""
    with stage(given.nodes, heartbeat_seconds=given.heartbeat) as harness:
        report.figure(f"{given.nodes} nodes join and pass their checks", harness.join(), "s")
        report.figure(
            "all of them in gangs of 8, up and at their first step", start_runs(harness), "s"
        )
        found = steady(harness, given.seconds)
        _note_load(report, found)
        used = {part: cores(share) for part, share in found.cores.items()}
        report.cost("supervisor", used["supervisor"], found.loop, at_most=MAX_CORES)
        report.cost("redis-server", used["redis"], found.loop)
        report.cost("all agents together", used["agents"], found.loop)
        report.figure("heartbeats that got through", found.heartbeats_ratio * 100, "%")
        decisions = crash_rounds(harness, given.rounds)
        _figures_of(report, decisions)
        limit = harness.cluster.heartbeat_timeout_seconds + 1.0
        name = "a dead node: from its last heartbeat to its incident, slowest"
        report.figure(name, max(deaths(harness, given.deaths)), "s", at_most=limit)
        report.figure(
            "supervisor, most memory ever resident", harness.peak_mb(), "MB", at_most=MAX_MB
        )


def measure_gang(report: Report, given: argparse.Namespace) -> None:
    """Measure one gang that takes nearly all nodes: each decision writes thousands of registers."""
    with stage(given.nodes, heartbeat_seconds=given.heartbeat) as harness:
        harness.join()
        size = max(1, int(given.nodes * 0.98))
        report.figure(
            f"one gang of {size} nodes, from the request to its first step",
            start_runs(harness, nodes_per_run=size),
            "s",
        )
        decisions = crash_rounds(harness, given.gang_rounds)
        report.figure_of(
            "a rank's death to the last idle assignment written", decisions.idle_ms, "ms"
        )
        report.figure_of(
            "last node clear to the last launch assignment written", decisions.launch_ms, "ms"
        )


def measure_curve(report: Report, sizes: list[int], *, heartbeat_seconds: float) -> None:
    """Measure fleets of several sizes, plot them, and report which limit breaks first."""
    points = []
    for nodes in sizes:
        try:
            with stage(nodes, heartbeat_seconds=heartbeat_seconds) as harness:
                joined = harness.join()
                up = start_runs(harness)
                found = steady(harness, CURVE_SECONDS)
                points.append(_point(harness, nodes, found))
        except RuntimeError as error:
            report.miss(f"{nodes} nodes", str(error).splitlines()[0])
            break
        _note_load(report, found)
        _report_point(report, points[-1], joined=joined, up=up)
    if points:
        _drawing(heartbeat_seconds).write_text(_drawn(points))
        report.note(f"what bends first: {bend(points)}")


def _drawing(heartbeat_seconds: float) -> Path:
    """Return where a curve is kept: fleets with rarer heartbeats are curves of their own."""
    mark = "" if heartbeat_seconds == 1.0 else f"-heartbeat-{heartbeat_seconds:g}"
    return RESULTS / f"fleet{mark}.svg"


def bend(points: list[Point]) -> str:
    """Describe at which size the first of the limits is passed, and which part of the machine was the busiest there."""
    num_cores = len(os.sched_getaffinity(0))
    for point in points:
        used = point.steady.cores
        scaled = used["supervisor"] * point.steady.loop.to_first_machine
        busiest = max(used, key=lambda part: used[part])
        passed = [
            (
                scaled > MAX_CORES,
                f"the supervisor takes {scaled:.2f} cores of the first machine",
            ),
            (
                point.steady.heartbeats_ratio < WITHIN,
                f"{point.steady.heartbeats_ratio:.1%} of heartbeats get in",
            ),
            (_p99(point) > MAX_MS, f"99 % of decisions take up to {_p99(point):.0f} ms"),
            (
                sum(used.values()) > 0.9 * num_cores,
                f"{sum(used.values()):.2f} of {num_cores} cores are used",
            ),
        ]
        broken = [what for is_passed, what in passed if is_passed]
        if broken:
            return f"at {point.nodes} nodes {'; '.join(broken)} (busiest: {busiest})"
    return f"nothing, up to {points[-1].nodes} nodes"


def _point(harness: Stage, nodes: int, found: Steady) -> Point:
    return Point(nodes=nodes, steady=found, decisions=crash_rounds(harness, CURVE_ROUNDS))


def _p99(point: Point) -> float:
    return quantile(point.decisions.all_ms, WITHIN)


def _report_point(report: Report, point: Point, *, joined: float, up: float) -> None:
    factor = point.steady.loop.to_first_machine
    shares = ", ".join(f"{part} {factor * x:.2f}" for part, x in point.steady.cores.items())
    median = quantile(point.decisions.all_ms, 0.5)
    report.note(
        f"{point.nodes} nodes | joined in {joined:.0f} s, gangs up in {up:.0f} s | cores of the first machine: {shares} | "
        f"{point.steady.heartbeats_ratio:.1%} of heartbeats | {point.steady.peak_mb:.0f} MB | "
        f"decisions {median:.0f} ms, 99 %: {_p99(point):.0f} ms"
    )


def _drawn(points: list[Point]) -> str:
    cores = Panel(
        title="Cores of the first machine that supervisor, Redis and all agents use (log scale), over nodes",
        unit="cores",
        lines={
            part: [
                point.steady.cores[part] * point.steady.loop.to_first_machine for point in points
            ]
            for part in ("supervisor", "redis", "agents")
        },
        limit=MAX_CORES,
    )
    decisions = Panel(
        title="Milliseconds from a signal to the last assignment written (log scale), over nodes",
        unit="ms",
        lines={
            "median": [quantile(point.decisions.all_ms, 0.5) for point in points],
            "99 %": [_p99(point) for point in points],
        },
        limit=MAX_MS,
    )
    return plot([point.nodes for point in points], [cores, decisions])


def _figures_of(report: Report, decisions: Decisions) -> None:
    for what, values in (
        ("a rank's death to idle assignments for its gang", decisions.idle_ms),
        ("last node clear to its gang launched again", decisions.launch_ms),
    ):
        report.figure(f"{what}, median of {len(values)}", quantile(values, 0.5), "ms")
        report.figure(f"{what}, 99 %", quantile(values, WITHIN), "ms")
    report.figure(
        f"all {len(decisions.all_ms)} decisions, 99 %",
        quantile(decisions.all_ms, WITHIN),
        "ms",
        at_most=MAX_MS,
    )


def _note_load(report: Report, found: Steady) -> None:
    if found.others_cores > BUSY_CORES:
        report.note(
            f"UNRELIABLE, MACHINE TOO BUSY: others used {found.others_cores:.2f} cores meanwhile; measure again on a quiet machine"
        )
    else:
        report.note(f"others used {found.others_cores:.2f} cores meanwhile")


def _given() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES, help="size of the fleet (%(default)s)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of work that is watched")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="ranks that are killed")
    parser.add_argument("--deaths", type=int, default=DEATHS, help="nodes that fall silent")
    parser.add_argument("--gang-rounds", type=int, default=GANG_ROUNDS, help="in the one gang")
    parser.add_argument(
        "--curve",
        nargs="?",
        const=",".join(map(str, CURVE)),
        help="sizes to measure and to draw into bench/results (without a list: %(const)s)",
    )
    parser.add_argument(
        "--heartbeat",
        type=float,
        default=1.0,
        help="seconds between two of a node (%(default)s): what more nodes than a machine can play are measured with",
    )
    return parser.parse_args()


def main() -> int:
    """Measure; return 1 if a limit was missed."""
    given = _given()
    # End what was started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    num_cores = len(os.sched_getaffinity(0))
    report = Report(
        "a large fleet",
        f"{given.curve or given.nodes} agents' own sessions with made-up ranks, 1,000 in a process, signed, one heartbeat "
        f"every {given.heartbeat:g} s each; redis-server 7 with appendfsync always, supervisor and agents on {num_cores} "
        "shared cores; processor time from /proc; decisions one after the other, from the store's acknowledgment of the signal to "
        f"the read of the last register written because of it; {SCALE}",
    )
    begun = time.monotonic()
    if given.curve:
        sizes = [int(size) for size in given.curve.split(",")]
        measure_curve(report, sizes, heartbeat_seconds=given.heartbeat)
    else:
        measure_fleet(report, given)
        measure_gang(report, given)
    report.note(f"measured in {time.monotonic() - begun:.0f} s")
    return min(report.num_missed, 1)


if __name__ == "__main__":
    sys.exit(main())
