"""`stoker store doctor`: examine a store as the journal uses it; each check passes, fails or is unknown.

Checks read and measure; they repair nothing, and write only to a stream, a register and a lease named `doctor`.
"""

import os
import socket
import statistics
import time
from collections.abc import Iterator

from runner.errors import StokerError, StoreCorrupt
from runner.facts.store_names import HEARTBEATS, JOURNAL, LEASE, REQUESTS, SIGNALS
from runner.journal.journal import Journal
from runner.journal.snapshots import Snapshots
from runner.signer import UNSIGNED, Signer
from runner.store.examination import FAIL, CheckFailed, CheckUnknown, StoreCheck, named, run_checks
from runner.store.protocol import LeaseHeld, Store

SCRATCH = "doctor"
SAMPLES = 20
# A decision may take 100 ms from signal to assignment, and has a few writes to wait for; chosen.
MOST_APPEND_SECONDS = 0.02
STREAMS = (JOURNAL, SIGNALS, REQUESTS, HEARTBEATS)


def examine(store: Store, signer: Signer | None = UNSIGNED) -> Iterator[StoreCheck]:
    """Run the back end's own checks, then those of every store; yield each result at once.

    `signer` checks that snapshots and entries are this cluster's own; None: its token cannot be read here.
    """
    for result in store.examine():
        yield result
        if result.check == "reach" and result.outcome == FAIL:
            # Every further check would only wait for the server.
            return
    checks = named(_use, _append, _lease, _streams)
    yield from run_checks(store, checks, StokerError)
    yield from run_checks((store, signer), named(_snapshots, _entries), StokerError)


def _use(store: Store) -> str:
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
        raise CheckFailed("a value just written is missing; does another program write there?")
    return "streams and registers take what they should"


def _append(store: Store) -> str:
    """Time fenced appends, each of which is on the disk before it returns."""
    holder = f"doctor:{socket.gethostname()}:{os.getpid()}"
    try:
        lease = store.acquire_lease(SCRATCH, holder, ttl_seconds=30.0)
    except LeaseHeld as error:
        raise CheckUnknown(f"another doctor is at work ({error}); try again") from error
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
        raise CheckFailed(
            f"{summary}; more than {1000 * MOST_APPEND_SECONDS:.0f} ms delays every decision: "
            "give it a faster disk or network"
        )
    return summary


def _lease(store: Store) -> str:
    holder = store.lease_holder(LEASE)
    if holder is None:
        return "no supervisor leads"
    left = f"for {holder.expires_in_seconds:.1f} s more" if holder.expires_in_seconds else "no more"
    return f"{holder.holder} leads, {left}, with token {holder.token}"


def _streams(store: Store) -> str:
    summary = []
    for name in STREAMS:
        last = store.last(name)
        batch = store.read(streams={name: 0}, registers={}, timeout_seconds=0, limit=1)
        held = last - batch.items[name][0].number + 1 if name in batch.items else 0
        summary.append(f"{name} {held}" + (f" (to {last})" if last != held else ""))
    return "items held: " + ", ".join(summary)


def _entries(examined: tuple[Store, Signer | None]) -> str:
    """Follow the chain of codes from the newest snapshot to the end, as the next supervisor will."""
    store, signer = examined
    if signer is None and store.last(JOURNAL):
        raise CheckUnknown(
            "the cluster's token cannot be read here, so nothing can be verified; run this where it can"
        )
    signer = signer or UNSIGNED
    journal = Journal(store, signer=signer)
    begin = max(journal.latest_snapshot().through + 1, journal.begins_at())
    try:
        num_read = sum(1 for _ in journal.replay(begin))
    except StoreCorrupt as error:
        raise CheckFailed(str(error)) from error
    if not num_read:
        return "none after the newest snapshot"
    if not signer.is_active:
        return f"{num_read} after the newest snapshot can be read; this cluster has no token, so none carries a code"
    return f"{num_read} after the newest snapshot continue its chain"


def _snapshots(examined: tuple[Store, Signer | None]) -> str:
    store, signer = examined
    good, refused = Snapshots(store, signer or UNSIGNED).good()
    if refused:
        raise CheckFailed("; ".join(refused) + "; the next snapshot replaces it")
    last = store.last(JOURNAL)
    if not good:
        return "none yet"
    return ", ".join(
        f"through entry {each.seal.through} ({last - each.seal.through} entries ago, {len(each.body) / 1e6:.1f} MB)"
        for each in good
    )
