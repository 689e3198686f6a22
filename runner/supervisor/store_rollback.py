"""A store that came back with less than it acknowledged: how it is detected, how all action stops, and the way out.

Two supervisors that act on different journals would launch a gang twice. On evidence of a rollback
the supervisor decides and writes nothing more, except one register for the next supervisor;
it pages a person and ends with an exit code on which no service manager restarts it. Ranks go on
training. A person then restores a newer copy, or accepts the store as it is.
"""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import dataclass
from pathlib import Path

from runner.act.pages import page
from runner.decide.controller import Controller
from runner.decide.decision import Policy
from runner.decide.state.cluster_state import LAUNCHED, State
from runner.errors import PermanentError, StokerError, StoreRolledBack, StoreUnavailable, WireError
from runner.facts import wire
from runner.facts.messages.records import Assigned, AttemptChanged, JournalEntry
from runner.facts.messages.signals import Heartbeat
from runner.facts.messages.store_rollback import CountersRaised, StoreAccepted, StoreStopped
from runner.facts.specs.cluster import ClusterSpec
from runner.facts.store_names import HEARTBEATS, STOPPED
from runner.journal.archive import archive_of
from runner.journal.high_water_mark import MARK_FILE, HighWaterFile, read_high_water
from runner.journal.journal import Journal
from runner.journal.snapshots import good_snapshots
from runner.load.runbooks import load_runbooks
from runner.signer import Signer
from runner.store.protocol import Lease, Store
from runner.supervisor.decisions import DecisionLog

_LOG = logging.getLogger("stoker")

# Of a supervisor that must not be restarted automatically.
EXIT_CODE = 5
# Added to the newest known generation: agents that are cut off may have obeyed a later one. Far more
# than a cluster uses up while a copy of the store ages (780 failures in 60 days at 2,000 nodes take
# 1,560). Chosen.
GENERATION_LEAP = 100_000
# The newest heartbeats that are searched for generations. Chosen.
HEARTBEATS_READ = 5000


def mark_path(cluster: ClusterSpec) -> Path:
    """Return the file in which this machine keeps how far the cluster's store got."""
    return Path(cluster.state) / MARK_FILE


def read_stop_notice(store: Store) -> StoreStopped | None:
    """Return why no supervisor may act on this store; None if it may."""
    register = store.get(STOPPED)
    if register is None:
        return None
    try:
        found = wire.decode(register.payload)
    except WireError as error:
        return StoreStopped(reason=f"register {STOPPED!r}: {error}", holder="", wall=0.0)
    if isinstance(found, StoreStopped):
        return found
    return StoreStopped(reason=f"register {STOPPED!r} holds no reason", holder="", wall=0.0)


def check_not_rolled_back(store: Store, journal: Journal) -> None:
    """Raise StoreRolledBack if a supervisor recorded a rollback before, or if this machine's high-water mark shows one."""
    found = read_stop_notice(store)
    if found is not None:
        raise StoreRolledBack(
            f"{found.reason} (detected by {found.holder or 'an unknown process'})"
        )
    journal.check_high_water()


def stop_all_action(
    store: Store, error: StokerError, *, holder: str, acknowledged: int, generation: int
) -> None:
    """Record a rollback for the next supervisor, if the store accepts the write, and page a person once.

    A store that is damaged, or written by a later release, is only logged: a process that can read
    it may act on it.
    """
    _LOG.critical("%s", error)
    if not isinstance(error, StoreRolledBack) or _has_stop_notice(store):
        return
    note = StoreStopped(
        reason=str(error)[:1000],
        holder=holder,
        wall=time.time(),
        acknowledged=acknowledged,
        generation=generation,
    )
    with contextlib.suppress(StokerError):
        store.put(STOPPED, wire.encode(note))
    page(
        f"{error}. ALL ACTION HAS STOPPED; ranks train on unattended. See runbooks/store-rolled-back.md: restore a newer copy "
        "of the store, or run `stoker store accept`"
    )


def _has_stop_notice(store: Store) -> bool:
    """Whether a rollback is recorded already; False if the store cannot be read."""
    with contextlib.suppress(StokerError):
        return read_stop_notice(store) is not None
    return False


# ---- accepting the store as it is


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackLoss:
    """What accepting the store's present end gives up. Numbers of entries and generations; 0: none is known."""

    # Why action stopped; "": it did not.
    reason: str
    # The journal's last entry now.
    ends_at: int
    # The last entry that is known to have been acknowledged.
    acknowledged: int
    # In the journal.
    next_generation: int
    # The newest that an agent or a supervisor reported.
    seen_generation: int
    seen_run: int
    # Nodes whose agents obey assignments that the journal lacks.
    ahead: tuple[str, ...] = ()

    @property
    def lost(self) -> int:
        """Return how many entries are known to be missing."""
        return max(0, self.acknowledged - self.ends_at)

    @property
    def is_any(self) -> bool:
        """Whether there is anything to accept."""
        return bool(self.reason or self.lost or self.seen_generation >= self.next_generation)


