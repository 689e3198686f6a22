"""A store that came back with less than it acknowledged: how that is noticed, how all action stops, and a person's way out.

Two supervisors that act on different pasts would launch a gang twice. So on such evidence nothing is decided or written any more,
one register says so to whoever comes next, a person is told, and the process ends in a way that nobody starts it again. Ranks go
on training meanwhile. What next is a person's to decide: put back a newer copy, or `accept` what there is.
"""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import dataclass
from pathlib import Path

from runner.act.pages import tell
from runner.decide.controller import Controller
from runner.decide.decision import Policy
from runner.decide.state.cluster_state import LAUNCHED, State
from runner.errors import PermanentError, StokerError, StoreRolledBack, StoreUnavailable, WireError
from runner.facts import wire
from runner.facts.messages.records import Assigned, AttemptChanged, JournalEntry
from runner.facts.messages.signals import Heartbeat
from runner.facts.messages.store_rollback import CountersRaised, StoreAccepted, StoreStopped
from runner.facts.specs.cluster import ClusterSpec
from runner.journal.archive import archive_of
from runner.journal.high_water_mark import MARK_FILE, Mark, read_mark
from runner.journal.journal import Journal
from runner.journal.snapshots import kept_snapshots
from runner.load import load_runbooks
from runner.signer import Signer
from runner.store.protocol import Lease, Store
from runner.supervisor.decisions import DecisionLog

_LOG = logging.getLogger("stoker")

# the register
STOPPED = "journal.stopped"
# of a supervisor that nobody is to start again
EXIT_CODE = 5
# Beyond every epoch that was seen: agents that nobody hears now may have obeyed a later one. Far more than a cluster gives out
# while a copy grows old (780 failures in 60 days at 2,000 nodes take 1,560); chosen.
EPOCH_LEAP = 100_000
# the newest heartbeats that are asked for epochs; chosen
BEATS_READ = 5000


def mark_of(cluster: ClusterSpec) -> Path:
    """Return where this machine remembers how far the cluster's store got."""
    return Path(cluster.state) / MARK_FILE


def stopped(store: Store) -> StoreStopped | None:
    """Return why nobody may act on this store; None when it is as it should be."""
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


def check_remembers(store: Store, journal: Journal) -> None:
    """Raise StoreRolledBack if somebody noticed before that the store forgot, or if this machine's mark says so."""
    found = stopped(store)
    if found is not None:
        raise StoreRolledBack(f"{found.reason} (noticed by {found.holder or 'somebody'})")
    journal.check_mark()


def stop_all_action(
    store: Store, error: StokerError, *, holder: str, acknowledged: int, epoch: int
) -> None:
    """Tell whoever comes next, and a person, once. The store is written to in this one place only, and need not take it.

    One that is damaged, or written by a later release, is said to be so and left as it is: whoever can read it may act on it.
    """
    _LOG.critical("%s", error)
    if not isinstance(error, StoreRolledBack) or stopped_already(store):
        return
    note = StoreStopped(
        reason=str(error)[:1000],
        holder=holder,
        wall=time.time(),
        acknowledged=acknowledged,
        epoch=epoch,
    )
    with contextlib.suppress(StokerError):
        store.put(STOPPED, wire.encode(note))
    tell(
        f"{error}. ALL ACTION HAS STOPPED; ranks go on by themselves. See runbooks/store-forgot.md: put back a newer copy of the "
        "store, or `stoker store accept`"
    )


def stopped_already(store: Store) -> bool:
    """Whether the register says so; a store that cannot be asked says nothing."""
    with contextlib.suppress(StokerError):
        return stopped(store) is not None
    return False


# ---- the way out ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """What accepting the store's present end means. Numbers of entries and epochs; 0: none is known."""

    # why action stopped; "": it did not
    reason: str
    # the journal's last entry now
    ends_at: int
    # the last one that anybody is known to have had
    acknowledged: int
    # as the journal has it
    next_epoch: int
    # highest that is known to have been given out
    seen_epoch: int
    seen_run: int
    # nodes whose agents obey what the journal does not know
    ahead: tuple[str, ...] = ()

    @property
    def lost(self) -> int:
        """Return how many entries are known to be gone."""
        return max(0, self.acknowledged - self.ends_at)

    @property
    def is_any(self) -> bool:
        """Whether there is anything to accept."""
        return bool(self.reason or self.lost or self.seen_epoch >= self.next_epoch)


