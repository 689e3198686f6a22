"""All limits, in one table: value, unit, where the number comes from, and the range in which it means something.

A limit that no value could ever break, or that every value breaks, is a dead rule; `least` and `most` keep overrides from
making one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from healthchecks.check import Evidence, Judge
from runner.errors import UserError
from runner.facts.wording import closest

CHOSEN = "chosen, not measured"
DEFINED = "by definition"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A named limit. `rule` says how a healthy value lies to it; overrides must lie between `least` and `most`."""

    rule: Literal["at least", "at most"]
    value: float
    unit: str
    source: str
    least: float
    most: float


def _at_least(value: float, unit: str, source: str, *, most: float, least: float = 1) -> Limit:
    return Limit(rule="at least", value=value, unit=unit, source=source, least=least, most=most)


def _at_most(value: float, unit: str, source: str, *, most: float, least: float = 0) -> Limit:
    return Limit(rule="at most", value=value, unit=unit, source=source, least=least, most=most)


LIMITS: Mapping[str, Limit] = {
    "disk_space.free_bytes": _at_least(2 << 30, "bytes", CHOSEN, most=1e18),
    "disk_space.free_inodes": _at_least(10_000, "inodes", CHOSEN, most=1e12),
    "disk_space.written_bytes": _at_least(4 << 20, "bytes", "size of the probe", most=4 << 20),
    "disk_space.wrong_bytes": _at_most(0, "bytes", DEFINED, most=0),
    "disk_space.fsync_seconds": _at_most(10, "seconds", CHOSEN, most=600, least=1e-6),
    "shared_memory.free_bytes": _at_least(
        1 << 30, "bytes", "NCCL user guide: containers want --shm-size=1g", most=1e15
    ),
    "shared_memory.leftover_bytes": _at_most(16 << 20, "bytes", CHOSEN, most=1e15),
    "memory.available_bytes": _at_least(2 << 30, "bytes", CHOSEN, most=1e15),
    "memory.swap_used_ratio": _at_most(0.5, "ratio", CHOSEN, most=0.99),
    "memory.wrong_bytes": _at_most(0, "bytes", DEFINED, most=0),
    "memory.wrong_sums": _at_most(0, "sums", DEFINED, most=0),
    "clock.earliest_year": _at_least(
        2025, "year", "older than this software", least=1971, most=2200
    ),
    "clock.latest_year": _at_most(2100, "year", CHOSEN, least=1971, most=2200),
    "clock.elapsed_ratio": _at_least(
        0.999, "ratio", "clock_nanosleep(2): never shorter than asked", least=0.5, most=2
    ),
    "clock.step_seconds": _at_most(0.01, "seconds", CHOSEN, most=3600, least=1e-9),
    "clock.slew_ratio": _at_most(
        0.001, "ratio", "twice the 500 ppm that adjtimex(2) may slew", most=1, least=1e-9
    ),
    "loopback.exchanged_bytes": _at_least(32 << 20, "bytes", "size of the probe", most=32 << 20),
    "loopback.wrong_bytes": _at_most(0, "bytes", DEFINED, most=0),
    "loopback.bytes_per_second": _at_least(50e6, "bytes/s", CHOSEN, most=1e12),
    "processes.open_files_soft": _at_least(
        1024, "files", "Linux: INR_OPEN_CUR in include/uapi/linux/fs.h", most=1e9
    ),
    "processes.open_files_hard": _at_least(
        4096, "files", "Linux: INR_OPEN_MAX in include/uapi/linux/fs.h", most=1e9
    ),
    "processes.free_files": _at_least(65_536, "files", CHOSEN, most=1e12),
    "processes.free_threads": _at_least(4096, "threads", CHOSEN, most=4194304),
    "processes.opened_files": _at_least(256, "files", "size of the probe", most=256),
    "processes.started_threads": _at_least(32, "threads", "size of the probe", most=32),
    "kernel_log.machine_checks": _at_most(0, "lines", CHOSEN, most=1e6),
    "kernel_log.uncorrected_memory_errors": _at_most(0, "errors", CHOSEN, most=1e6),
    "kernel_log.corrected_memory_errors": _at_most(100, "errors", CHOSEN, most=1e9),
    "kernel_log.out_of_memory_kills": _at_most(0, "lines", CHOSEN, most=1e6),
    "kernel_log.lockups": _at_most(0, "lines", CHOSEN, most=1e6),
    "kernel_log.storage_errors": _at_most(0, "lines", CHOSEN, most=1e6),
}


def judge_of(overrides: Mapping[str, float]) -> Judge:
    """Return a judge by the table with some limits replaced. Raises UserError for an unknown name or a senseless value."""
    for name, value in overrides.items():
        _refuse_senseless(name, value)
    return Judge(
        {
            name: Evidence(
                name=name,
                value=None,
                unit=limit.unit,
                rule=limit.rule,
                limit=overrides.get(name, limit.value),
                source="command line" if name in overrides else limit.source,
            )
            for name, limit in LIMITS.items()
        }
    )


def parse_overrides(texts: Iterable[str]) -> dict[str, float]:
    """Read `NAME=VALUE` arguments. Raises UserError that names the argument and the way out."""
    overrides: dict[str, float] = {}
    for text in texts:
        name, equals, number = text.partition("=")
        try:
            overrides[name] = float(number)
        except ValueError:
            way_out = "write NAME=NUMBER" if equals else "write NAME=NUMBER, with the equals sign"
            raise UserError(f"--limit {text!r}: {number!r} is no number; {way_out}") from None
        _refuse_senseless(name, overrides[name])
    return overrides


def nearest(word: str, known: Collection[str]) -> str:
    """Say what could have been meant: the closest name, or all of them."""
    near = closest(word, known)
    return f"did you mean {near!r}?" if near else f"known: {', '.join(known)}"


def _refuse_senseless(name: str, value: float) -> None:
    if name not in LIMITS:
        raise UserError(f"no limit {name!r}; {nearest(name, LIMITS)}")
    limit = LIMITS[name]
    if not (math.isfinite(value) and limit.least <= value <= limit.most):
        raise UserError(
            f"limit {name} = {value:g} means nothing: give {limit.least:g} to {limit.most:g} {limit.unit}"
        )
