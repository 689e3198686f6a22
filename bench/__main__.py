"""Run benchmarks one after the other, each in a process of its own, and sum up which missed a limit.

`--write` puts what each prints into `bench/results/<name>.txt` as well, in place of what was there: for a machine that does
nothing else.
"""

import argparse
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

RESULTS = Path(__file__).parent / "results"

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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen benchmarks, or all; return 0 when every figure with a limit passed, 1 on a miss, 2 on a wrong name."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    parser.add_argument("--write", action="store_true", help="write bench/results/NAME.txt")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.names if name not in names()]
    if unknown:
        print(f"no benchmark {unknown[0]!r}; known: {', '.join(names())}", file=sys.stderr)
        return 2
    print(_machine())
    missed = []
    for name in given.names or names():
        code = _run(name, RESULTS / f"{name}.txt" if given.write else None)
        if code:
            missed.append(
                f"{name} ({'missed a limit, or broke' if code == 1 else f'ended with {code}'})"
            )
    print(f"\n{'MISS: ' + ', '.join(missed) if missed else 'PASS: every limit holds'}")
    return 1 if missed else 0


def _machine() -> str:
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    python = platform.python_version()
    return f"{platform.platform()}, Python {python}, {cores} cores, load {load:.1f}"


def _run(name: str, result: Path | None) -> int:
    """Run one benchmark, print what it prints as it comes, and write it to a file; return its exit code."""
    lines, started = [_machine() + "\n"], time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-u", "-m", f"bench.{name}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    taken = f"  ({time.monotonic() - started:.0f} s)"
    print(taken, flush=True)
    text = "".join(lines)
    # A miss is a result, a benchmark that broke is none; both end with 1.
    is_whole = "\n  method: " in text and "\nTraceback (" not in text
    if result is not None and process.returncode in (0, 1) and is_whole:
        result.write_text(f"{text}{taken}\n")
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())
