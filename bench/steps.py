"""A step history of 1,000,000 steps: bytes on disk, and how long it takes to read it for a plot."""

import argparse
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.reference_loop import ReferenceLoop
from bench.report import SCALE, Report, seconds
from runner.facts.ids import AttemptId
from runner.steps import COLUMNS, RunFiles, StepRow

STEPS = 1_000_000
BLOCK_ROWS = 20
LEADERS = 5
ROUNDS = 5
LIMIT_MB, LIMIT_SECONDS = 100.0, 2.0
READ = """
import sys, time
begin = time.perf_counter()
from pathlib import Path
from runner.steps import contributing, read
rows = contributing(read(Path(sys.argv[1]), 1))
print(time.perf_counter() - begin, time.process_time(), len(rows), rows[0].step, rows[-1].step)
"""


def write(folder: Path, num_steps: int) -> tuple[float, float]:
    """Write the history; return seconds in all, and the longest that one append or compaction took."""
    draw, attempt, longest = random.Random(1), AttemptId(1, 1, 0), 0.0
    begin = time.perf_counter()
    share = num_steps // LEADERS
    for leader in range(LEADERS):
        files = RunFiles(folder, run=1, run_name="bench", admitted_at=0.0, token=leader + 1)
        for first in range(leader * share + 1, (leader + 1) * share + 1, BLOCK_ROWS):
            rows = [
                StepRow._make(
                    (step, 1.7e9 + step / 10, attempt, *[draw.random() for _ in COLUMNS], False)
                )
                for step in range(first, first + BLOCK_ROWS)
            ]
            started = time.perf_counter()
            files.append(rows)
            if files.is_thick:
                files.compact()
            longest = max(longest, time.perf_counter() - started)
    return time.perf_counter() - begin, longest


def main(arguments: Sequence[str] | None = None) -> int:
    """Write, measure and read it; return 1 when a limit is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.steps", description=__doc__)
    parser.add_argument("--steps", type=int, default=STEPS, help="that are written")
    given = parser.parse_args(arguments)
    report = Report(
        "step history",
        f"{given.steps:,} steps written as a supervisor does, {BLOCK_ROWS} rows in a block (two seconds of ten steps a second), "
        f"thinned when it is due, by {LEADERS} leaders one after the other; every column has a value and no two are alike; read by "
        "a process of its own, which imports, reads all rows and picks those that count, the median (smallest to largest) of "
        f"{ROUNDS}; {SCALE}",
    )
    loop, found = ReferenceLoop(is_hot=True), []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        wrote_seconds, longest = write(folder, given.steps)
        files = list((folder / "1").iterdir())
        size_mb = sum(path.stat().st_size for path in files) / 1e6
        for _ in range(ROUNDS):
            loop.sample()
            program = [sys.executable, "-c", READ, scratch]
            done = subprocess.run(program, capture_output=True, text=True, check=True)
            found.append([float(field) for field in done.stdout.split()])
    report.figure("on disk", size_mb, "MB", at_most=LIMIT_MB)
    report.figure_of("read for a plot", [each[0] for each in found], "s", at_most=LIMIT_SECONDS)
    used_seconds = statistics.median(each[1] for each in found)
    report.cost("processor time of that, interpreter included", seconds(used_seconds), loop)
    report.figure("longest append, with what thins", longest, "s")
    report.figure("all of it written in", wrote_seconds, "s")
    num_rows, first, last = map(int, found[0][2:])
    report.note(f"{len(files)} files; {num_rows} rows are left of steps {first} to {last}")
    return 1 if report.num_missed else 0


if __name__ == "__main__":
    sys.exit(main())
