"""What being supervised costs: processor time and memory of Stoker's own processes, and the time a rank spends on reports."""

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.clusters import (
    NUM_NODES,
    NUM_SPARES,
    RANKS_PER_NODE,
    Shape,
    Team,
    cpu_seconds,
    ended,
    memory_mb,
    running,
    speaker,
    team_of,
)
from bench.reference_loop import ReferenceLoop
from bench.report import SCALE, Report, microseconds, percent_of_machine
from runner.facts.messages.cluster_status import ClusterStatus, RunStatus
from tests.e2e.cluster_harness import ClusterHarness, newest_run

MEASURED_SECONDS = 60.0
# Before measuring begins, so that the start is not measured.
SETTLE_STEPS = 5
TRAINER_STEPS = 150
# On the first machine.
CPU_LIMIT_PERCENT = 0.8
IN_RANK_LIMIT_US = 150.0
RESIDENT_LIMIT_MB = 80.0
# The line of `bench.timed_rank` on the first rank at the end.
COST_LINE = re.compile(r"supervision took ([\d.]+) us a step, the reference loop ([\d.]+) us")
ROOT = Path(__file__).parents[1]


def past_step(status: ClusterStatus, step: int) -> ClusterStatus | None:
    """Return the status once its run has done that many steps."""
    run = newest_run(status)
    return status if run is not None and run.step >= step else None


def cpu_by_kind(team: Team) -> dict[str, float]:
    """Return the processor seconds so far of the supervisor, and of agents, keepers and readers of logs, each together."""
    return {
        "supervisor": cpu_seconds(team.supervisor),
        "agents": sum(cpu_seconds(pid) for pid in team.agents.values()),
        "keepers": sum(cpu_seconds(pid) for pid in team.keepers.values()),
        "readers": sum(cpu_seconds(pid) for pid in team.readers.values()),
    }


def measure_processes(report: Report, seconds: float) -> None:
    """Watch a cluster whose ranks make a step a second and need no processor themselves."""
    with running(command=speaker(1.0)) as harness:
        status = harness.wait(lambda status: past_step(status, SETTLE_STEPS), "the first steps")
        team = team_of(harness, status)
        loop = ReferenceLoop()
        started, before = time.monotonic(), cpu_by_kind(team)
        loop.sleep(seconds)
        after, wall_seconds = cpu_by_kind(team), time.monotonic() - started
        memory = {
            "supervisor": memory_mb(team.supervisor),
            **{f"agent of {node}": memory_mb(pid) for node, pid in team.agents.items()},
            **{f"keeper of {node}": memory_mb(pid) for node, pid in team.keepers.items()},
            **{f"reader of {node}": memory_mb(pid) for node, pid in team.readers.items()},
        }
    cores = len(os.sched_getaffinity(0))
    available = wall_seconds * cores
    spent = {kind: after[kind] - before[kind] for kind in after}
    num_processes = 1 + len(team.agents) + len(team.keepers) + len(team.readers)
    floor = num_processes / os.sysconf("SC_CLK_TCK")
    parts = {
        **{f"CPU, {kind}": used for kind, used in spent.items()},
        "floor: one clock tick for each process": floor,
    }
    for name, used in parts.items():
        report.cost(name, percent_of_machine(100 * used / available, cores), loop)
    total = percent_of_machine(100 * sum(spent.values()) / available, cores)
    report.cost("CPU, all together", total, loop, at_most=CPU_LIMIT_PERCENT)
    for name, (resident, own) in memory.items():
        limit = None if name.startswith(("keeper", "reader")) else RESIDENT_LIMIT_MB
        report.figure(f"resident, {name}", resident, "MB", at_most=limit)
        report.figure(f"  own share of it, {name}", own, "MB")


def measure_rank(report: Report, num_steps: int) -> None:
    """Train for real, and read what rank 0 counted."""
    trainer = {
        "recipe": "tiny_cpu",
        "steps": num_steps,
        "checkpoint_every": 0,
        "validate_every": 0,
    }
    # In a command, single braces mark placeholders.
    settings = json.dumps(trainer).replace("{", "{{").replace("}", "}}")
    command = [sys.executable, "-m", "bench.timed_rank", "--settings-json", settings]
    environment = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    with running(Shape(spares=0), command=command, environment=environment) as harness:
        run = harness.wait(ended, "the end of training")
        cost_us, loop_us = reported_cost_us(harness, run)
    loop = ReferenceLoop(samples_us=[loop_us])
    report.cost("in a rank, per step", microseconds(cost_us), loop, at_most=IN_RANK_LIMIT_US)


def reported_cost_us(harness: ClusterHarness, run: RunStatus) -> tuple[float, float]:
    """Return the microseconds that rank 0 counted: of supervision in a step, of an iteration of the loop."""
    output = Path(run.folder, "attempts", str(run.attempt), "rank0.out").read_text()
    match = COST_LINE.search(output)
    if match is None:
        raise RuntimeError(f"rank 0 reported no cost of supervision:\n{harness.report()}")
    return float(match[1]), float(match[2])


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 when a limit is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.supervision", description=__doc__)
    parser.add_argument("--seconds", type=float, default=MEASURED_SECONDS, help="of measuring")
    parser.add_argument("--steps", type=int, default=TRAINER_STEPS, help="of the trainer")
    given = parser.parse_args(arguments)
    report = Report(
        "supervision",
        f"{NUM_NODES} nodes x {RANKS_PER_NODE} ranks and {NUM_SPARES} spare on one machine, a step a second, heartbeat 1 s; "
        f"CPU: utime + stime of all threads over {given.seconds:.0f} s after {SETTLE_STEPS} steps; in a rank: CPU time of "
        f"its thread in reports, watch on gradients and agreement on requests, median of {given.steps} steps of tiny_cpu, rank 0, "
        f"where the loop runs after each step; {SCALE}",
    )
    measure_processes(report, given.seconds)
    measure_rank(report, given.steps)
    return min(report.num_missed, 1)


if __name__ == "__main__":
    sys.exit(main())
