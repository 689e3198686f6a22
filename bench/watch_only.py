"""What `stoker watch-only` costs: `python -m bench.watch_only`. Ranks that print steps, started by a shell, watched from beside."""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.clusters import cpu_seconds, memory_mb
from bench.reference_loop import ReferenceLoop
from bench.report import SCALE, Report, percent_of_core

MEASURED_SECONDS, SETTLE_SECONDS = 60.0, 10.0
NUM_RANKS = 8
# Of each rank a second; a step of a large model takes longer.
STEPS_PER_SECOND = 1.0
# On the first machine.
CPU_LIMIT_PERCENT = 1.0

# A rank: it prints a step, as most trainers do, and sleeps.
RANK = """
import os, sys, time
rate, step = float(sys.argv[1]), 0
while True:
    step += 1
    print(f"step {step} loss {4 / step ** 0.5:.4f} grad_norm 1.02 lr 3e-4", flush=True)
    time.sleep(1 / rate)
"""
LAUNCH = """
for rank in $(seq 0 $((NUM - 1))); do
    RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=$NUM "$PYTHON" rank.py "$RATE" > rank$rank.out 2> rank$rank.err &
done
wait
"""


def measure(report: Report, seconds: float, rate: float) -> None:
    """Watch eight ranks that print so many steps a second each, once the watch has started."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "rank.py").write_text(RANK)
        own = {"NUM": str(NUM_RANKS), "PYTHON": sys.executable, "RATE": str(rate)}
        environment = {**os.environ, **own}
        shell = subprocess.Popen(
            ["bash", "-c", LAUNCH], cwd=folder, env=environment, start_new_session=True
        )
        command = [sys.executable, "-m", "runner.cli.main", "watch-only", "--pid", str(shell.pid)]
        watch = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            time.sleep(SETTLE_SECONDS)
            begun, before = time.monotonic(), cpu_seconds(watch.pid)
            loop = ReferenceLoop()
            loop.sleep(seconds)
            used = (cpu_seconds(watch.pid) - before) / (time.monotonic() - begun)
            memory = memory_mb(watch.pid)[0]
        finally:
            os.killpg(shell.pid, signal.SIGKILL)
            watch.send_signal(signal.SIGINT)
            watch.wait()
            shell.wait()
    name = f"{NUM_RANKS} ranks, {rate:g} steps a second"
    limit = CPU_LIMIT_PERCENT if rate == STEPS_PER_SECOND else None
    report.cost(name, percent_of_core(100 * used), loop, at_most=limit)
    report.figure(f"{name}: memory", memory, "MB")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=MEASURED_SECONDS)
    given = parser.parse_args()
    report = Report(
        "watching what another launched",
        f"{NUM_RANKS} ranks that a shell starts, each prints steps to a file of its own; processor time of `stoker watch-only "
        f"--pid` from /proc over {given.seconds:g} s, after {SETTLE_SECONDS:g} s; {SCALE}",
    )
    measure(report, given.seconds, STEPS_PER_SECOND)
    measure(report, given.seconds, 10.0)
    return int(report.num_missed > 0)


if __name__ == "__main__":
    sys.exit(main())
