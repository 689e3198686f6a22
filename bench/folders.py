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


def diagnosed(path: Path) -> tuple[float, float, list[dict[str, object]]]:
    """Run the command; return its seconds, the megabytes of its largest process, and what it found."""
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "runner.cli.main", "diagnose", str(path), "--json"],
        stdout=subprocess.PIPE,
        check=False,
    )
    seconds = time.monotonic() - begun
    resident = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return seconds, resident, [json.loads(line) for line in done.stdout.splitlines()]


def measure(report: Report, num_ranks: int, megabytes: int) -> None:
    """Measure one log from cold, then the folder, and whether the sick rank is named."""
    data = log(megabytes * 1_000_000, STEP_SHARE)
    with tempfile.TemporaryDirectory() as name:
        single = Path(name) / "train.log"
        single.write_bytes(log(SINGLE_MEGABYTES * 1_000_000, STEP_SHARE) + SICK)
        # The first call compiles and caches the patterns.
        diagnosed(single)
        seconds, _, _ = diagnosed(single)
        report.figure(f"one log of {SINGLE_MEGABYTES} MB", seconds, "s", at_most=MAX_SINGLE_SECONDS)
        folder = Path(name) / "logs"
        folder.mkdir()
        make_folder(folder, num_ranks, data)
        seconds, resident, found = diagnosed(folder)
        gigabytes = num_ranks * len(data) / 1e9
        what = f"{num_ranks} ranks of {megabytes} MB ({gigabytes:.1f} GB)"
        report.figure(what, seconds, "s", at_most=MAX_SECONDS_PER_GB * gigabytes)
        report.figure("memory of the largest process", resident, "MB", at_most=MAX_RESIDENT_MB)
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
