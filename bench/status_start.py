"""From typing `stoker status` to its end, beside a Python that does nothing: `python -m bench.status_start`.

The cluster is described by a cluster.yaml with checks and limits of theirs, or by what `stoker run` wrote; its store is SQLite.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.report import Report
from bench.scrape import fleet_status
from runner.cli.made_clusters import write_spec
from runner.facts import wire
from runner.facts.specs.cluster import ClusterSpec, LocalNodes
from runner.facts.store_names import STATUS
from runner.store.sqlite.store import SqliteStore

ROUNDS = 20
LIMIT_MS = 300.0
STATUS_COMMAND = (sys.executable, "-P", "-m", "runner.cli.main", "status")
NOTHING = (sys.executable, "-c", "pass")
CLUSTER = """
name: tiny
state: state
local: {nodes: 2, slots: 8}
checks: [disk_space, shared_memory, processes, memory, clock, gpu]
check_limits: {disk_space.free_bytes: 1000000000}
"""


def described_cluster(folder: Path) -> None:
    """Write a cluster.yaml, and a status into its store."""
    folder.mkdir()
    (folder / "cluster.yaml").write_text(CLUSTER)
    SqliteStore(folder / "state" / "store").put(STATUS, wire.encode(fleet_status(2)))


def made_cluster(folder: Path) -> None:
    """Write a cluster as `stoker run` does, and a status into its store."""
    folder.mkdir()
    state = folder.absolute() / ".stoker" / "local"
    write_spec(ClusterSpec(name="local", state=str(state), local=LocalNodes(nodes=2, slots=8)))
    SqliteStore(state / "store").put(STATUS, wire.encode(fleet_status(2)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; return 1 on a miss."""
    parser = argparse.ArgumentParser(prog="python -m bench.status_start", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args(arguments)
    report = Report(
        "status_start: `stoker status`, from typing to the end",
        f"median of {given.rounds} rounds in turn, wall time of a new process, start of Python included; modules are compiled, as "
        f"in an installed wheel; load at the start {os.getloadavg()[0]:.1f}",
    )
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as name:
        described, made, compiled = (
            Path(name) / "described",
            Path(name) / "made",
            Path(name) / "pyc",
        )
        described_cluster(described)
        made_cluster(made)
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(compiled)}
        # With it, each process of an editable installation would compile all that it imports.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        cases = {
            "with a cluster.yaml": (STATUS_COMMAND, described),
            "without one": (STATUS_COMMAND, made),
            "python -c pass": (NOTHING, made),
        }
        taken_ms: dict[str, list[float]] = {case: [] for case in cases}
        for number in range(given.rounds + 1):
            for case, (command, folder) in cases.items():
                ms = _run(command, folder, environment)
                # The first round compiles.
                if number:
                    taken_ms[case].append(ms)
    for case, values in taken_ms.items():
        limit = None if case == "python -c pass" else LIMIT_MS
        report.figure_of(case, values, "ms", at_most=limit)
    return 1 if report.num_missed else 0


def _run(command: Sequence[str], folder: Path, environment: dict[str, str]) -> float:
    started = time.perf_counter()
    subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return (time.perf_counter() - started) * 1e3


if __name__ == "__main__":
    sys.exit(main())