def assess_loss(cluster: ClusterSpec, store: Store, signer: Signer) -> RollbackLoss:
    """Compare the store with what agents and this machine know of it. Raises StoreCorrupt if it cannot be read."""
    log = _read_all(cluster, Journal(store, archive=archive_of(cluster)))
    state, notice = log.controller.state, read_stop_notice(store)
    mark = read_high_water(mark_path(cluster))
    generations, runs = [mark.next_generation - 1], [0]
    if notice is not None:
        generations.append(notice.generation)
    ahead: dict[str, None] = {}
    for heartbeat in _heartbeats(store, signer):
        generations.append(heartbeat.generation)
        runs.append(heartbeat.attempt.run if heartbeat.attempt is not None else 0)
        if heartbeat.generation >= state.next_generation:
            ahead[heartbeat.node] = None
    reason = notice.reason if notice is not None else ""
    with contextlib.suppress(StoreUnavailable):
        try:
            _check_mark(cluster, store)
        except StoreRolledBack as error:
            reason = reason or str(error)
    return RollbackLoss(
        reason=reason,
        ends_at=state.sequence,
        acknowledged=max(mark.sequence, notice.acknowledged if notice is not None else 0),
        next_generation=state.next_generation,
        seen_generation=max(generations),
        seen_run=max(runs),
        ahead=tuple(ahead),
    )


def accept_rollback(
    cluster: ClusterSpec, store: Store, lease: Lease, known: RollbackLoss, *, by: str
) -> int:
    """Accept the store's present end, under the supervisor's lease; return the number of the entry that says so.

    If this process dies before the end, supervisors still refuse the store: run it again.
    """
    mark = HighWaterFile(mark_path(cluster))
    journal = Journal(store, lease, archive=archive_of(cluster), mark=mark)
    for kept in good_snapshots(store)[0]:
        # A snapshot of entries that are lost.
        if kept.seal.through > journal.last():
            store.delete(kept.register, fence=lease)
    archive_of(cluster).put_aside(journal.index().last)
    log = _read_all(cluster, journal)
    state = log.controller.state
    cursors = {name: min(number, store.last(name)) for name, number in state.cursors.items()}
    numbers = CountersRaised(
        next_generation=max(state.next_generation, known.seen_generation + 1) + GENERATION_LEAP,
        next_run=max(state.next_run, known.seen_run + 1),
        cursors=cursors,
    )
    entry = JournalEntry(
        sequence=state.sequence + 1,
        now=max(state.now, time.time()),
        input=StoreAccepted(by=by, reason=known.reason, lost=known.lost),
        records=(numbers, *_ended(state, known.ahead, numbers.next_generation)),
    )
    journal.accept(entry, next_generation=numbers.next_generation)
    mark.close()
    store.delete(STOPPED, fence=lease)
    return entry.sequence


def _ended(state: State, ahead: tuple[str, ...], generation: int) -> list[object]:
    """End what the journal does not know: all that runs on idle nodes, and gangs with a node that is ahead."""
    idle = [name for name, node in state.nodes.items() if node.attempt is None]
    records: list[object] = []
    for run in state.runs.values():
        attempt = run.attempt
        if attempt is None or attempt.state not in LAUNCHED:
            continue
        if any(name in ahead for name in attempt.nodes):
            reason = "the store lost the launches after its last entry"
            records.append(
                AttemptChanged(
                    attempt=attempt.attempt, state="stopping", outcome="lost", reason=reason
                )
            )
            idle += attempt.nodes
    return [*records, *(Assigned(node=name, generation=generation) for name in idle)]


def _read_all(cluster: ClusterSpec, journal: Journal) -> DecisionLog:
    """Read the newest snapshot that the journal reaches, and the entries after it."""
    log = DecisionLog(
        Controller(Policy(cluster=cluster, runbooks=tuple(load_runbooks().values()))),
        journal,
        on_outage=_raise,
    )
    log.recover(at_most=journal.last())
    if log.controller.state.sequence < journal.index().last:
        raise PermanentError(
            f"the journal ends at entry {log.controller.state.sequence}, but its files reach entry {journal.index().last}: "
            "the store is a mixture of two states; restore a copy of all of it"
        )
    return log


def _check_mark(cluster: ClusterSpec, store: Store) -> None:
    path = mark_path(cluster)
    if path.exists():
        mark = HighWaterFile(path)
        try:
            Journal(store, archive=archive_of(cluster), mark=mark).check_high_water()
        finally:
            mark.close()


def _heartbeats(store: Store, signer: Signer) -> list[Heartbeat]:
    found = []
    after = max(0, store.last(HEARTBEATS) - HEARTBEATS_READ)
    batch = store.read(
        streams={HEARTBEATS: after}, registers={}, timeout_seconds=0, limit=HEARTBEATS_READ
    )
    for item in batch.items.get(HEARTBEATS, ()):
        with contextlib.suppress(WireError):
            heartbeat = wire.decode(signer.verify(HEARTBEATS, item.payload))
            if isinstance(heartbeat, Heartbeat):
                found.append(heartbeat)
    return found


def _raise(error: StoreUnavailable) -> None:
    raise error
