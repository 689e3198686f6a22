"""How fast the patterns of the check memory_patterns go through memory, beside libc's memset and memcmp in the same run.

Both sides use the same number of threads on memory that has been touched before. Fill: at least 70 % of memset. Verify, which
computes what each block must hold and compares it: at least 50 % of memcmp of two regions.
"""

import argparse
import ctypes
import mmap
import os
import runpy
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.report import Report
from healthchecks.probe import START

MIB = 1 << 20
# Goals of the project.
FILL_RATIO, VERIFY_RATIO = 0.70, 0.50
# Of the patterns: one of a word that is the same everywhere, one of words that are computed.
MEASURED = ("solid 55", "own address", "random")
PROBE = START.with_name("memory_patterns.py")


class Plain:
    """Two regions that libc fills and compares, in as many threads as the probe has."""

    def __init__(self, num_bytes: int, num_threads: int) -> None:
        self.num_bytes, self.num_threads = num_bytes, num_threads
        self._libc = ctypes.CDLL(None)
        self._libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
        self._libc.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
        self._memory = [mmap.mmap(-1, num_bytes) for _ in range(2)]
        for each in self._memory:
            each.madvise(mmap.MADV_HUGEPAGE)
        self._first, self._second = (
            ctypes.addressof(ctypes.c_char.from_buffer(each)) for each in self._memory
        )
        self._pool = ThreadPoolExecutor(num_threads)

    def fill(self) -> float:
        """Return bytes a second of memset; fill both regions."""
        self._each(lambda at, size: self._libc.memset(self._second + at, 0x55, size))
        return self._each(lambda at, size: self._libc.memset(self._first + at, 0x55, size))

    def compare(self) -> float:
        """Return bytes a second, of one region, of memcmp."""
        return self._each(
            lambda at, size: self._libc.memcmp(self._first + at, self._second + at, size)
        )

    def _each(self, work: Callable[[int, int], int]) -> float:
        size = self.num_bytes // self.num_threads
        began = time.perf_counter()
        list(self._pool.map(lambda i: work(i * size, size), range(self.num_threads)))
        return self.num_bytes / (time.perf_counter() - began)


def rates_of(num_bytes: int, num_threads: int, pattern: str, seconds: float) -> dict[str, Any]:
    """Run one pattern of the probe again and again on so many bytes."""
    probe = runpy.run_path(str(PROBE))["probe"]
    asked = {"device": "cpu", "patterns": [pattern], "repeats": True, "seed": 1}
    asked |= {"first_bytes": num_bytes, "most_bytes": num_bytes, "num_workers": num_threads}
    found: dict[str, Any] = probe({**asked, "until": time.monotonic() + seconds}, [])
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 when a limit is missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.memory_patterns", description=__doc__)
    parser.add_argument("--mib", type=int, default=512, help="of each region")
    parser.add_argument("--rounds", type=int, default=6, help="of which the best counts")
    parser.add_argument(
        "--seconds", type=float, default=1.5, help="for each pattern, in each round"
    )
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    given = parser.parse_args(arguments)
    report = Report(
        "memory_patterns: the probe beside memset and memcmp",
        f"{given.mib} MiB, {given.threads} threads on both sides; the best of {given.rounds} rounds; in each, memset, memcmp, and "
        f"{given.seconds:g} s of each pattern, one after the other",
    )
    plain = Plain(given.mib * MIB, given.threads)
    plain.fill()
    fills, compares = [], []
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in MEASURED}
    for _ in range(given.rounds):
        fills.append(plain.fill())
        compares.append(plain.compare())
        for name, rates in found.items():
            rates.append(rates_of(given.mib * MIB, given.threads, name, given.seconds))
    report.figure("memset", max(fills) / 1e9, "GB/s")
    report.figure("memcmp", max(compares) / 1e9, "GB/s")
    for name, rates in found.items():
        for what, key, most, least in (
            ("fill to memset", "fill_bytes_per_second", max(fills), FILL_RATIO),
            ("verify to memcmp", "verify_bytes_per_second", max(compares), VERIFY_RATIO),
        ):
            best = max(each[key] for each in rates)
            report.figure(f"{name}: {what}", best / most, "x", at_least=least)
    return min(report.num_missed, 1)


if __name__ == "__main__":
    sys.exit(main())
