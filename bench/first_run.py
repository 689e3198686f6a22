"""From typing a command to its end, for a command that does nothing: `python -m bench.first_run`.

`stoker run -- true` in an empty folder makes a cluster of one node, starts supervisor, agent and keeper, checks the node, runs the
rank, and ends all of them.
"""

import os
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
        f"median of {ROUNDS} rounds, wall time of the whole command, start of Python included; modules are compiled, as in an "
        f"installed wheel; load at the start {os.getloadavg()[0]:.1f}",
    )
    new, again = [], []
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as compiled:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled}
        # With it, each process of an editable installation would compile all that it imports.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for number in range(ROUNDS + 1):
            with tempfile.TemporaryDirectory(prefix="stoker-bench-") as folder:
                seconds = [_run(Path(folder), environment) for _ in range(2)]
            # The first round compiles.
            if number > 0:
                new.append(seconds[0])
                again.append(seconds[1])
    report.figure_of("in a new folder", new, "s", at_most=LIMIT_SECONDS)
    report.figure_of("again in that folder", again, "s", at_most=LIMIT_SECONDS)
    return 1 if report.num_missed else 0


def _run(folder: Path, environment: dict[str, str]) -> float:
    started = time.perf_counter()
    subprocess.run(
        [*STOKER, "run", "--", "true"],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
