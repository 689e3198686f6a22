"""How long the answer to a rank's death takes a supervisor: from the exit of the rank to the assignments of the next attempt.

A real supervisor on SQLite, and agents whose ranks are made up (bench/fleet/batched_agents.py). What the nodes do in between, to
end their ranks, is theirs; how long that takes real nodes is a part of `bench.recovery`.
"""

import argparse
import signal
import sys
from collections.abc import Sequence

from bench.fleet.measures import NODES_PER_RUN, Decisions, crash_rounds, start_runs
from bench.fleet.stage import Stage, stage
from bench.report import Report, quantile

SIZES, ROUNDS, LINES_ROUNDS, GANG_ROUNDS = (8, 2000), 100, 10, 5
# Issue 15.
LIMIT_MS = 50.0
# Of all nodes that one gang takes: the rest are spares.
GANG_RATIO = 0.98


def measure_fleet(report: Report, nodes: int, rounds: int, lines_rounds: int) -> None:
    """Measure a fleet in gangs of eight nodes."""
    with stage(nodes, is_on_redis=False) as harness:
        harness.join()
        start_runs(harness)
        kills = crash_rounds(harness, rounds)
        _figures_of(report, f"{nodes} nodes in gangs of {NODES_PER_RUN}", kills, LIMIT_MS)
        _figures_of_lines(report, harness, lines_rounds)


def measure_gang(report: Report, nodes: int, rounds: int) -> None:
    """Measure one gang of nearly all nodes: its end alone is a signal of each of them."""
    with stage(nodes, is_on_redis=False) as harness:
        harness.join()
        size = max(1, int(nodes * GANG_RATIO))
        start_runs(harness, nodes_per_run=size)
        _figures_of(report, f"{nodes} nodes, one gang of {size}", crash_rounds(harness, rounds))


def _figures_of(report: Report, name: str, found: Decisions, limit_ms: float | None = None) -> None:
    report.figure_of(f"{name}: killed rank's exit to idle assignments", found.idle_ms, "ms")
    report.figure_of(f"{name}: last node clear to launch assignments", found.launch_ms, "ms")
    report.figure_of(
        f"{name}: both, from finding to assignment", found.both_ms, "ms", at_most=limit_ms
    )
    report.figure(f"{name}: both, 90 %", quantile(found.both_ms, 0.9), "ms")
    report.figure_of(f"{name}: with the nodes' own part between the two", found.whole_ms, "ms")


def _figures_of_lines(report: Report, harness: Stage, rounds: int) -> None:
    """Measure deaths of ranks that wrote why: their answer waits for lines, by design, `diagnose_seconds` at most."""
    read = crash_rounds(harness, rounds, loss="fail", seed=2)
    name = f"{harness.count} nodes, a rank that wrote why it ended"
    report.figure_of(
        f"{name}: both, once its node has read that", read.both_ms, "ms", at_most=LIMIT_MS
    )
    unread = crash_rounds(harness, rounds, loss="fail_silently", seed=3)
    wait_ms = harness.cluster.diagnose_seconds * 1e3
    beyond_ms = [each - wait_ms for each in unread.whole_ms]
    report.note(
        f"where its node reports nothing, the answer waits diagnose_seconds ({wait_ms:g} ms) by design"
    )
    report.figure_of(f"{name}, its node silent: beyond that wait", beyond_ms, "ms")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return 1 if a limit was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.reassignment", description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=SIZES, help="sizes of fleets")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="ranks that are killed")
    parser.add_argument("--lines-rounds", type=int, default=LINES_ROUNDS, help="that wrote why")
    parser.add_argument(
        "--gang-rounds", type=int, default=GANG_ROUNDS, help="in the one gang; 0: none"
    )
    given = parser.parse_args(arguments)
    # End what was started.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    report = Report(
        "reassignment: from the finding to the assignment",
        "a real supervisor with its journal, codes and high-water mark on SQLite (synchronous=FULL); agents on the same cores, "
        "which share one writer, whose messages are signed and whose ranks are made up, one heartbeat a second each (bench/fleet), "
        "without checks of nodes; deaths one after the other, each in another "
        f"gang, {given.rounds} killed ranks; milliseconds from the store's acknowledgment of a signal to the read of the last "
        "register written because of it, fsyncs included: median (smallest to largest)",
    )
    for nodes in given.nodes:
        measure_fleet(report, nodes, given.rounds, given.lines_rounds)
    if given.gang_rounds:
        measure_gang(report, given.nodes[-1], given.gang_rounds)
    return min(report.num_missed, 1)


if __name__ == "__main__":
    sys.exit(main())