def loss(cluster: ClusterSpec, store: Store, signer: Signer) -> Loss:
    """Look at what the store has and what others know of it. Raises StoreCorrupt when what is left cannot be read at all."""
    turns = _read_all(cluster, Journal(store, archive=archive_of(cluster)))
    state, found = turns.controller.state, stopped(store)
    mark = read_mark(mark_of(cluster))
    epochs, runs = [mark.next_epoch - 1], [0]
    if found is not None:
        epochs.append(found.epoch)
    ahead: dict[str, None] = {}
    for beat in _beats(store, signer):
        epochs.append(beat.epoch)
        runs.append(beat.attempt.run if beat.attempt is not None else 0)
        if beat.epoch >= state.next_epoch:
            ahead[beat.node] = None
    reason = found.reason if found is not None else ""
    with contextlib.suppress(StoreUnavailable):
        try:
            _checked(cluster, store)
        except StoreRolledBack as error:
            reason = reason or str(error)
    return Loss(
        reason=reason,
        ends_at=state.sequence,
        acknowledged=max(mark.sequence, found.acknowledged if found is not None else 0),
        next_epoch=state.next_epoch,
        seen_epoch=max(epochs),
        seen_run=max(runs),
        ahead=tuple(ahead),
    )


def accept(cluster: ClusterSpec, store: Store, lease: Lease, known: Loss, *, by: str) -> int:
    """Make the store's present end the truth; return the number of the entry that says so. Under the supervisor's lease.

    Dying on the way leaves a store on which nobody acts yet: do it again.
    """
    mark = Mark(mark_of(cluster))
    journal = Journal(store, lease, archive=archive_of(cluster), mark=mark)
    for kept in kept_snapshots(store)[0]:
        # of a past that is no more
        if kept.seal.through > journal.last():
            store.delete(kept.register, fence=lease)
    archive_of(cluster).put_aside(journal.index().last)
    turns = _read_all(cluster, journal)
    state = turns.controller.state
    cursors = {name: min(number, store.last(name)) for name, number in state.cursors.items()}
    numbers = CountersRaised(
        next_epoch=max(state.next_epoch, known.seen_epoch + 1) + EPOCH_LEAP,
        next_run=max(state.next_run, known.seen_run + 1),
        cursors=cursors,
    )
    entry = JournalEntry(
        sequence=state.sequence + 1,
        now=max(state.now, time.time()),
        input=StoreAccepted(by=by, reason=known.reason, lost=known.lost),
        records=(numbers, *_ended(state, known.ahead, numbers.next_epoch)),
    )
    journal.accept(entry, next_epoch=numbers.next_epoch)
    mark.close()
    store.delete(STOPPED, fence=lease)
    return entry.sequence


def _ended(state: State, ahead: tuple[str, ...], epoch: int) -> list[object]:
    """End what the journal does not know: whatever runs on idle nodes, and gangs of which a node is ahead."""
    idle = [name for name, node in state.nodes.items() if node.attempt is None]
    records: list[object] = []
    for run in state.runs.values():
        attempt = run.attempt
        if attempt is None or attempt.state not in LAUNCHED:
            continue
        if any(name in ahead for name in attempt.nodes):
            reason = "the store forgot what was launched after it"
            records.append(
                AttemptChanged(
                    attempt=attempt.attempt, state="stopping", outcome="lost", reason=reason
                )
            )
            idle += attempt.nodes
    return [*records, *(Assigned(node=name, epoch=epoch) for name in idle)]


def _read_all(cluster: ClusterSpec, journal: Journal) -> DecisionLog:
    """Read the newest snapshot that the journal reaches, and what follows it."""
    turns = DecisionLog(
        Controller(Policy(cluster=cluster, runbooks=tuple(load_runbooks().values()))),
        journal,
        on_outage=_not_now,
    )
    turns.recover(at_most=journal.last())
    if turns.controller.state.sequence < journal.index().last:
        raise PermanentError(
            f"the journal ends at entry {turns.controller.state.sequence}, but its files reach entry {journal.index().last}: "
            "this is no earlier state of the store, but a mixture; put back a copy of all of it"
        )
    return turns


def _checked(cluster: ClusterSpec, store: Store) -> None:
    path = mark_of(cluster)
    if path.exists():
        mark = Mark(path)
        try:
            Journal(store, archive=archive_of(cluster), mark=mark).check_mark()
        finally:
            mark.close()


def _beats(store: Store, signer: Signer) -> list[Heartbeat]:
    found = []
    after = max(0, store.last("beats") - BEATS_READ)
    batch = store.read(streams={"beats": after}, registers={}, timeout_seconds=0, limit=BEATS_READ)
    for item in batch.items.get("beats", ()):
        with contextlib.suppress(WireError):
            beat = wire.decode(signer.verify("beats", item.payload))
            if isinstance(beat, Heartbeat):
                found.append(beat)
    return found


def _not_now(error: StoreUnavailable) -> None:
    raise error
