"""Run benchmarks one after the other, each in a process of its own, and sum up who missed a limit."""

import os
import platform
import subprocess
import sys
import time
from pathlib import Path

NO_BENCHMARKS = {
    "__init__",
    "__main__",
    "clusters",
    "forks",
    "long_journal",
    "reference_loop",
    "report",
    "timed_rank",
}


def names() -> list[str]:
    """List the benchmarks there are: files, and folders that run as programs."""
    here = Path(__file__).parent
    found = {path.stem for path in here.glob("*.py")}
    found |= {path.parent.name for path in here.glob("*/__main__.py")}
    return sorted(found - NO_BENCHMARKS)


def main(chosen: list[str]) -> int:
    """Run the chosen benchmarks, or all; return 0 when every figure with a limit passed, 1 on a miss, 2 on a wrong name."""
    unknown = [name for name in chosen if name not in names()]
    if unknown:
        print(f"no benchmark {unknown[0]!r}; known: {', '.join(names())}", file=sys.stderr)
        return 2
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    print(
        f"{platform.platform()}, Python {platform.python_version()}, {cores} cores, load {load:.1f}"
    )
    missed = []
    for name in chosen or names():
        started = time.monotonic()
        code = subprocess.run([sys.executable, "-m", f"bench.{name}"], check=False).returncode
        print(f"  ({time.monotonic() - started:.0f} s)", flush=True)
        if code:
            missed.append(
                f"{name} ({'missed a limit, or broke' if code == 1 else f'ended with {code}'})"
            )
    print(f"\n{'MISS: ' + ', '.join(missed) if missed else 'PASS: every limit holds'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
