"""`stoker store doctor`: examine a store as the journal uses it; each check passes, fails or is unknown.

Checks read and measure; they repair nothing, and write only to a stream, a register and a lease named `doctor`.
"""

from __future__ import annotations

import os
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial

from runner.errors import StokerError
from runner.facts.store_names import HEARTBEATS, JOURNAL, LEASE, REQUESTS, SIGNALS
from runner.journal.snapshots import good_snapshots
from runner.store.examination import FAIL, PASS, UNKNOWN, Finding, StoreCheck, run_checks
from runner.store.protocol import LeaseHeld, Store

SCRATCH = "doctor"
SAMPLES = 20
# A decision may take 100 ms from signal to assignment, and has a few writes to wait for; chosen.
MOST_APPEND_SECONDS = 0.02
STREAMS = (JOURNAL, SIGNALS, REQUESTS, HEARTBEATS)


def examine(store: Store) -> Iterator[StoreCheck]:
    """Run the back end's own checks, then those of every store; yield each result at once."""
    for result in store.examine():
        yield result
        if result.check == "reach" and result.outcome == FAIL:
            # Every further check would only wait for the server.
            return
    checks: dict[str, Callable[[Store], Finding]] = {
        "use": _use,
        "append": _append,
        "lease": _lease,
        "streams": _streams,
        "snapshots": _snapshots,
    }
    bound = {name: partial(check, store) for name, check in checks.items()}
    yield from run_checks(bound, fail_on=(StokerError,))


def _use(store: Store) -> Finding:
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
        return FAIL, "a value just written is missing; does another program write there?"
    return PASS, "streams and registers take what they should"


def _append(store: Store) -> Finding:
    """Time fenced appends, each of which is on the disk before it returns."""
    holder = f"doctor:{socket.gethostname()}:{os.getpid()}"
    try:
        lease = store.acquire_lease(SCRATCH, holder, ttl_seconds=30.0)
    except LeaseHeld as error:
        return UNKNOWN, f"another doctor is at work ({error}); try again"
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
    summary = f"{1000 * middle:.2f} ms in the middle, {1000 * worst:.2f} ms at worst, of {SAMPLES}"
    if middle > MOST_APPEND_SECONDS:
        limit = f"{1000 * MOST_APPEND_SECONDS:.0f} ms"
        return (
            FAIL,
            f"{summary}; more than {limit} delays every decision: give it a faster disk or network",
        )
    return PASS, summary


def _lease(store: Store) -> Finding:
    holder = store.lease_holder(LEASE)
    if holder is None:
        return PASS, "no supervisor leads"
    left = f"for {holder.expires_in_seconds:.1f} s more" if holder.expires_in_seconds else "no more"
    return PASS, f"{holder.holder} leads, {left}, with token {holder.token}"


def _streams(store: Store) -> Finding:
    summary = []
    for name in STREAMS:
        last = store.last(name)
        batch = store.read(streams={name: 0}, registers={}, timeout_seconds=0, limit=1)
        held = last - batch.items[name][0].number + 1 if name in batch.items else 0
        summary.append(f"{name} {held}" + (f" (to {last})" if last != held else ""))
    return PASS, "items held: " + ", ".join(summary)


def _snapshots(store: Store) -> Finding:
    good, refused = good_snapshots(store)
    if refused:
        return FAIL, "; ".join(refused) + "; the next snapshot replaces it"
    last = store.last(JOURNAL)
    if not good:
        return PASS, "none yet"
    ages = ", ".join(
        f"through entry {each.seal.through} ({last - each.seal.through} entries ago, {len(each.body) / 1e6:.1f} MB)"
        for each in good
    )
    return PASS, ages
