"""From typing a command to its end, for a command that does nothing: `python -m bench.first_run`.

`stoker run -- true` in an empty folder makes a cluster of one node, starts supervisor, agent and keeper, checks the node, runs the
rank, and ends all of them.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.report import Report

ROUNDS = 7
# From the issue; on two cores that nothing else uses.
LIMIT_SECONDS = 2.0
STOKER = [sys.executable, "-P", "-m", "runner.cli.main"]


def main() -> int:
    """Run it in new folders, then once more in a folder that has run it; return 1 on a miss."""
    report = Report(
        "first_run: `stoker run -- true`, from typing to the end",
        f"median of {ROUNDS} rounds, wall time of the whole command, start of Python included",
    )
    new, again = [], []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory(prefix="stoker-bench-") as folder:
            new.append(_run(Path(folder)))
            again.append(_run(Path(folder)))
    report.figure_of("in a new folder", new, "s", at_most=LIMIT_SECONDS)
    report.figure_of("again in that folder", again, "s", at_most=LIMIT_SECONDS)
    return 1 if report.num_missed else 0


def _run(folder: Path) -> float:
    started = time.perf_counter()
    subprocess.run(
        [*STOKER, "run", "--", "true"],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
