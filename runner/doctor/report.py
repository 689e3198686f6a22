"""What `stoker store doctor` looks at, on every kind of store: can it be written to fast enough, who leads, how much it holds.

Each look is a verdict of PASS, FAIL or UNKNOWN with a reason that ends in the way out; unknown is not healthy. What is tried is
tried on a stream, a register and a lease named `doctor`, which nobody else uses.
"""

from __future__ import annotations

import os
import socket
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

from runner.errors import StokerError
from runner.journal.snapshots import kept_snapshots
from runner.store.protocol import JOURNAL, LeaseHeld, Store
from runner.store.redis.store import RedisStore
from runner.store.sqlite.store import SqliteStore

PASS, FAIL, UNKNOWN = "PASS", "FAIL", "UNKNOWN"
SCRATCH = "doctor"
LEASE = "supervisor"
SAMPLES = 20
# A decision may take 100 ms from signal to assignment, and has a few writes to wait for; chosen.
MOST_APPEND_SECONDS = 0.02
STREAMS = (JOURNAL, "signals", "requests", "beats")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What one check found."""

    check: str
    outcome: str
    reason: str


def examine(store: Store) -> Iterator[Verdict]:
    """Look at a store from all sides; yields each verdict as it is found, and goes on after one that failed."""
    if isinstance(store, RedisStore):
        from runner.doctor.redis_checks import examine_server

        for verdict in examine_server(store):
            yield verdict
            if verdict.check == "reach" and verdict.outcome == FAIL:
                # it answers nobody, and every further look would only wait for it
                return
    elif isinstance(store, SqliteStore):
        from runner.doctor.sqlite_checks import examine_files

        yield from examine_files(store)
    for name, look in (
        ("use", _use),
        ("append", _append),
        ("lease", _lease),
        ("streams", _streams),
        ("snapshots", _snapshots),
    ):
        try:
            outcome, reason = look(store)
        except LeaseHeld as error:
            outcome, reason = UNKNOWN, f"another doctor is at work ({error}); try again"
        except StokerError as error:
            outcome, reason = FAIL, str(error)
        yield Verdict(check=name, outcome=outcome, reason=reason)


def overall(verdicts: list[Verdict]) -> str:
    """Return the worst outcome."""
    outcomes = {verdict.outcome for verdict in verdicts}
    return next((outcome for outcome in (FAIL, UNKNOWN) if outcome in outcomes), PASS)


def _use(store: Store) -> tuple[str, str]:
    """Do everything that a store is for, once."""
    version = store.put(SCRATCH, b"x")
    number = store.append(SCRATCH, b"x")
    batch = store.read(
        streams={SCRATCH: number - 1}, registers={SCRATCH: version - 1}, timeout_seconds=0
    )
    names = store.registers(SCRATCH)
    store.delete(SCRATCH)
    store.trim(SCRATCH, number)
    if len(batch.items.get(SCRATCH, ())) != 1 or SCRATCH not in names:
        return FAIL, "what was written a moment ago is not there; is somebody else writing there?"
    return PASS, "streams and registers take what they should"


def _append(store: Store) -> tuple[str, str]:
    """Time fenced appends, each of which is on the disk before it returns."""
    holder = f"doctor:{socket.gethostname()}:{os.getpid()}"
    lease = store.acquire_lease(SCRATCH, holder, ttl_seconds=30.0)
    taken_seconds = []
    try:
        for _ in range(SAMPLES):
            started = time.perf_counter()
            number = store.append(SCRATCH, b"x" * 500, fence=lease)
            taken_seconds.append(time.perf_counter() - started)
        store.trim(SCRATCH, number, fence=lease)
    finally:
        store.release(lease)
    middle, worst = statistics.median(taken_seconds), max(taken_seconds)
    said = f"{1000 * middle:.2f} ms in the middle, {1000 * worst:.2f} ms at worst, of {SAMPLES}"
    if middle > MOST_APPEND_SECONDS:
        limit = f"{1000 * MOST_APPEND_SECONDS:.0f} ms"
        return (
            FAIL,
            f"{said}; more than {limit} delays every decision: give it a faster disk or network",
        )
    return PASS, said


def _lease(store: Store) -> tuple[str, str]:
    holder = store.lease_holder(LEASE)
    if holder is None:
        return PASS, "nobody leads"
    left = f"for {holder.expires_in_seconds:.1f} s more" if holder.expires_in_seconds else "no more"
    return PASS, f"{holder.holder} leads, {left}, with token {holder.token}"


def _streams(store: Store) -> tuple[str, str]:
    said = []
    for name in STREAMS:
        last = store.last(name)
        batch = store.read(streams={name: 0}, registers={}, timeout_seconds=0, limit=1)
        held = last - batch.items[name][0].number + 1 if name in batch.items else 0
        said.append(f"{name} {held}" + (f" (to {last})" if last != held else ""))
    return PASS, "items held: " + ", ".join(said)


def _snapshots(store: Store) -> tuple[str, str]:
    kept, refused = kept_snapshots(store)
    if refused:
        return FAIL, "; ".join(refused) + "; the next snapshot replaces it"
    last = store.last(JOURNAL)
    if not kept:
        return PASS, "none yet"
    ages = ", ".join(
        f"through entry {each.seal.through} ({last - each.seal.through} entries ago, {len(each.body) / 1e6:.1f} MB)"
        for each in kept
    )
    return PASS, ages
