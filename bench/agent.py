"""What supervising a node costs and how fast it is: an agent, its keeper and two ranks that report a step a second.

Also what a spare costs that waits: its agent has run the passive checks, follows the kernel's log, and has no ranks.
"""

import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from bench.reference_loop import ReferenceLoop
from bench.report import SCALE, Report, percent_of_core, quantile
from runner.facts.ids import AttemptId
from runner.facts.specs.check_levels import LEVELS
from runner.facts.specs.cluster import LocalNodes
from tests.agent.node import REPORTER, Node

NUM_ROUNDS = 15
QUIET_SECONDS = 30.0
# On the first machine.
CPU_LIMIT_PERCENT = 0.3
RESIDENT_LIMIT_MB = 80.0
SPARE_CPU_LIMIT_PERCENT = 5.0
# Half of what detecting, deciding and stopping may take together.
STOP_LIMIT_MS = 75.0
SEE_LIMIT_MS = 50.0


def cpu_seconds(pid: int) -> float:
    """Return the time all threads of a process have run, in the scheduler's nanoseconds."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def one_round(node: Node, number: int) -> dict[str, float]:
    """Start a gang, kill a rank, end the gang; return the milliseconds of each, as a reader of the store sees them."""
    attempt = AttemptId(1, 1, number)
    taken_ms = {}

    def until(kind: str, started: float) -> Any:
        message = node.wait_for(kind, lambda fact: fact.attempt == attempt)
        taken_ms[kind] = (time.monotonic() - started) * 1e3
        return message

    begun = time.monotonic()
    node.assign(node.plan(REPORTER, {"pause": 1.0}, attempt=attempt), number)
    pids = until("RanksStarted", begun).pids
    node.wait_for("RanksReady", lambda fact: fact.attempt == attempt)
    begun = time.monotonic()
    os.kill(pids["1"], signal.SIGKILL)
    until("RankExited", begun)
    begun = time.monotonic()
    node.assign(None, number)
    until("RanksTerminated", begun)
    return taken_ms


def measure_spare(report: Report, loop: ReferenceLoop) -> None:
    """Measure the agent of a machine of its own, which reads that machine's kernel log, while it waits."""
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as folder:
        node = Node(Path(folder), heartbeat_seconds=1.0)
        node.cluster = replace(node.cluster, local=LocalNodes(nodes=0, slots=4))
        try:
            agent = node.start_agent().pid
            checked = node.answer(node.check(level=LEVELS[0]))
            assert checked.outcome == "done", checked
            before = cpu_seconds(agent)
            loop.sleep(QUIET_SECONDS)
            spent, resident = cpu_seconds(agent) - before, resident_mb(agent)
        finally:
            node.end()
    percent = percent_of_core(100 * spent / QUIET_SECONDS)
    report.cost("CPU, agent of a spare that waits", percent, loop, at_most=SPARE_CPU_LIMIT_PERCENT)
    report.figure(
        "resident, agent of a spare after its checks", resident, "MB", at_most=RESIDENT_LIMIT_MB
    )


def main() -> int:
    """Measure on the disk where temporary files go; return the number of misses."""
    report = Report(
        "agent",
        f"one agent on a SQLite store, 2 ranks at 1 step a second, heartbeat 1 s; CPU: scheduler's run time of all "
        f"threads over {QUIET_SECONDS:.0f} s; times: median and worst of {NUM_ROUNDS} rounds, from the cause to the "
        f"signal as read from the store; {SCALE}",
    )
    loop = ReferenceLoop()
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as folder:
        node = Node(Path(folder), heartbeat_seconds=1.0)
        try:
            agent = node.start_agent().pid
            rounds = [one_round(node, number) for number in range(1, NUM_ROUNDS + 1)]
            plan = node.plan(REPORTER, {"pause": 1.0}, attempt=AttemptId(1, 2, 0))
            node.launch(plan, generation=NUM_ROUNDS + 1)
            keeper = node.keeper
            time.sleep(2.0)
            before = cpu_seconds(agent), cpu_seconds(keeper)
            loop.sleep(QUIET_SECONDS)
            spent = cpu_seconds(agent) - before[0], cpu_seconds(keeper) - before[1]
            resident = resident_mb(agent), resident_mb(keeper)
        finally:
            node.end()
    for kind, name, limit in (
        ("RanksStarted", "plan written -> ranks started", None),
        ("RankExited", "kill -9 of a rank -> its exit", SEE_LIMIT_MS),
        ("RanksTerminated", "idle written -> no rank left", STOP_LIMIT_MS),
    ):
        values = [taken[kind] for taken in rounds]
        report.figure(f"{name}, median", quantile(values, 0.5), "ms", at_most=limit)
        report.figure(f"{name}, worst", max(values), "ms")
    for name, seconds in zip(("agent", "keeper"), spent, strict=True):
        percent = percent_of_core(100 * seconds / QUIET_SECONDS)
        report.cost(f"CPU, {name}", percent, loop, at_most=CPU_LIMIT_PERCENT)
    for name, megabytes in zip(("agent", "keeper"), resident, strict=True):
        report.figure(f"resident, {name}", megabytes, "MB", at_most=RESIDENT_LIMIT_MB)
    measure_spare(report, loop)
    return min(report.num_missed, 1)


if __name__ == "__main__":
    sys.exit(main())
