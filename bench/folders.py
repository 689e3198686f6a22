"""What a folder of many ranks costs: `python -m bench.folders`. `stoker diagnose` reads it, from cold, as a person calls it."""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from bench.report import Report
from bench.scan import STEP_SHARE, log

NUM_RANKS, MEGABYTES = 1000, 10
SICK_RANK = 777
SICK = b"RuntimeError: CUDA error: an illegal memory access was encountered\n"
# Of 1,000 ranks with 10 MB each on two cores; of the rest, less.
MAX_SECONDS_PER_GB = 12.0
# Of the command and of each of its processes: it must not grow with the logs.
MAX_RESIDENT_MB = 400.0
# A single log of so many megabytes, from cold.
SINGLE_MEGABYTES, MAX_SINGLE_SECONDS = 10, 1.0


def make_folder(folder: Path, num_ranks: int, data: bytes) -> None:
    """Write logs: all but one are links to the same bytes, so that they need no room; that one ends with an error."""
    first = folder / "rank0.log"
    first.write_bytes(data)
    for rank in range(1, num_ranks):
        path = folder / f"rank{rank}.log"
        if rank == SICK_RANK % num_ranks:
            path.write_bytes(data + SICK)
        else:
            os.link(first, path)


class Cost(NamedTuple):
    """What the command took: seconds, seconds of all its processes' work, and megabytes of the largest process."""

    seconds: float
    cpu_seconds: float
    resident_mb: float


def diagnosed(path: Path) -> tuple[Cost, list[dict[str, object]]]:
    """Run the command; return what it took and what it found."""
    begun, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "runner.cli.main", "diagnose", str(path), "--json"],
        stdout=subprocess.PIPE,
        check=False,
    )
    seconds = time.monotonic() - begun
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    cost = Cost(seconds, cpu_seconds, after.ru_maxrss / 1024)
    return cost, [json.loads(line) for line in done.stdout.splitlines()]


def measure(report: Report, num_ranks: int, megabytes: int) -> None:
    """Measure one log from cold, then the folder, and whether the sick rank is named."""
    data = log(megabytes * 1_000_000, STEP_SHARE)
    with tempfile.TemporaryDirectory() as name:
        single = Path(name) / "train.log"
        single.write_bytes(log(SINGLE_MEGABYTES * 1_000_000, STEP_SHARE) + SICK)
        # The first call compiles and caches the patterns.
        diagnosed(single)
        cost, _ = diagnosed(single)
        what = f"one log of {SINGLE_MEGABYTES} MB"
        report.figure(what, cost.seconds, "s", at_most=MAX_SINGLE_SECONDS)
        report.figure(f"{what}, processor time", cost.cpu_seconds, "s")
        folder = Path(name) / "logs"
        folder.mkdir()
        make_folder(folder, num_ranks, data)
        cost, found = diagnosed(folder)
        gigabytes = num_ranks * len(data) / 1e9
        what = f"{num_ranks} ranks of {megabytes} MB ({gigabytes:.1f} GB)"
        most = MAX_SECONDS_PER_GB * gigabytes
        report.figure(what, cost.seconds, "s", at_most=most)
        # On a machine that does other work as well, this says what two idle cores would take.
        report.figure(
            f"{what}, processor time on each of two cores", cost.cpu_seconds / 2, "s", at_most=most
        )
        report.figure(
            "memory of the largest process", cost.resident_mb, "MB", at_most=MAX_RESIDENT_MB
        )
        culprits = [one["culprit"] for one in found]
        if culprits != [{"kind": "rank", "id": str(SICK_RANK % num_ranks)}]:
            report.miss("the sick rank alone is named", f"found {culprits}")
        else:
            report.note("the sick rank alone is named")


def main() -> int:
    """Measure; return 1 if a limit was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=NUM_RANKS, help="in the folder (%(default)s)")
    parser.add_argument("--megabytes", type=int, default=MEGABYTES, help="of each (%(default)s)")
    given = parser.parse_args()
    report = Report(
        "folders of logs",
        f"a folder of {given.ranks} logs of {given.megabytes} MB, Megatron's steps and what libraries write; all but one are hard "
        f"links to the same file, so the disk is left out; one ends with a CUDA error; wall time of `stoker diagnose` on "
        f"{len(os.sched_getaffinity(0))} cores, interpreter and imports included",
    )
    measure(report, given.ranks, given.megabytes)
    return min(report.num_missed, 1)


if __name__ == "__main__":
    sys.exit(main())
