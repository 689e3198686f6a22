"""clock: the year is plausible, and wall clock and monotonic clock run together and evenly.

Deadlines, heartbeats and leases use the monotonic clock, logs the wall clock. Over half a second this detects a wall clock that
is being stepped, and a monotonic one that is slewed harder than a healthy time service ever does, or has stopped. How far the wall
clock is from the sources of its time service is asked of chrony where it runs; without it, whether systemd calls the clock
synchronised is noted.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from healthchecks.check import Evidence, Judge, NodeFacts, Verdict
from healthchecks.commands import Ending, run_together
from healthchecks.declaration import CHOSEN, HealthCheck, at_least, at_most

NAME = "clock"
# The tightest of these counts: a pause between two clocks is no step.
NUM_READINGS = 20
NANO = 1e-9
COMMANDS = {
    "chronyc": ("chronyc", "-n", "-c", "tracking"),
    "timedatectl": ("timedatectl", "show", "-p", "NTPSynchronized", "--value"),
}
# Of the check's deadline.
SHARE, LIMIT_SECONDS = 0.3, 3.0
# Of chronyc's line: address, stratum, time, offset, eight more, leap status. From version 4.6 on a field goes before these.
NUM_FIELDS, ADDRESS_FIELD, OFFSET_FIELD = 13, -13, -10
SYNCHRONISED = ("Normal", "Insert second", "Delete second")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All clocks at one moment, in nanoseconds; `spread` is how long reading them took."""

    wall: int
    monotonic: int
    # Monotonic, and never slewed by a time service.
    raw: int
    spread: int


def check(node: NodeFacts, judge: Judge) -> Verdict:
    """Read the clocks, wait `node.clock_seconds`, read them again."""
    before = read_clocks()
    time.sleep(node.clock_seconds)
    after = read_clocks()
    limit = min(LIMIT_SECONDS, SHARE * node.deadline_seconds)
    endings = run_together(COMMANDS, limit)
    evidence = (
        *compare(before, after, judge, asked_seconds=node.clock_seconds),
        _offset(endings["chronyc"], limit=limit, judge=judge),
        _synchronised(endings["timedatectl"]),
    )
    return Verdict(check=NAME, evidence=evidence)


def _offset(ending: Ending | OSError, *, limit: float, judge: Judge) -> Evidence:
    """Read chrony's estimate; the last field of its line says whether it is synchronised at all."""
    name = "clock.offset_seconds"
    if isinstance(ending, OSError):
        return Evidence(name=name, value=None, note="chrony is not installed")
    if ending.hung:
        return judge(name, None, note=f"chronyc hung for {limit:g} s")
    text = ending.output.decode(errors="replace").strip()
    if ending.code != 0:
        # Another service keeps the time, or none.
        return Evidence(name=name, value=None, note=f"chronyc: {text or f'code {ending.code}'}")
    fields = text.split(",")
    if len(fields) < NUM_FIELDS:
        return judge(name, None, note=f"half an answer of chronyc: {text[:80]!r}")
    if fields[-1] not in SYNCHRONISED:
        return judge(name, None, note=f"chrony: {fields[-1]}")
    try:
        return judge(name, abs(float(fields[OFFSET_FIELD])), note=f"from {fields[ADDRESS_FIELD]}")
    except ValueError:
        return judge(name, None, note=f"{fields[OFFSET_FIELD]!r} is no number")


def _synchronised(ending: Ending | OSError) -> Evidence:
    """Note what systemd says; where it does not run, nothing."""
    text = ""
    if isinstance(ending, Ending) and ending.code == 0:
        text = ending.output.decode(errors="replace").strip()
    value = {"yes": 1.0, "no": 0.0}.get(text)
    return Evidence(name="clock.is_synchronised", value=value, note="by systemd" if text else "")


def read_clocks() -> Reading:
    """Read all clocks as close together as possible."""
    return min((_reading() for _ in range(NUM_READINGS)), key=lambda reading: reading.spread)


def compare(
    before: Reading, after: Reading, judge: Judge, *, asked_seconds: float
) -> Iterator[Evidence]:
    """Judge two readings that should be `asked_seconds` apart."""
    year = datetime.fromtimestamp(after.wall * NANO, tz=UTC).year
    yield judge("clock.earliest_year", year)
    yield judge("clock.latest_year", year)
    elapsed = after.monotonic - before.monotonic
    yield judge("clock.elapsed_ratio", elapsed * NANO / asked_seconds)
    step = abs((after.wall - before.wall) - elapsed) * NANO
    raw = after.raw - before.raw
    slew = abs(elapsed - raw) / raw if raw > 0 else None
    unsure = (before.spread + after.spread) * NANO
    yield _unless_unsure(judge("clock.step_seconds", step), unsure, judge)
    yield _unless_unsure(judge("clock.slew_ratio", slew), unsure / asked_seconds, judge)


def _unless_unsure(evidence: Evidence, unsure: float, judge: Judge) -> Evidence:
    """Return evidence as it is, unless the readings were too far apart for its limit to mean anything."""
    if evidence.limit is None or unsure <= evidence.limit / 2:
        return evidence
    return judge(evidence.name, None, note=f"read too slowly: unsure by {unsure:.3g}")


def _reading() -> Reading:
    began = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    wall = time.clock_gettime_ns(time.CLOCK_REALTIME)
    raw = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    ended = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return Reading(wall=wall, monotonic=(began + ended) // 2, raw=raw, spread=ended - began)


CHECK = HealthCheck(
    name=NAME,
    position=10,
    run=check,
    needs=("clock_seconds",),
    limits={
        "clock.earliest_year": at_least(
            2025, "year", "older than this software", least=1971, most=2200
        ),
        "clock.latest_year": at_most(2100, "year", CHOSEN, least=1971, most=2200),
        "clock.elapsed_ratio": at_least(
            0.999, "ratio", "clock_nanosleep(2): never shorter than asked", least=0.5, most=2
        ),
        "clock.offset_seconds": at_most(1, "seconds", CHOSEN, most=3600, least=1e-6),
        "clock.step_seconds": at_most(0.01, "seconds", CHOSEN, most=3600, least=1e-9),
        "clock.slew_ratio": at_most(
            0.001, "ratio", "twice the 500 ppm that adjtimex(2) may slew", most=1, least=1e-9
        ),
    },
)
